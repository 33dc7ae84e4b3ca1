"""Records of what takes long and always comes out the same: of what is known the record, and of every sixteenth anew.

A key stands for all that a result depends on, the code that finds it among it, so that a record is out of use as soon
as any of that changes. What has no record is found. Records are made by

    WSOPT_RECORD=DIR python -m pytest -n 2 && python tests/helpers/records.py DIR
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent
_QUOTES = '"""'
ANYWAY = 16
"""Of so many results that are known one is found anyway, and held to its record: with the next change of the program
another one, so that in time all are.
"""


def key_of(*asked: Any) -> str:
    """The key of what was asked for: a digest of its JSON. Nothing counts that programs' docstrings say, where a
    kernel has its predicted time, which changes with the model.
    """
    asked = tuple(map(without_docstring, asked))
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]


def without_docstring(asked: Any) -> Any:
    """A program's text with as many lines in its docstring, all empty, and whatever has such texts in it."""
    if isinstance(asked, dict):
        return {name: without_docstring(one) for name, one in asked.items()}
    if not isinstance(asked, str) or not asked.startswith(_QUOTES):
        return asked
    _, told, program = asked.split(_QUOTES, 2)
    return _QUOTES + "\n" * told.count("\n") + _QUOTES + program


def digest_of(files: Iterable[Path]) -> str:
    """A digest of the text of files, such as the code that finds a result."""
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(files))).hexdigest()


@functools.cache
def turn() -> int:
    """Which results are found anyway with the program as it is: those whose key leaves this remainder."""
    return int(digest_of((_FOLDER.parents[1] / "wsopt").rglob("*.py")), 16) % ANYWAY


@functools.cache
def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


@dataclass(slots=True)
class Records:
    """The records of one kind of results, by key: those of the file of that name, unless others are `known`."""

    name: str
    known: dict[str, Any] | None = None
    fault: str = "the record is another"
    plain: Callable[[Any], Any] = field(default=lambda found: found)
    """What of a result is the same whenever and wherever it is found."""
    kept: Callable[[Any], Any] = field(default=lambda found: found)
    """What of it a record keeps."""
    worth: Callable[[Any], bool] = field(default=lambda found: True)
    """Whether it is worth a record, because finding it takes long enough."""
    found: dict[str, Any] = field(default_factory=dict)
    """What was found by this process; it is not found again."""

    def is_made(self, key: str) -> bool:
        """Whether what a key stands for is to be found: it is not known, or found anyway."""
        if key in self.found:
            return False
        return key not in self._all() or int(key, 16) % ANYWAY == turn()

    def get(self, key: str, find: Callable[[], Any]) -> Any:
        """The result that a key stands for. Raises AssertionError if it is not what is recorded."""
        if key not in self.found:
            known = self._all()
            made = find() if self.is_made(key) else known[key]
            assert key not in known or self.plain(made) == self.plain(known[key]), self.fault
            self.found[key] = made
        result = json.loads(json.dumps(self.found[key]))
        if (folder := os.environ.get("WSOPT_RECORD")) and self.worth(result):
            with (Path(folder) / f"{self.name}.{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps([key, self.kept(result)]) + "\n")
        return result

    def read(self) -> None:
        """Read the records, and what says which are found anyway: what forks of this process need not do then."""
        self._all()
        turn()

    def _all(self) -> dict[str, Any]:
        return _read(_FOLDER / f"{self.name}.json") if self.known is None else self.known


def main(folder: Path, into: Path = _FOLDER) -> None:
    """Make the records those that tests have left in a folder, each kind in its file."""
    for name in sorted({path.name.split(".")[0] for path in folder.glob("*.jsonl")}):
        files = sorted(folder.glob(f"{name}.*.jsonl"))
        found = dict(map(json.loads, (line for path in files for line in path.read_text().splitlines())))
        rows = (
            f"{json.dumps(key)}: {json.dumps(found[key], separators=(',', ':'))}" for key in sorted(found)
        )
        (into / f"{name}.json").write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
        print(f"{name}: {len(found)} records")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
