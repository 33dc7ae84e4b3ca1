"""What the command line does with pages and traces: a build's folder to files that are written whole."""

from __future__ import annotations

import os
from pathlib import Path

from wsopt.errors import InputError, Problem
from wsopt.folder import read_folder
from wsopt.pages.build import build_page, cut_page, range_page
from wsopt.pages.content import Beside
from wsopt.partition.build import is_cut, read_cut
from wsopt.ranges.build import is_range, read_range


def write_views(
    folder: Path, html: Path | None, perfetto: Path | None, beside: Beside | None = None
) -> dict[str, str]:
    """Write the page of a build and its trace to the files that are given; the paths by what was written.

    Raises InputError for a folder that is no build, for a build of ranges as a trace, and for files that cannot be
    written; CheckError for a schedule that is not right.
    """
    for path in filter(None, (html, perfetto)):
        check_file(path)
    if html is not None:
        write_file(html, _page(folder, beside).encode())
    if perfetto is not None:
        write_file(perfetto, _trace(folder, beside))
    given = {"html": html, "perfetto": perfetto}
    return {name: str(path) for name, path in given.items() if path is not None}


def _page(folder: Path, beside: Beside | None) -> str:
    if is_cut(folder):
        return cut_page(read_cut(folder))
    if is_range(folder):
        return range_page(read_range(folder))
    return build_page(read_folder(folder), beside)


def _trace(folder: Path, beside: Beside | None) -> bytes:
    from wsopt.pages.perfetto import build_trace, cut_trace

    return cut_trace(read_cut(folder)) if is_cut(folder) else build_trace(read_folder(folder), beside)


def check_file(path: Path) -> None:
    """Raise InputError if no file can be written to `path`."""
    if path.is_dir():
        raise _refuse(path, "is a folder; give the name of a file")
    if not path.parent.is_dir():
        raise _refuse(path, f"the folder {path.parent} does not exist")


def write_file(path: Path, content: bytes) -> None:
    """Write a file in one step. Raises InputError if that cannot be done."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise _refuse(path, f"cannot be written: {error.strerror}") from error


def _refuse(path: Path, why: str) -> InputError:
    return InputError(str(path), [Problem("", why)])
