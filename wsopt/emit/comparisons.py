"""Elements of a tile chosen by comparisons of whole numbers, in one piece of assembly each, under products.

Apart, a comparison does not wait for the product whose elements it chooses: ptxas moves all of them up before the
product's end, has predicates for seven, and packs the others into registers and out again. Together they take two
instructions an element.
"""

from __future__ import annotations

from collections.abc import Iterator

from wsopt.emit.expressions import broadcast, helpers, in_type, number
from wsopt.emit.scope import Known, Scope
from wsopt.graph.types import DType
from wsopt.primitives import PRIMITIVES
from wsopt.tensors.statements import Item, Scalar, Statement

Comparison = tuple[str, str | Scalar | None, str | Scalar | None]
"""A comparison of whole numbers: its instruction's name and its operands, None for the streamed axis's end."""


def compared(scope: Scope, item: Item) -> tuple[Comparison, ...]:
    """The comparisons that all have to hold where a statement chooses its first value; none if it is no such
    choice between elements of a tile under products, or is also by what is no comparison of whole numbers.
    """
    if not scope.asynchronous or not isinstance(item, Statement) or item.primitive != "where":
        return ()
    if item.spans != scope.tile or item.dtype is not DType.F32:
        return ()
    found = tuple(_conjuncts(scope, item.args[0]))
    return tuple(one for one in found if one) if all(found) else ()


def _conjuncts(scope: Scope, condition: str | Scalar) -> Iterator[Comparison | None]:
    """The comparisons that a condition is made of; None for what is no comparison of whole numbers."""
    item = next((one for one in scope.items if one.name == condition), None)
    if not isinstance(item, Statement):
        yield None
    elif item.primitive == "logical_and":
        for part in item.args:
            yield from _conjuncts(scope, part)
    elif item.primitive == "inside_stream":
        yield ("lt", None, None)
    elif facts := PRIMITIVES[item.primitive].comparison:
        left, right = item.args
        whole = (
            isinstance(a, int) or (isinstance(a, str) and scope.operand(a).dtype is DType.I32)
            for a in item.args
        )
        yield (facts.instruction, left, right) if all(whole) else None
    else:
        yield None


def choice(scope: Scope, item: Statement, comparisons: tuple[Comparison, ...], operand: Known) -> str:
    """The calls that choose an item's first value or its second, one in another."""

    def written(term: str | Scalar, wanted: DType | None = None) -> str:
        if not isinstance(term, str):
            return number(float(term) if wanted else term)
        text = broadcast(operand(term), scope.tile, scope.s)
        return in_type(text, operand(term), wanted) if wanted else text

    scope.called |= {f"where_{name}" for name, _, _ in comparisons} | helpers(item)
    chosen, other = (written(term, DType.F32) for term in item.args[1:])
    for name, left, right in comparisons:
        end = "gl.expand_dims(places, 0), stream_extent"
        sides = end if left is None or right is None else f"{written(left)}, {written(right)}"
        chosen = f"where_{name}({sides}, {chosen}, {other})"
    return chosen
