"""The ends of rows that are read part by part: what hides the elements of the last part that no row has.

Only the last part reaches beyond the row's end, so that a branch hides what lies there and all other parts keep their
tile as it is. Where what is loaded there is the number that hides it, nothing is hidden.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from wsopt.emit.called import BRANCH, BRANCH_COLUMNS, COLUMNS_FROM, KEPT_BRANCH, OWN
from wsopt.emit.expressions import helpers, in_type
from wsopt.emit.instructions import when
from wsopt.emit.scope import Known, Scope
from wsopt.graph.types import DType
from wsopt.tensors.statements import Item, Statement


def keeps_to_rows(scope: Scope, name: str) -> bool:
    """Whether nothing is computed of a tile's elements beyond the ends of its rows: each item that reads them
    hides them.
    """
    readers = [item for item in scope.items if name in item.reads]
    return bool(readers) and all(hides(scope, item) for item in readers)


def beyond(scope: Scope, name: str) -> float | None:
    """The number that a tensor's elements beyond the ends of rows can be loaded as, so that nothing has to hide
    them: the one that every reader has in their place, if the tensor is loaded by address and its type has it.
    """
    dtype = scope.asked.get(name)
    if dtype is None or not keeps_to_rows(scope, name):
        return None
    others = {item.args[2] for item in scope.items if isinstance(item, Statement) and name in item.reads}
    number, *more = (float(other) for other in others if not isinstance(other, str))
    has = dtype is DType.F32 or (dtype in (DType.F16, DType.BF16) and (math.isinf(number) or not number))
    return number if has and not more else None


def tells_ends(scope: Scope, item: Item) -> bool:
    """Whether an item only says which elements of a part a row has, for choices of the last part alone."""
    if not (scope.by_parts and isinstance(item, Statement) and item.primitive == "inside_column"):
        return False
    return all(_chooses(scope, other, item) for other in scope.items if item.name in other.reads)


def _chooses(scope: Scope, item: Item, mask: Statement) -> bool:
    """Whether an item is an element of a tile of f32, or a number beyond the row's end, as a mask says."""
    if not isinstance(item, Statement) or item.primitive != "where" or item.dtype is not DType.F32:
        return False
    condition, element, other = item.args
    if condition != mask.name or not isinstance(element, str) or isinstance(other, str):
        return False
    return scope.operand(element).spans == item.spans == scope.tile


def hides(scope: Scope, item: Item) -> bool:
    """Whether an item hides what lies beyond the end of rows, which only the last part reaches."""
    masks = (one for one in scope.items if one.name in item.reads and tells_ends(scope, one))
    return any(isinstance(mask, Statement) and _chooses(scope, item, mask) for mask in masks)


def hidden(scope: Scope, item: Statement, operand: Known, chosen: str) -> Iterator[str]:
    """Lines of an item that `hides`: in the part that reaches the row's end it is `chosen`, an expression; in all
    others, and in all where parts end with the row, it is the tile as it is.
    """
    mask, kept, name = scope.item(item.reads[0]), operand(item.reads[1]), scope.name(item.name, 0)
    assert isinstance(mask, Statement), "a comparison"
    scope.called |= helpers(item)
    yield f"{name} = {in_type(kept.name, kept, DType.F32)}"
    if scope.ends and beyond(scope, item.reads[1]) != item.args[2]:
        begin, columns = _branch(scope)
        inside = f"{scope.name(mask.name, 0)} = {columns} < ROW_LENGTH"
        yield when(scope.ends, f"{begin}\n{inside}\n{name} = {chosen}")


def _branch(scope: Scope) -> tuple[str, str]:
    """The first line of a branch that few parts take, and the numbers of the columns in it."""
    scope.called |= {OWN} if scope.numbered else {OWN, COLUMNS_FROM}
    return (KEPT_BRANCH, "columns") if scope.numbered else (BRANCH, BRANCH_COLUMNS)
