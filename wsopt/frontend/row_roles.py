"""Roles of the axes of a graph without products whose rows are reduced.

The reduced axis is the column axis of every tile, and the others are rows and batches. Where the reduced axis has its
elements next to each other, the innermost of the others is the rows; else the one that has.
"""

from __future__ import annotations

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.frontend.axes import Axes, Dim, RawView
from wsopt.frontend.joining import join_outputs, join_uses, one_axis
from wsopt.frontend.kinds import VIEWS, Kind, depending, input_path, producer, reduces_rows
from wsopt.frontend.over_rows import check_over_rows, over_rows
from wsopt.graph.types import Graph
from wsopt.tensors.views import Role, pow2

MOST_HELD, MOST_HELD_BYTES = 1 << 15, 200 << 10
"""Elements of a row that a consumer has in registers at most, and bytes of it that a block has in shared memory: of
all tensors, those that go out among them.
"""

MOST_COMPARED = MOST_HELD // 2
"""Elements of a row that a consumer compares with their largest: it has them in f32 until then, which spills above.
Longer ones can run on from part to part, in one pass.
"""

MOST_COMPUTED = MOST_HELD // 2
"""Elements of a row that is computed of vectors alone: blocks of one tile hold them, several of which an SM has."""

OUTER_ROWS = 16
"""Rows of a tile at least where neighbours in memory are of different rows: of 16-bit elements a sector of L2."""


def assign_rows(axes: Axes, *, held: bool = True) -> None:
    """Give the axes of a graph without products their roles: columns are reduced, the rest are rows, which may be
    `held` whole.

    What is reduced is bound by its reduction, so axes of one extent count as one, if no tensor has both; and so
    do they and an axis that is stored. Raises LoweringError for reductions along different axes.
    """
    join_uses(axes)
    join_outputs(axes)
    found, further = _reduced_axes(axes)
    over = () if further else over_rows(axes, found)
    alone = bool(over) and {*over} == {*found}
    found = {axis: node for axis, node in found.items() if axis not in over} or _column_of(axes, found, over)
    reducing = " and ".join(found.values())
    if not one_axis(axes, list(found)):
        raise LoweringError(
            f"nodes {reducing} reduce different axes; a kernel holds one axis whole: where the axes are neighbours, "
            "declare them as one"
        )
    stored = [atom for name in axes.graph.outputs for atom in reversed(axes.all_atoms(name))]
    whole = [axis for axis in stored if not further and one_axis(axes, [*found, axis])]
    axes.same.union(*found, *whole[:1])
    axes.same.union(*over)
    columns = (*(axes.same[axis] for axis in further), axes.same[next(iter(found))])
    outer = _outer_axes(axes, over, columns)
    others = [axis for axis in outer if axes.extents[axis] > 1]
    others = others or [_one_row(axes, next(iter(found.values())))]
    row = next((axis for axis in _nearest(axes, columns[-1]) if axis in others), others[-1])
    if over:
        check_over_rows(axes, over, others)
    batches = [axis for axis in others if axis != row]
    axes.roles = {
        **dict.fromkeys(columns, Role.COLUMN), row: Role.ROW, **dict.fromkeys(batches, Role.BATCH)
    }  # fmt: skip
    axes.singles = [axis for axis in outer if axes.extents[axis] == 1 and axis != row]
    axes.kind = Kind.ROWS if alone or (held and _is_held(axes)) else Kind.LONG_ROWS
    if over and axes.kind is Kind.LONG_ROWS:
        raise LoweringError(
            f"nodes {reducing} reduce rows that no SM holds, and others sum up columns over the "
            f"rows; a kernel carries sums over rows that it holds: {remedies.OWN_GRAPH}"
        )


def _outer_axes(axes: Axes, over: tuple[Dim, ...], columns: tuple[Dim, ...]) -> list[Dim]:
    """The axes that are no columns: those that sums go `over`, then outer ones first, also those of one element."""
    # Views of inputs have axes under the names of their uses.
    own = (n for n in axes.graph.nodes if not (n.op in VIEWS and input_path(axes.graph, n.name)))
    nodes = sorted(own, key=lambda node: -node.type.rank)
    atoms = (atom for node in nodes for atom in axes.all_atoms(node.name))
    seen = dict.fromkeys([*(axes.same[axis] for axis in over), *atoms])
    return [axis for axis in seen if axis not in columns]


