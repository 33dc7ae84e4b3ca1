"""Results of measured races in a small embedded database that outlives versions, kills and damage.

It is one SQLite file in the cache folder, in write-ahead mode: a race is there as soon as `put` returns, and a
process that is killed loses none that it had put. A file that is damaged is set aside under another name, with
a message, and a new one begun; a row that does not hold what was put in counts as absent.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from wsopt.errors import CheckError
from wsopt.tune.races import KEY, Race, key, race_faults

_FILE = "tuned.sqlite3"
_VERSION = 1
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_WAIT_S = 30.0
_TABLE = (
    f"CREATE TABLE IF NOT EXISTS races ({', '.join(f'{name} TEXT NOT NULL' for name in KEY)}, "
    f"date TEXT NOT NULL, race TEXT NOT NULL, checksum TEXT NOT NULL, PRIMARY KEY ({', '.join(KEY)}))"
)
_PUT = (
    f"INSERT INTO races VALUES ({', '.join('?' * (len(KEY) + 3))}) ON CONFLICT ({', '.join(KEY)}) DO UPDATE SET "
    "date = excluded.date, race = excluded.race, checksum = excluded.checksum WHERE excluded.date >= races.date"
)


class _Damaged(Exception):
    """The file is no database of ours; the text says how it is known."""


def _silent(message: str) -> None:
    del message


@dataclass(frozen=True, slots=True)
class Database:
    """The races that are remembered in `folder`; `tell` is called with a line where something was lost."""

    folder: Path
    tell: Callable[[str], None] = _silent

    @property
    def path(self) -> Path:
        """The database's file."""
        return self.folder / _FILE

    def put(self, races: Iterable[Race]) -> None:
        """Remember races, all or none; of two of the same key the later one stays."""
        rows = [(*key(race), race.date, *_packed(race)) for race in races]
        with self._open() as store, store:
            store.execute("BEGIN IMMEDIATE")
            store.executemany(_PUT, rows)

    def races(self) -> tuple[Race, ...]:
        """All that is remembered, in the order of the keys."""
        with self._open() as store:
            rows = store.execute(f"SELECT race, checksum FROM races ORDER BY {', '.join(KEY)}").fetchall()
        found = [_unpacked(text, checksum) for text, checksum in rows]
        lost = found.count(None)
        if lost:
            self.tell(f"{self.path}: {lost} of {len(found)} results are damaged and left out")
        return tuple(race for race in found if race is not None)

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """The database, begun anew if there is none. CheckError if it cannot be opened, read or written."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                store = _connect(self.path)
            except _Damaged as damage:
                self._set_aside(str(damage))
                store = _connect(self.path)
        except (OSError, sqlite3.Error, _Damaged) as error:
            raise CheckError(
                f"{self.path}: the database of measurements cannot be opened: {error}"
            ) from error
        try:
            yield store
        except sqlite3.Error as error:
            raise CheckError(f"{self.path}: the database of measurements failed: {error}") from error
        finally:
            store.close()

    def _set_aside(self, why: str) -> None:
        """Give the file, with what belongs to it, a name of its own."""
        number = 1
        while (aside := self.path.with_name(f"{_FILE}.damaged{number}")).exists():
            number += 1
        self.path.rename(aside)
        for suffix in ("-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                self.path.with_name(_FILE + suffix).rename(aside.with_name(aside.name + suffix))
        self.tell(f"{self.path}: {why}; set aside as {aside.name}, measurements begin anew")


def _connect(path: Path) -> sqlite3.Connection:
    """An open database that was looked through. Raises _Damaged if it is not one of ours."""
    with contextlib.ExitStack() as undo:
        store = sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None)
        undo.callback(store.close)
        with _damage_told():
            _prepare(store)
        undo.pop_all()
    return store


@contextlib.contextmanager
def _damage_told() -> Iterator[None]:
    """Tells damage from what may pass: a lock, a full disk, rights that are missing."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED:
            raise _Damaged(f"is damaged ({error})") from error
        raise


def _prepare(store: sqlite3.Connection) -> None:
    # A damaged text has to fail its checksum, not its decoding.
    store.text_factory = lambda data: data.decode("utf-8", errors="replace")
    store.execute("PRAGMA journal_mode = WAL")
    with store:
        store.execute("BEGIN IMMEDIATE")
        version, tables = _state(store)
        if version == 0 and not tables:
            store.execute(_TABLE)
            store.execute(f"PRAGMA user_version = {_VERSION}")
    version, tables = _state(store)
    if version != _VERSION or "races" not in tables:
        raise _Damaged(f"is of another format (version {version}, this is {_VERSION})")
    (verdict,) = store.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise _Damaged(f"is damaged ({verdict})")


def _state(store: sqlite3.Connection) -> tuple[int, set[str]]:
    (version,) = store.execute("PRAGMA user_version").fetchone()
    tables = store.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return version, {name for (name,) in tables}


def _packed(race: Race) -> tuple[str, str]:
    text = json.dumps(dataclasses.asdict(race), sort_keys=True)
    return text, hashlib.sha256(text.encode()).hexdigest()


def _unpacked(text: str, checksum: str) -> Race | None:
    if hashlib.sha256(text.encode()).hexdigest() != checksum:
        return None
    row = json.loads(text)
    return None if any(race_faults("", row)) else Race(**row)
