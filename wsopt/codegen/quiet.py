"""Keeps what libraries print away from the terminal, also where C++ code writes to the descriptors."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator


class Captured:
    """The text printed inside `captured_output`, there once the block has ended."""

    text: str = ""


@contextlib.contextmanager
def captured_output() -> Iterator[Captured]:
    """Collect standard output and error, of Python and of the process, and drop Python warnings.

    For the whole process, so not for use in two threads at a time.
    """
    captured, printed = Captured(), io.StringIO()
    with tempfile.TemporaryFile() as file:
        try:
            with _descriptors_to(file.fileno()), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                    yield captured
        finally:
            file.seek(0)
            captured.text = printed.getvalue() + file.read().decode(errors="replace")


@contextlib.contextmanager
def _descriptors_to(target: int) -> Iterator[None]:
    saved = {number: os.dup(number) for number in (1, 2)}
    _flush()
    try:
        for number in saved:
            os.dup2(target, number)
        yield
    finally:
        _flush()
        for number, copy in saved.items():
            os.dup2(copy, number)
            os.close(copy)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
