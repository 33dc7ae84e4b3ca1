"""The command `wsopt` in the tests' own process, where a module keeps what others are to find: builds, a cache."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from wsopt.cli import main


def status_of(*arguments: str) -> int:
    """The exit status of `wsopt` with these arguments."""
    before, sys.argv = sys.argv, ["wsopt", *arguments]
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        sys.argv = before
    return 0


@contextlib.contextmanager
def cache_in(folder: Path) -> Iterator[None]:
    """Finished builds are cached in this folder as long as the context lasts."""
    before = os.environ.get("WSOPT_CACHE_DIR")
    os.environ["WSOPT_CACHE_DIR"] = str(folder)
    try:
        yield
    finally:
        os.environ.pop("WSOPT_CACHE_DIR")
        os.environ |= {} if before is None else {"WSOPT_CACHE_DIR": before}
