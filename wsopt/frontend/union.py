"""Disjoint sets that are merged, each known by one of its members."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class UnionFind(Generic[T]):
    """Sets of what was ever asked for or merged: `sets[one]` is the member by which the set of `one` is known.

    That stays the same for as long as the set does. A package that has this has much besides, which every command
    would spend a quarter of a second on loading.
    """

    def __init__(self) -> None:
        self._parents: dict[T, T] = {}
        self._sizes: dict[T, int] = {}

    def __getitem__(self, one: T) -> T:
        root = self._parents.setdefault(one, one)
        while root != self._parents[root]:
            root = self._parents[root]
        while one != root:  # the next look is a short one
            self._parents[one], one = root, self._parents[one]
        return root

    def union(self, *members: T) -> None:
        """Make one set of those that these are in, known as the largest of them is, or of equals the first."""
        roots = dict.fromkeys(self[one] for one in members)
        if not roots:
            return
        largest = max(roots, key=self._size)
        self._sizes[largest] = sum(map(self._size, roots))
        for root in roots:
            self._parents[root] = largest

    def _size(self, root: T) -> int:
        return self._sizes.get(root, 1)