def _reduced_axes(axes: Axes) -> tuple[dict[Dim, str], tuple[Dim, ...]]:
    """The axes that a graph reduces, each with the first node that does; of one that a reshape made of several the
    innermost, and the others. Raises LoweringError where not all reductions are along those.
    """
    found: dict[Dim, str] = {}
    merged: dict[tuple[Dim, ...], str] = {}
    for node in axes.graph.nodes:
        if reduces_rows(node):
            *outer, inner = axes.atoms(*axes.reduced(node))
            merged.setdefault((*outer, inner), node.name)
            found.setdefault(inner, node.name)
    longest = max(merged, key=len)
    if len(longest) > 1 < len(merged):
        raise LoweringError(
            f"nodes {' and '.join(merged.values())} reduce different axes, one of them of those that a reshape "
            f"merges; a kernel holds one axis whole: {remedies.OWN_GRAPH}"
        )
    return found, longest[:-1]


def _column_of(axes: Axes, found: dict[Dim, str], over: tuple[Dim, ...]) -> dict[Dim, str]:
    """The other axis of a graph that reduces nothing but its rows, with the node that does."""
    atoms = (atom for use in axes.paths for atom in axes.all_atoms(use) if axes.extents[atom] > 1)
    return dict.fromkeys((atom for atom in atoms if atom not in over), next(iter(found.values())))


def _nearest(axes: Axes, column: Dim) -> list[Dim]:
    """The axes along which inputs that have the reduced one have their elements next to each other."""
    views = [view for view in map(axes.raw_view, axes.paths) if column in {dim.axis for dim in view.dims}]
    full = sorted(views, key=lambda view: -len(view.dims))[:1]
    return [dim.axis for view in full for dim in view.dims if dim.stride == 1 < dim.extent]


def _is_held(axes: Axes) -> bool:
    """Whether an SM holds whole rows: of every tensor that has them one, as long as a power of two.

    Where neighbours in memory are of different rows: `OUTER_ROWS` of them, and none for reductions that can run on;
    those too are of rows that are held where tensors lie both ways.
    """
    of = {role: axis for axis, role in axes.roles.items()}
    column, row = of[Role.COLUMN], of[Role.ROW]
    columns = pow2(axes.extent(Role.COLUMN))
    read, stored = _tiles_of(axes, column, row)
    full, most = [*stored, *read], MOST_HELD if read or axes.extents[row] == 1 else MOST_COMPUTED
    near = {dim.axis for view in full for dim in view.dims if dim.stride == 1 < dim.extent}
    both = {row, column} <= near
    has_to_be = bool(stored) or _depends_on_reductions(axes.graph)
    if both or row in _nearest(axes, column):
        if not (both or has_to_be):
            return False
        columns *= OUTER_ROWS
    places = any(node.op == "reduce_argmax" for node in axes.graph.nodes)
    if places and columns > MOST_COMPARED and not has_to_be:
        return False
    return columns <= most and columns * sum(v.dtype.bits // 8 for v in full) <= MOST_HELD_BYTES


def _tiles_of(axes: Axes, column: Dim, row: Dim) -> tuple[list[RawView], list[RawView]]:
    """The inputs that have both columns and rows, or whose rows indices choose, and the outputs that have both."""
    inputs = {axes.paths[use][-1]: axes.raw_view(use) for use in axes.paths}
    outputs = [axes.raw_view(name) for name in axes.graph.outputs]
    chosen = {axes.paths[f"{node.name}:0"][-1] for node in axes.graph.nodes if node.op == "gather"}

    def is_tile(view: RawView) -> bool:
        return {column, row} <= {dim.axis for dim in view.dims}

    read = [view for view in inputs.values() if is_tile(view) or view.tensor in chosen]
    return read, [view for view in outputs if all(dim.each == 1 for dim in view.dims) and is_tile(view)]


def _depends_on_reductions(graph: Graph) -> bool:
    """Whether a reduction needs the result of another one of its row."""
    after = depending(graph.nodes, reduces_rows)
    return any(
        reduces_rows(node) and (not node.op.startswith("reduce_") or node.tensors[0] in after)
        for node in graph.nodes
    )


def _one_row(axes: Axes, reduction: str) -> Dim:
    """The row axis of a graph that has a single row: one of one element before what is reduced, along which there may
    be more at run time, or else one that no tensor has.
    """
    node = producer(axes.graph, reduction)
    use, dim = axes.reduced(node)
    before = [atom for outer in range(dim) for atom in axes.atoms(use, outer)]
    return before[-1] if before else axes.add_one_row()
