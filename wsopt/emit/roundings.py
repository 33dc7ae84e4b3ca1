"""Roundings of a tile's elements that are computed with further, each written as one instruction for two elements.

Where the compiler leaves them single, ptxas moves them up before the end of the product whose sums they round, and
then runs the products one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wsopt.emit.expressions import Operand
from wsopt.graph.types import DType
from wsopt.tensors.statements import Item, Scalar, Statement

ROUNDINGS = {DType.F16: "f16", DType.BF16: "bf16"}
"""The types that are rounded to two elements at a time, with their instruction's name."""


def helper(name: str) -> str:
    """The name of the kernel's function that rounds."""
    return f"round_{name}"


def rounding(item: Statement, operands: Sequence[Operand | Scalar], others: Iterable[Item]) -> str | None:
    """The function that rounds, if a statement rounds a tile of f32 that one of the `others` computes with."""
    name = item.primitive.removeprefix("round_")
    if name not in ROUNDINGS.values() or len(item.spans) < 2:
        return None
    (operand,) = operands
    if not isinstance(operand, Operand) or operand.dtype is not DType.F32:
        return None
    read = any(item.name in other.reads for other in others)
    return helper(name) if read else None
