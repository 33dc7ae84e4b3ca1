"""An immutable, hashable mapping with sorted keys: what records of this room hold instead of a dict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

V = TypeVar("V")


class FrozenMap(Mapping[str, V], Generic[V]):
    """A mapping from names to values that cannot change, so a record that holds it can be a cache key.

    Keys iterate in sorted order, whatever order they were given in: what is printed from it is stable.
    """

    __slots__ = ("_hash", "_items")

    def __init__(self, items: Mapping[str, V]) -> None:
        self._items: dict[str, V] = dict(sorted(items.items()))
        self._hash: int | None = None

    def __getitem__(self, key: str) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __eq__(self, other: object) -> bool:
        # Without this the two would be copied for every comparison, and caches compare records of one card often.
        return self._items == other._items if isinstance(other, FrozenMap) else super().__eq__(other)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(tuple(self._items.items()))
        return self._hash

    def __reduce__(self) -> tuple[type[FrozenMap[V]], tuple[dict[str, V]]]:
        """How another process gets it: without the hash, which differs from process to process."""
        return type(self), (self._items,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._items!r})"
