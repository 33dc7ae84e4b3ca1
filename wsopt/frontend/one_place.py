"""Sums of rows that no SM holds of which each row has one element: that at a place which a tensor names, as a label
does.

A cross-entropy sums up, over the whole row, what a comparison with the row's label leaves of it. The sum is the
element at the label, or zero where the row has no such place; so that element is read by its address, once a row, and
no part of the row is compared with anything. What is computed of elements before the sum is computed of the one.
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
    """Reads the only element of sums by its address. `raw` are the tensors by use, with those that are read so; of
    each place `found` has the elements of old values that are known.
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
        """The place of which a sum has an element alone, and what it has of it; zeros elsewhere."""
        pool = self.draft.pool
        match pool.match(summed, "where"):
            case condition, element, 0:
                for count, place in _either_way(pool.match(condition, "equal")):
                    if pool.match(count, _COLUMNS) is not None and self._names_one(place):
                        yield str(place), element

    def _names_one(self, place: Term) -> bool:
        """Whether a term is a tensor's number for each row."""
        pool = self.draft.pool
        tensor = pool.match(place, "source") is not None and not pool.streams(place)
        return tensor and Role.ROW in pool.spans(place) and pool[str(place)].dtype is DType.I32

    def _inside(self, place: str, element: Term, node: str) -> Term:
        """The element where the row has the place, which a comparison found nowhere else; what is read there is zero
        as it is.
        """
        if self.pool.match(element, "source") is not None:
            return element
        at, make = self.term(place), partial(self.pool.apply, node)
        length = self.draft.axes.extent(Role.COLUMN)
        sides = (make("greater_equal", at, 0), make("less", at, length))
        inside = self.pool.make("logical_and", sides, DType.BOOL, node)
        return make("where", inside, element, 0.0)

    def _at(self, old: Term, place: str) -> Term | None:
        """An old value's element at a place of the row; None where it takes more than that of what it is made of."""
        if not self.draft.pool.streams(old):
            return self.term(old)
        key = str(old), place
        if key not in self.found:
            self.found[key] = self._made(self.draft.pool[str(old)], place)
        return self.found[key]

    def _made(self, value: Value, place: str) -> Term | None:
        """The element of what varies along the row."""
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
        """An element of a tensor, read by its address: of one that lies as it is, along one axis of columns."""
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
    """The two operands of a comparison, either first."""
    if operands is not None:
        first, second = operands
        yield from ((first, second), (second, first))
