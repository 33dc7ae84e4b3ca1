"""The cache of finished builds: by graph, machine and versions, whole or not at all, disposable.

An entry that does not hold what was put in, and a store that cannot be opened, count as absent; a broken
store is thrown away and begun again. Losing the cache costs time and nothing else.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import os
import pickle
import shutil
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import diskcache

from wsopt import __version__
from wsopt.graph.symbolic import AnyGraph, any_canonical_bytes

_SIZE_LIMIT = 256 * 2**20
_STORE = "builds"
_BROKEN = (
    sqlite3.Error,
    zlib.error,
    pickle.PickleError,
    OSError,
    EOFError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What reading a damaged store has been seen to raise, or may."""


def cache_folder() -> Path:
    """Where builds are kept: WSOPT_CACHE_DIR, or the user's cache folder."""
    given = os.environ.get("WSOPT_CACHE_DIR")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "wsopt"


def build_key(graph: AnyGraph, machine: str, keep: int = 1, under: str = "") -> str:
    """The key of the `keep` best builds: the graph, the machine's record and the conditions as texts, and the
    versions that decide the result.
    """
    digest = hashlib.sha256()
    versions = [f"{name}={_version(name)}" for name in ("ortools", "triton")]
    versions.append(f"keep={keep}")
    texts = (machine, under, __version__, ";".join(versions))
    for part in (any_canonical_bytes(graph), *(text.encode() for text in texts)):
        digest.update(len(part).to_bytes(8, "big") + part)
    digest.update(_sources_digest())
    return digest.hexdigest()


def _version(package: str) -> str:
    """The version of a package; "none" where it is not installed, with which nothing is built."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def source_files() -> Iterator[tuple[str, Path]]:
    """The program's files in a fixed order: their names, which are the same on every machine, and their paths."""
    root = Path(__file__).parent
    templates = root / "templates" if (root / "templates").is_dir() else root.parent / "templates"
    rooms = [(root, path) for kind in ("*.py", "*.json", "*.toml") for path in root.rglob(kind)]
    for base, path in sorted([*rooms, *((templates, path) for path in templates.glob("*.jinja"))]):
        yield path.relative_to(base).as_posix(), path


@functools.cache
def _sources_digest() -> bytes:
    """Digest of the program's files by name, size and time, so that a changed checkout does not serve old builds.

    It is found once: what a process has loaded stays as it was.
    """
    digest = hashlib.sha256()
    for name, path in source_files():
        status = path.stat()
        digest.update(f"{name}:{status.st_size}:{status.st_mtime_ns};".encode())
    return digest.digest()


def _checksum(files: Mapping[str, str]) -> str:
    digest = hashlib.sha256()
    for name, text in sorted(files.items()):
        digest.update(f"{name}\0{len(text)}\0{text}".encode())
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class BuildCache:
    """Files of finished builds by key, in a small embedded database under `folder`."""

    folder: Path

    @property
    def _store(self) -> Path:
        # A folder of its own: what else may lie in `folder` is not the cache's to delete.
        return self.folder / _STORE

    def _open(self) -> diskcache.Cache:
        # JSON instead of pickles: a foreign entry cannot run anything.
        return diskcache.Cache(str(self._store), size_limit=_SIZE_LIMIT, disk=diskcache.JSONDisk)

    def get(self, key: str) -> dict[str, str] | None:
        """The files of a build, or None if it is not there or not whole."""
        try:
            with self._open() as store:
                entry = store.get(key)
                if entry is None:
                    return None
                files: dict[str, str] = entry["files"]
                return files if _checksum(files) == entry["checksum"] else None
        except diskcache.Timeout:  # another process has it: nothing is broken
            return None
        except _BROKEN:
            self._begin_again()
            return None

    def put(self, key: str, files: Mapping[str, str]) -> None:
        """Keep a build. A store that cannot be written is begun again; nothing is kept if that fails too, or while
        another process does not let go of it.
        """
        entry = {"checksum": _checksum(files), "files": dict(files)}
        for _ in range(2):
            try:
                with self._open() as store:
                    store[key] = entry
                return
            except diskcache.Timeout:
                return
            except _BROKEN:
                self._begin_again()

    def _begin_again(self) -> None:
        shutil.rmtree(self._store, ignore_errors=True)
        with contextlib.suppress(OSError):
            self._store.unlink()
