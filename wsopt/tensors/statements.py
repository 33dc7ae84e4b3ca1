"""What is computed on whole tiles, rows or columns: scalar statements and reductions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from wsopt.graph.types import DType
from wsopt.primitives import Family, family_of
from wsopt.tensors.views import Role

Scalar = int | float

BEFORE = ".before"
"""What the name of a reduction ends in where its value before the K-block is meant."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One scalar primitive of the loop or the epilogue, applied to whole tiles, rows or columns.

    `args` are names of statements, sources, contractions, or numbers. `dtype` is the type of the result as
    the graph means it: f32, i32, bool, or a narrower type that the value was rounded to.
    """

    name: str
    primitive: str
    args: tuple[str | Scalar, ...]
    spans: frozenset[Role]
    dtype: DType

    @property
    def reads(self) -> tuple[str, ...]:
        """The names among its operands."""
        return tuple(arg for arg in self.args if isinstance(arg, str))


@dataclass(frozen=True, slots=True)
class Reduction:
    """A maximum or a sum along the streamed axis, or of whole rows along the columns, one a row; f32.

    In the loop its name is the running result with the present K-block in it, and `name.before` the one without
    (-inf for a maximum, 0 for a sum, before the first); after the loop its name is the result. With `rescale`,
    a row value of the loop, a sum is multiplied by it before the K-block's own is added; a maximum begins anew where
    it does not hold. A maximum that `keeps_nan` is not a number where one element is none.

    One `over_rows` is of columns instead: blocks carry it from tile to tile, and it is complete after the last block.
    """

    name: str
    kind: str
    value: str
    rescale: str | None = None
    keeps_nan: bool = False
    over_rows: bool = False

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of what it reduces and is rescaled by."""
        return (self.value,) if self.rescale is None else (self.value, self.rescale)


Item = Statement | Reduction
"""What arithmetic is made of."""


def takes_row(item: Item) -> bool:
    """Whether an item needs more of a row than one element: it reduces it, or computes with neighbours."""
    if isinstance(item, Reduction):
        return not item.over_rows
    return family_of(item.primitive) is Family.GROUPED


def reduces_row(item: Item) -> bool:
    """Whether an item is one value of each row, made of all of the row."""
    return isinstance(item, Reduction) and not item.over_rows


def carries_over_rows(items: Iterable[Item]) -> bool:
    """Whether a reduction over all rows is among some items, which blocks carry from tile to tile."""
    return any(isinstance(item, Reduction) and item.over_rows for item in items)
