"""The loads of vectors and scalars by address.

Threads load them element by element, for nothing says that they begin with a multiple of 16 bytes.
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
    end = "column_extent" if plan.columns else "ROW_LENGTH"
    along = f"columns < {end}" if ragged and Role.COLUMN in spans else ""
    inside = "rows < row_extent" if Role.ROW in spans else along
    return load_text(plan.vectors[name], plan.place("rows", "columns"), inside)
