"""The loads of vectors and scalars by address.

Threads load them element by element where a pointer is no multiple of 16 bytes, which the compiler is told at a first
call, and where a mask may end between two neighbours.
"""

from __future__ import annotations

from wsopt.emit.addresses import ByAddress
from wsopt.emit.plan import KernelPlan
from wsopt.emit.tensors import GLUON, zero
from wsopt.graph.types import DType
from wsopt.tensors.views import Role, Source, View


def widened(view: View) -> str:
    """The conversion of a tensor's elements to that type, as text behind them; bools are bytes in memory."""
    if view.dtype is DType.BOOL:
        return ".to(gl.int1)"
    return f".to({GLUON[DType.F32]})" if view.dtype.is_float and view.dtype is not DType.F32 else ""


def load_text(vector: ByAddress[Source], index: dict[Role, str], inside: str) -> str:
    """The load of a vector or scalar by address, in the type that is computed with; masked where not `inside`."""
    view = vector.of.view
    mask = f", mask={inside}, other={zero(view.dtype)}" if inside else ""
    return f"gl.load({vector.at(index)}{mask}){widened(view)}"


def load(plan: KernelPlan, name: str) -> str:
    """The load of a vector or scalar for a tile that is an iteration, of what the tensor has."""
    spans = plan.vectors[name].of.spans
    ragged = plan.columns or plan.program.whole.extent(Role.COLUMN) != plan.s.columns
    along = _before_end(plan) if ragged and Role.COLUMN in spans else ""
    inside = "rows < row_extent" if Role.ROW in spans else along
    return load_text(plan.vectors[name], plan.place("rows", "columns"), inside)


def _before_end(plan: KernelPlan) -> str:
    """The condition that columns are a tensor's. Where there are only whole runs of what a thread loads at a time it
    is told of those: else Triton loads element by element.
    """
    end, whole = "column_extent" if plan.columns else "ROW_LENGTH", plan.column_multiple
    return f"columns // {whole} < {end} // {whole}" if plan.columns and whole > 1 else f"columns < {end}"
