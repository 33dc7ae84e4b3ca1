"""Tables of named entries that can be added to for a time, as extensions of this package do (docs/extend.md)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Generic, Protocol, TypeVar


class Named(Protocol):
    """What a table holds."""

    @property
    def name(self) -> str:
        """By which the entry is known."""


E = TypeVar("E", bound=Named)
_EXTENSIONS: list[str] = []


class Table(Mapping[str, E], Generic[E]):
    """Entries by name, in their order; those that are added come last. `what` they are is for errors."""

    def __init__(self, what: str, *entries: E) -> None:
        self._what = what
        self._entries = {entry.name: entry for entry in entries}

    def __getitem__(self, name: str) -> E:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    @contextlib.contextmanager
    def added(self, *entries: E) -> Iterator[None]:
        """More entries while the context lasts, in this process. ValueError for a name that is taken."""
        names = [entry.name for entry in entries]
        taken = [name for name in names if name in self._entries]
        if taken or len(set(names)) < len(names):
            raise ValueError(f"there is a {self._what} {', '.join(taken or names)} already")
        self._entries.update(zip(names, entries, strict=True))
        _EXTENSIONS.extend(names)
        try:
            yield
        finally:
            for name in names:
                del self._entries[name]
                _EXTENSIONS.remove(name)


def extended() -> bool:
    """Whether any table has entries that were added: what is made now is not what the package alone makes."""
    return bool(_EXTENSIONS)
