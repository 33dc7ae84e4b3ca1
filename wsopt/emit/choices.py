"""Choices between a tile's elements by comparisons of whole numbers, each written as one piece of assembly.

Apart, a comparison does not wait for the product whose elements it chooses: ptxas moves all of them up before the
product's end, has predicates for seven, and packs the others into registers and out again. Together they take
two instructions an element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from wsopt.graph.types import DType
from wsopt.primitives import PRIMITIVES
from wsopt.tensors.statements import Item, Scalar, Statement
from wsopt.tensors.views import Role

INSTRUCTIONS = tuple(entry.comparison.instruction for entry in PRIMITIVES.values() if entry.comparison)
"""The comparisons that a choice is written by, as their instructions name them."""

_INSIDE = "inside_stream"
_BEFORE_END = "lt"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of whole numbers; `name` is the instruction's. No operands stand for the streamed axis's end."""

    name: str
    left: str | Scalar | None
    right: str | Scalar | None


def helper(comparison: str) -> str:
    """The name of the kernel's function that chooses by a comparison."""
    return f"where_{comparison}"


def comparisons(
    item: Item,
    find: Callable[[str], Item | None],
    whole: Callable[[str], bool],
    tile: frozenset[Role],
) -> tuple[Comparison, ...]:
    """The comparisons that all have to hold where a statement chooses its first value; none if it is no such choice
    between elements of a `tile`.

    `find` gives the statement that computes a value, `whole` says whether a value is a whole number.
    """
    if not (isinstance(item, Statement) and item.primitive == "where"):
        return ()
    if item.spans != tile or item.dtype is not DType.F32 or not isinstance(item.args[0], str):
        return ()
    found = tuple(_conjuncts(item.args[0], find, whole))
    return () if None in found else tuple(one for one in found if one is not None)


def choice(
    compared: tuple[Comparison, ...],
    chosen: str,
    other: str,
    written: Callable[[str | Scalar], str],
    end: tuple[str, str],
) -> str:
    """The calls that choose: `written` gives an operand as text, `end` the two sides that say where an axis ends."""
    for one in compared:
        sides = end if one.left is None or one.right is None else (written(one.left), written(one.right))
        chosen = f"{helper(one.name)}({sides[0]}, {sides[1]}, {chosen}, {other})"
    return chosen


def _conjuncts(
    name: str, find: Callable[[str], Item | None], whole: Callable[[str], bool]
) -> Iterator[Comparison | None]:
    """The comparisons that a condition is made of; None for what is no comparison of whole numbers."""
    item = find(name)
    if isinstance(item, Statement) and item.primitive == "logical_and":
        for part in item.args:
            yield from _conjuncts(part, find, whole) if isinstance(part, str) else (None,)
    elif isinstance(item, Statement) and item.primitive == _INSIDE:
        yield Comparison(_BEFORE_END, None, None)
    elif isinstance(item, Statement) and (facts := PRIMITIVES[item.primitive].comparison) is not None:
        left, right = item.args
        fits = all(whole(a) if isinstance(a, str) else isinstance(a, int) for a in (left, right))
        yield Comparison(facts.instruction, left, right) if fits else None
    else:
        yield None
