"""Lazy rescaling in the text of a loop: rows that keep their maximum, and sums that are left as they are.

Behind a row's new factor stands what keeps the old maximum where that factor is hardly less than 1: the factor is 1
then, and the row's values that depend on the maximum are computed again. Sums are multiplied where some row of the
tile has moved, which all threads have to agree on: a branch is a warpgroup's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from wsopt.emit.instructions import when
from wsopt.emit.operations import Operations
from wsopt.program.program import TileOp
from wsopt.tensors.statements import BEFORE


def kept(operations: Operations, op: TileOp, *, masked: bool) -> Iterator[str]:
    """Lines behind the operation that computes the factor of a lazy loop; none behind others."""
    rows, plan = operations.plan.program.lazy, operations.plan
    if rows is None or rows.factor not in op.makes:
        return
    maximum, factor = plan.value(rows.maximum), plan.value(rows.factor)
    stays = plan.names(f"stays:{rows.factor}", f"{factor}stays")
    yield f"{stays} = {factor} >= KEPT"
    yield f"{maximum} = gl.where({stays}, {plan.value(rows.maximum + BEFORE)}, {maximum})"
    yield from operations.writer.phase(rows.again, lambda _: 0, masked=masked)
    yield f"{factor} = gl.where({stays}, 1.0, {factor})"


def where_moved(factor: str, lines: Iterable[str]) -> str:
    """Lines for where the factor of some row is not 1."""
    return when(f"gl.min({factor}, axis=0) < 1.0", "\n".join(lines))
