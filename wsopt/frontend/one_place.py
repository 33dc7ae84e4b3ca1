"""Sums along long rows that pick one element of each row, at an index that a tensor holds: a load by address instead.

Such a sum is `reduce_sum(where(columns == index, f(x), 0))`, as a cross-entropy has it with a label for an index. It
is f(x) at the index, or zero where the row has no such column. That element is loaded by its address, once a row, and
f is computed of it alone; no part of the row is compared with the index.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from wsopt.frontend.axes import RawView
from wsopt.frontend.values import Draft, Rewriter, Term, Value
from wsopt.graph.types import DType
from wsopt.primitives import family_of
from wsopt.primitives.types import Family
from wsopt.tensors.views import Role

_COLUMNS = f"iota_{Role.COLUMN}"
_OF_NEIGHBOURS = (None, Family.GROUPED, Family.INSIDE)
"""Families of values that need more of a row than one element."""


@dataclass(slots=True)
class OnePlace(Rewriter):
    """Replaces such sums by loads. `raw` are the views of tensors by use, with those that are loaded so; `found` has,
    by an old value and the index, the value's element there, None where it needs more of a row than that element.
    """

    raw: dict[str, RawView] = field(default_factory=dict)
    found: dict[tuple[str, str], Term | None] = field(default_factory=dict)

    def run(self) -> Draft:
        """The rewritten draft."""
        self.raw = dict(self.draft.raw)
        return replace(Rewriter.run(self), raw=self.raw)

    def _visit(self, name: str, value: Value, args: tuple[Term, ...]) -> Term:
        if value.primitive == "reduce_sum":
            for place, element in self._chosen(value.args[0]):
                at = self._at(element, place)
                if at is not None:
                    return self._inside(place, at, value.node)
        return self.copy(value, args)

    def _chosen(self, summed: Term) -> Iterator[tuple[str, Term]]:
        """The index at which alone the terms of a sum are not zero, and the term there; nothing for another sum."""
        pool = self.draft.pool
        match pool.match(summed, "where"):
            case condition, element, 0:
                for count, place in _either_way(pool.match(condition, "equal")):
                    if pool.match(count, _COLUMNS) is not None and self._names_one(place):
                        yield str(place), element

    def _names_one(self, place: Term) -> bool:
        """Whether a term is a tensor of i32 with an element for each row."""
        pool = self.draft.pool
        tensor = pool.match(place, "source") is not None and not pool.streams(place)
        return tensor and Role.ROW in pool.spans(place) and pool[str(place)].dtype is DType.I32

    def _inside(self, place: str, element: Term, node: str) -> Term:
        """The element, but zero where the index is no column of the row: there the comparison with all columns found
        nothing. A load as such gives zero there already.
        """
        if self.pool.match(element, "source") is not None:
            return element
        at, make = self.term(place), partial(self.pool.apply, node)
        length = self.draft.axes.extent(Role.COLUMN)
        sides = (make("greater_equal", at, 0), make("less", at, length))
        inside = self.pool.make("logical_and", sides, DType.BOOL, node)
        return make("where", inside, element, 0.0)

    def _at(self, old: Term, place: str) -> Term | None:
        """An old value's element at a place of the row; None if that needs more than one element of another value."""
        if not self.draft.pool.streams(old):
            return self.term(old)
        key = str(old), place
        if key not in self.found:
            self.found[key] = self._made(self.draft.pool[str(old)], place)
        return self.found[key]

    def _made(self, value: Value, place: str) -> Term | None:
        """The element, at a place of the row, of a value that varies along it."""
        if value.primitive == _COLUMNS:
            return self.term(place)
        if value.primitive == "source":
            return self._read(value, place)
        if family_of(value.primitive) in _OF_NEIGHBOURS:
            return None
        args = [self._at(arg, place) for arg in value.args]
        known = tuple(arg for arg in args if arg is not None)
        if len(known) < len(args):
            return None
        return self.pool.make(value.primitive, known, value.dtype, value.node, value.label)

    def _read(self, value: Value, place: str) -> Term | None:
        """The load of a tensor's element at a place of the row. None for a tensor that is gathered, sliced, spread
        over neighbours or packed, or whose columns are several axes: its addresses do not follow from the place
        alone.
        """
        (use, piece), chosen = value.label, self.draft.pool[place].label[0]
        raw, columns = self.draft.raw[use], self.draft.axes.atoms_of(Role.COLUMN)
        plain = (
            raw.chosen is None and not raw.single and not any(dim.cutout or dim.each > 1 for dim in raw.dims)
        )
        if not plain or len(columns) > 1 or raw.dtype.bits < 8 or value.args:
            return None
        own = f"{use}@{chosen}"
        self.raw[own] = replace(raw, chosen=(columns[0], chosen))
        at, spans = self.term(place), value.spans - {Role.COLUMN} | self.draft.pool.spans(place)
        return self.pool.make("source", (at,), value.dtype, value.node, (own, piece), spans)


def _either_way(operands: tuple[Term, ...] | None) -> Iterator[tuple[Term, Term]]:
    """The two operands of a comparison in both orders; nothing for None."""
    if operands is not None:
        first, second = operands
        yield from ((first, second), (second, first))
