"""The loads of vectors and scalars by address.

Threads load them element by element where a pointer is no multiple of 16 bytes, which the compiler is told at a first
call, and where a mask may end between two neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wsopt.emit import flat, turning
from wsopt.emit.addresses import ByAddress, places_name
from wsopt.emit.expressions import number
from wsopt.emit.plan import KernelPlan
from wsopt.emit.recipe_views import left_out
from wsopt.emit.retained import PART_COLUMN
from wsopt.emit.tensors import GLUON, zero
from wsopt.graph.types import DType
from wsopt.tensors.views import FULL, Chosen, Role, Source, View


def halves_read(plan: KernelPlan) -> frozenset[View]:
    """The halves of tensors' pairs that threads read, each pair once."""
    views = (one.of.view for one in plan.vectors.values() if one.of.is_tile)
    return frozenset(view for view in views if view.step > 1)


def widened(view: View) -> str:
    """The conversion of a tensor's elements, as text behind a load, to the type that is computed with: f32 for
    floats, bool for bools, which are bytes in memory; whole numbers stay as they are.
    """
    if view.dtype is DType.BOOL:
        return ".to(gl.int1)"
    return f".to({GLUON[DType.F32]})" if view.dtype.is_float and view.dtype is not DType.F32 else ""


def load_text(vector: ByAddress[Source], index: dict[Role, str], inside: str) -> str:
    """The load of a vector or scalar by address, in the type that is computed with; masked where not `inside`."""
    return _as_it_is(vector, index, inside) + widened(vector.of.view)


def _as_it_is(vector: ByAddress[Source], index: dict[Role, str], inside: str) -> str:
    """The load of a vector or scalar by address, in the tensor's own type; masked where not `inside`."""
    mask = f", mask={inside}, other={zero(vector.of.view.dtype)}" if inside else ""
    return f"gl.load({vector.at(index)}{mask})"


def load(plan: KernelPlan, name: str, beyond: float = 0.0, *, rows: str = "rows") -> str:
    """The load of a vector, a scalar or a whole tile by address, for a tile that is an iteration, in the type that is
    computed with. Elements outside of the tensor are zeros, or for a tile the number `beyond`. The numbers of a
    vector's `rows` may be called otherwise.
    """
    return load_as_it_is(plan, name, beyond, rows=rows) + widened(plan.vectors[name].of.view)


def load_as_it_is(plan: KernelPlan, name: str, beyond: float = 0.0, *, rows: str = "rows") -> str:
    """The load that `load` gives, in the tensor's own type."""
    vector = plan.vectors[name]
    spans, view = vector.of.spans, vector.of.view
    if spans == FULL:
        return load_tile(plan, vector, beyond=beyond)
    ragged = plan.columns or plan.program.whole.extent(Role.COLUMN) != plan.s.columns
    along = before_end(plan, "columns") if ragged and Role.COLUMN in spans else ""
    inside = [f"{rows} < row_extent" if Role.ROW in spans else along]
    index = plan.place(rows, _shared(vector, "columns"))
    if view.chosen:
        at = _place(plan, view, view.chosen)
        # Beyond 2^31 elements an offset would not fit the type of the indices.
        index |= {Role.ROW: "rows.to(gl.int64)", view.chosen.role: f"{at}.to(gl.int64)"}
        inside = [f"({inside[0]})", *_there(plan, view, at)]
    return _as_it_is(vector, index, " & ".join(inside))


def _shared(vector: ByAddress[Source], columns: str) -> str:
    """The places along the columns of elements that neighbours may share, such as a channel's weight."""
    each = vector.of.view.column_each
    return columns if each == 1 else f"({columns} // {each})"


def chosen_places(plan: KernelPlan, name: str) -> Iterator[str]:
    """The line that loads the places at which threads read a tile, where another tensor chooses them. A row beyond
    the last one has a place before the tensor, as TMA's copies of rows have it.
    """
    view = plan.vectors[name].of.view
    if view.chosen is None:
        return
    places = plan.vectors[view.chosen.source]
    of_rows = ", mask=rows < row_extent, other=-1" if Role.ROW in places.of.view.roles else ""
    index = places.at(plan.place("rows", "columns"))
    yield f"{_place(plan, view, view.chosen)} = gl.load({index}{of_rows})"


def _there(plan: KernelPlan, view: View, at: str) -> list[str]:
    """The conditions that an index which another tensor holds is one of this tensor's places."""
    return [f"({at} >= 0)", f"({at} < {places_name(plan.names, view)})"]


def _place(plan: KernelPlan, view: View, chosen: Chosen) -> str:
    """The name of the places that are loaded, or of the only one."""
    return plan.names(f"place:{chosen.source}", f"{view.tensor}_place")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of rows that threads read: the numbers of its columns, and its first element behind the place at which a
    flat row's pieces begin.
    """

    columns: str
    first: str


THIS_PART = Part("columns", PART_COLUMN)
NEXT_PART = Part("(columns + TILE_COLUMNS)", f"{PART_COLUMN} + TILE_COLUMNS")
"""Behind the row's last part no column is the row's, and nothing is read."""


def load_tile(
    plan: KernelPlan,
    tile: ByAddress[Source],
    part: Part = THIS_PART,
    *,
    beyond: float = 0.0,
    own: str = "",
    each: int = 1,
) -> str:
    """The load by threads of a tile's elements as they are, as far as its rows and columns reach; outside of the
    tensor zeros, or another number `beyond` the ends of a tensor that is read as it lies. The numbers of its rows and
    columns are called that behind `own`; so many elements are counted for `each` column.
    """
    view = tile.of.view
    if view.flat:
        return flat.load(plan, tile, part.first)
    exchanged = turning.is_exchanged(plan, view)
    own = turning.OWN if exchanged else own
    rows, columns = f"gl.expand_dims({own}rows, 1)", f"gl.expand_dims({own}{part.columns}, 0)"
    inside = [f"({rows} < row_extent)", f"({before_end(plan, columns, each)})"]
    for role, extent, cutout in zip(view.roles, view.extents, view.cutouts, strict=False):
        if cutout and not 0 <= cutout[0] <= cutout[2] - extent:
            at = f"{plan.place(rows, columns)[role]} + {cutout[0]}"
            end = f"row_extent + {cutout[2] - extent}" if role in left_out(view) else cutout[2]
            inside.append(f"({at} >= 0) & ({at} < {end})")
    # Beyond 2^31 elements an offset would not fit the type of the indices.
    index = plan.place(f"{rows}.to(gl.int64)", f"{_shared(tile, columns)}.to(gl.int64)")
    if view.chosen:
        name = _place(plan, view, view.chosen)
        at = f"gl.expand_dims({name}, 1)" if view.rows_chosen else name
        inside += _there(plan, view, at)
        index = {**index, view.chosen.role: f"{at}.to(gl.int64)"}
    mask = f"mask={' & '.join(inside)}, other={number(beyond) if beyond else zero(view.dtype)}"
    loaded = f"gl.load({tile.at(index)}, {mask})"
    return turning.read(plan, loaded) if exchanged else loaded


def before_end(plan: KernelPlan, columns: str, each: int = 1) -> str:
    """The condition that columns lie before the end of the tensor's rows, of which so many are counted for `each`.
    Where rows end with a whole run of what a thread loads at a time, the condition is on runs: else Triton would
    load element by element.
    """
    end, whole = "column_extent" if plan.columns else "ROW_LENGTH", plan.column_multiple
    if plan.columns and whole > 1:
        return f"{columns} // {each * whole} < {end} // {whole}"
    return f"{columns} < {each} * {end}" if each > 1 else f"{columns} < {end}"
