"""Puts a folder in the place of another, whole or not at all, and clears up after processes that were killed.

The work is done in a hidden folder beside the place, which its process holds a lock on for as long as it lives:

    .wsopt-XXXXXXXX/new         what is to be put in place; once exchanged, what was there before
    .wsopt-XXXXXXXX/old/PLACE   what was there, where the two cannot be exchanged in one step
    .wsopt-XXXXXXXX/gone        what was there, on its way out

Without a lock on it such a folder is a dead process's: what it holds under `old` goes back to a place that is
empty, and the rest is deleted.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PREFIX = ".wsopt-"
_NEW, _OLD, _GONE = "new", "old", "gone"
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # linux/fcntl.h, linux/fs.h


@contextlib.contextmanager
def replacement(path: Path) -> Iterator[Path]:
    """An empty folder to fill; it takes the place of `path` when the block ends without an exception.

    Raises OSError, with `path` as it was before.
    """
    clear_up(path.parent)
    work, lock = _begin(path.parent)
    try:
        fresh = work / _NEW
        fresh.mkdir()
        fresh.chmod(0o755)
        yield fresh
        _put(fresh, path, work)
    finally:
        try:
            _settle(work)
        finally:
            if lock is not None:
                os.close(lock)


def clear_up(parent: Path) -> None:
    """Put right what killed processes have left in a folder, as far as it can be."""
    with contextlib.suppress(OSError):
        for work in sorted(parent.glob(f"{_PREFIX}*")):
            with contextlib.suppress(OSError):
                _clear_up_one(work)


def _clear_up_one(work: Path) -> None:
    if work.is_symlink() or not work.is_dir():
        return
    lock = _lock(work)
    if lock is None:
        return
    try:
        # Looked at only now: before, it was another's to change. A folder with more in it is none of ours.
        if {item.name for item in work.iterdir()} <= {_NEW, _OLD, _GONE}:
            _settle(work)
    finally:
        os.close(lock)


def _begin(parent: Path) -> tuple[Path, int | None]:
    """A hidden folder with a lock on it; without one where the file system has none, and nobody clears up."""
    while True:
        work = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        try:
            lock = _lock(work)
        except OSError:
            return work, None
        # Another process may have come upon the folder before it was locked, and deletes it: then once more.
        if lock is not None:
            return work, lock


def _lock(work: Path) -> int | None:
    """A lock that ends with this process; None if another holds it or has deleted the folder."""
    import fcntl  # not on Windows, where folders can be read all the same

    try:
        descriptor = os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), work.stat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _put(fresh: Path, path: Path, work: Path) -> None:
    """Put `fresh` in the place of `path`: in one step, or with the old one kept under `work` in between."""
    if path.exists():
        if _exchange(fresh, path):
            return
        kept = work / _OLD / path.name
        kept.parent.mkdir()
        path.rename(kept)
    fresh.rename(path)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders in one step; False, with nothing done, where the system cannot (renameat2)."""
    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None)
    if renameat2 is None:
        return False
    names = os.fsencode(one), os.fsencode(other)
    return bool(renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0)


def _settle(work: Path) -> None:
    """Give a place that was left empty its old folder back, and delete the rest.

    If it cannot be given back nothing is deleted. Before it is deleted it is renamed: half of it is not
    to be taken for the whole by who clears up after a kill.
    """
    old = work / _OLD
    if old.is_dir():
        for kept in old.iterdir():
            if not os.path.lexists(work.parent / kept.name):
                kept.rename(work.parent / kept.name)
        old.rename(work / _GONE)
    shutil.rmtree(work, ignore_errors=True)
