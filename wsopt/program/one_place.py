"""Sums of which each row has one element: that at a place which a value of the row names, as a label does.

Of a row in parts only the part that has the place adds anything, so that all others may leave out the comparison, the
choice and the sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wsopt.tensors.statements import Item, Reduction, Statement
from wsopt.tensors.views import Role


@dataclass(frozen=True, slots=True)
class OnePlace:
    """A sum of elements chosen by a comparison of columns with a `place` of each row, and what only it reads, in
    order: maybe the numbers of the `columns`, the comparison, and the choice.
    """

    place: str
    columns: Statement
    choice: Statement
    inside: tuple[Statement, ...]
    sum: Reduction

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the sum and of what only it reads."""
        return (*(item.name for item in self.inside), self.sum.name)


def sums_at_one_place(items: Sequence[Item]) -> Iterator[OnePlace]:
    """The sums among items to which a row adds the element at one place, and zeros; the place is known before all of
    them.
    """
    statements = {item.name: item for item in items if isinstance(item, Statement)}
    names = {item.name for item in items}
    for item in items:
        if (
            not isinstance(item, Reduction)
            or item.kind != "sum"
            or item.over_rows
            or item.rescale is not None
        ):
            continue
        choice = statements.get(item.value)
        if (
            choice is None
            or choice.primitive != "where"
            or choice.args[2] != 0
            or not _only(items, choice, item)
        ):
            continue
        equal = statements.get(str(choice.args[0]))
        if equal is None or not _only(items, equal, choice):
            continue
        for columns, place in _compared(equal, statements):
            if place not in names:
                own = (columns,) if _only(items, columns, equal) else ()
                yield OnePlace(place, columns, choice, (*own, equal, choice), item)


def _compared(equal: Statement, statements: dict[str, Statement]) -> Iterator[tuple[Statement, str]]:
    """The numbers of the columns and the value of a row that a statement compares, if it does."""
    if equal.primitive != "equal" or equal.spans != {Role.ROW, Role.COLUMN}:
        return
    for number, place in (equal.args, equal.args[::-1]):
        counted = statements.get(str(number))
        if counted is not None and counted.primitive == "iota_column" and isinstance(place, str):
            yield counted, place


def _only(items: Sequence[Item], value: Statement, reader: Item) -> bool:
    """Whether a value is read by one item alone."""
    return [item.name for item in items if value.name in item.reads] == [reader.name]
