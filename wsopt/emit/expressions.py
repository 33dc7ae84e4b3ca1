"""Scalar statements as Gluon expressions on tiles, rows and columns, with broadcasts and conversions of operands."""

from __future__ import annotations

import math
from dataclasses import dataclass

from wsopt.emit.called import FOR_ELEMENTS, LARGER, LARGEST_OF_GROUPS, RUNNING_SUMS, TO_I8
from wsopt.emit.quantized import narrow_name
from wsopt.emit.tensors import GLUON
from wsopt.graph.types import DType
from wsopt.primitives import PRIMITIVES, Family
from wsopt.program.types import Structure, row_role
from wsopt.tensors.statements import Scalar, Statement
from wsopt.tensors.views import Role

_WHOLE = (DType.I32, DType.I8)
"""Element types that are compared and computed with as i32."""

NARROW_TYPES = (DType.BF16, DType.F16)
"""Types that a statement other than a rounding computes in where its result has the same bits as a rounded f32."""

_PLACES = {
    "inside_stream": "places < stream_extent",
    "inside_column": "columns < ROW_LENGTH",
    "inside_row": "rows < row_extent",
    "extent_stream": "stream_extent",
    "iota_stream": "places",
    "iota_batch": "batch",
    "iota_group": "group",
}
"""Places along axes, as the kernel knows them."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A value as the kernel holds it: its identifier, the axes that it spans, its type in registers. A value of a row
    may be each thread's `own`, of the elements that the thread has.
    """

    name: str
    spans: frozenset[Role]
    dtype: DType
    own: bool = False


def number(value: Scalar) -> str:
    """A number as the kernel writes it; what Python has no literal for is a constant of the kernel."""
    if isinstance(value, float):
        if math.isnan(value):
            return (
                'float("nan")'  # no constant of the module: Triton takes it for changed, as it equals nothing
            )
        if math.isinf(value):
            return "INF" if value > 0 else "NEG_INF"
    return f"({value!r})" if value < 0 else repr(value)


def for_elements(operand: Operand, spans: frozenset[Role]) -> bool:
    """Whether each thread's own value of a row is to be there for all elements that the thread has of the row."""
    return operand.own and len(operand.spans) == 1 < len(spans)


def broadcast(operand: Operand, spans: frozenset[Role], s: Structure) -> str:
    """A row or column as a tile's row or column, where the result spans both."""
    if len(spans) < 2 or len(operand.spans) != 1:
        return operand.name
    if for_elements(operand, spans):
        return f"{FOR_ELEMENTS}({operand.name})"
    axis = 1 if row_role(s.swap) in operand.spans else 0
    return f"gl.expand_dims({operand.name}, {axis})"


def in_type(text: str, operand: Operand, wanted: DType) -> str:
    """An operand's text in the type that an operation computes in: f32, unless all are whole numbers."""
    if wanted is operand.dtype or operand.dtype is DType.BOOL:
        return text
    return f"({text} * 1.0)" if _host_number(operand, wanted) else f"{text}.to({GLUON[wanted]})"


def _host_number(operand: Operand, wanted: DType) -> bool:
    """Whether an operand may be a number, which has no `to`: a whole one that is the same for the tile."""
    return not operand.spans and operand.dtype is DType.I32 and wanted is DType.F32


def _compute_type(statement: Statement, operands: list[Operand | Scalar]) -> DType:
    """The type that a statement's operands are brought to."""
    if PRIMITIVES[statement.primitive].family is Family.COMPARISON:
        whole = all(isinstance(o, int) or (isinstance(o, Operand) and o.dtype in _WHOLE) for o in operands)
        return DType.I32 if whole else DType.F32
    return DType.I32 if statement.dtype is DType.I32 else DType.F32


def expression(statement: Statement, operands: list[Operand | Scalar], s: Structure) -> str:
    """The right-hand side of a statement."""
    primitive = PRIMITIVES[statement.primitive]
    if primitive.family is Family.ROUNDING:
        (operand,) = operands
        assert isinstance(operand, Operand), "a cast of a number is folded before"
        if statement.dtype is DType.I8:
            return f"{TO_I8}({in_type(operand.name, operand, DType.F32)})"
        whole = _host_number(operand, statement.dtype)
        return f"{operand.name} * 1.0" if whole else f"{operand.name}.to({GLUON[statement.dtype]})"
    if primitive.family is Family.GROUPED:
        tile, *group = operands
        assert isinstance(tile, Operand), "neighbours are of a tile's rows"
        if not group:
            return f"{RUNNING_SUMS}({in_type(tile.name, tile, DType.F32)})"
        return f"{LARGEST_OF_GROUPS}({tile.name}, {group[0]}, ROWS_LAYOUT)"
    if statement.primitive in _PLACES:
        return _PLACES[statement.primitive]
    if primitive.family is Family.INDEX:  # along the accumulator's rows or columns
        return "rows" if Role(statement.primitive.removeprefix("iota_")) is row_role(s.swap) else "columns"
    wanted = _compute_type(statement, operands)
    if statement.dtype in NARROW_TYPES:
        return _narrow(statement, operands, s)
    texts = [
        in_type(broadcast(o, statement.spans, s), o, wanted) if isinstance(o, Operand) else number(o)
        for o in operands
    ]
    return primitive.in_gluon(*texts, f32=wanted is DType.F32)


def _narrow(statement: Statement, operands: list[Operand | Scalar], s: Structure) -> str:
    """A statement of two numbers of 16 bits, two elements an instruction."""
    tile = next(o for o in operands if isinstance(o, Operand) and o.spans == statement.spans)
    texts = [
        in_type(broadcast(o, statement.spans, s), o, statement.dtype)
        if isinstance(o, Operand)
        else f"gl.full_like({in_type(tile.name, tile, statement.dtype)}, {number(o)})"
        for o in operands
    ]
    return f"{narrow_name(statement.primitive, statement.dtype)}({', '.join(texts)})"


def helpers(item: Statement) -> set[str]:
    """The kernel's own functions and constants that a statement's text names."""
    if item.dtype in NARROW_TYPES and PRIMITIVES[item.primitive].family is not Family.ROUNDING:
        return {narrow_name(item.primitive, item.dtype)}
    if PRIMITIVES[item.primitive].family is Family.GROUPED:
        return {RUNNING_SUMS} if len(item.args) == 1 else {LARGEST_OF_GROUPS, LARGER, "tl"}
    if PRIMITIVES[item.primitive].family is Family.ROUNDING and item.dtype is DType.I8:
        return {TO_I8}
    infinite = {number(a) for a in item.args if isinstance(a, float) and math.isinf(a)}
    return infinite | {PRIMITIVES[item.primitive].helper} - {""}
