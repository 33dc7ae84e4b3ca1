"""Copies that repeat elements, as of keys for a group of query heads: values like others, or left to FX."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from wsopt.torch.values import Dim, Untaken

_MOST = 3
"""Kinds of copies of which each is left to FX by itself: every one is a cut more."""

Kind = tuple[tuple[Any, ...], ...]
"""How often a copy repeats elements along each dimension, which those of keys and values of all layers have alike."""


@dataclass(slots=True)
class Copies:
    """Which copies that repeat elements stay in FX: all of them, or those of some kinds. `seen` are the kinds of the
    others, in order.
    """

    all_stay: bool = False
    stay: frozenset[Kind] = frozenset()
    seen: dict[Kind, None] = field(default_factory=dict)

    def see_through(self, dims: Sequence[Dim]) -> None:
        """Take a copy of these dimensions as a value like others. Raises Untaken where it stays in FX."""
        kind = tuple(tuple(atom.extent for atom in dim if atom.repeated) for dim in dims)
        if self.all_stay or kind in self.stay:
            raise Untaken("a copy that repeats elements, as a kernel could not read them repeated")
        self.seen[kind] = None

    def others(self) -> Iterator[Copies]:
        """What to leave to FX instead, where these have all been seen through: all, and one kind each."""
        if self.seen:
            yield Copies(all_stay=True)
        if 1 < len(self.seen) <= _MOST:
            yield from (Copies(stay=frozenset({kind})) for kind in self.seen)
