"""Roles of the axes: a product streams along the axis that it contracts, and its result has rows and columns.

Without a product `row_roles.py` says which axis is which, and where nothing is reduced either, `elementwise.py`.
Which of the graph's matmuls stand in the loop, and where, follows from what they read; everything else that
a kernel could not hold or has no second loop for is refused here.
"""

from __future__ import annotations

import contextlib
import math

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.frontend.apart import taken_apart
from wsopt.frontend.axes import Axes, Dim
from wsopt.frontend.elementwise import assign_elementwise
from wsopt.frontend.equal_parts import with_equal_parts
from wsopt.frontend.joining import one_axis
from wsopt.frontend.kinds import (
    MAX_HEAD,
    Kind,
    chained_products,
    computed_side,
    feeding,
    is_matmul,
    kind_of,
    matmul_dims,
    paged,
)
from wsopt.frontend.pages import check_pages, own_gathers
from wsopt.frontend.refused_nodes import check_nodes, check_operands
from wsopt.frontend.relations import relate_axes
from wsopt.frontend.results import check_elementwise, check_width, columns_apart
from wsopt.frontend.row_roles import assign_rows
from wsopt.frontend.segments import assign_segments
from wsopt.frontend.several_axes import with_joined_reductions
from wsopt.frontend.short_axes import with_short_axes
from wsopt.frontend.slices import with_sliced_inputs
from wsopt.frontend.steps import with_steps_as_axes
from wsopt.frontend.turned_pairs import with_turned_pairs
from wsopt.frontend.turned_products import with_turned_products
from wsopt.frontend.widened import with_bare_operands
from wsopt.graph.types import Graph, Node
from wsopt.tensors.views import K_BLOCK, Role


def _assign_role(axes: Axes, node: Node, use: str, dim: int, role: Role) -> None:
    """Give a dimension's innermost atom a role; outer ones, which a reshape merged in, are batches."""
    atoms, place = axes.atoms(use, dim), f"(dimension {dim % len(axes.shapes[use])} of {axes.title(use)})"
    whole = axes.kind.plain and role in (Role.COLUMN, Role.STREAM)  # if they lie together, which merging sees
    whole |= role is Role.STREAM and bool(paged(axes.graph))
    apart = role is Role.COLUMN and columns_apart(axes, atoms)
    if apart:
        check_width(axes, node, atoms[-1])
    whole &= not apart
    if len(atoms) > 1 and role not in (Role.BATCH, Role.ROW) and not (whole or apart):
        raise LoweringError(f"node {node.name}: a reshape splits or merges the {role} axis {place}")
    for atom, wanted in zip(atoms, [role if whole else Role.BATCH] * (len(atoms) - 1) + [role], strict=True):
        known = axes.roles.setdefault(atom, wanted)
        if known is not wanted:
            raise LoweringError(
                f"node {node.name}: an axis would be both a {known} and a {wanted} axis of one kernel {place}; "
                "products that exchange axes are not fused"
            )


def _assign_batches(axes: Axes, node: Node) -> None:
    """Make batches of the axes before a product's rows and columns."""
    for dim, extent in enumerate(node.type.shape[:-2]):
        if extent > 1:
            _assign_role(axes, node, node.name, dim, Role.BATCH)
        else:
            axes.singles.extend(axes.atoms(node.name, dim))


def _assign_sum(axes: Axes, node: Node) -> None:
    """Roles of the axes of a product that is summed over the streamed axis."""
    _assign_batches(axes, node)
    _assign_role(axes, node, axes.use(node, 1), matmul_dims(node)[1][1], Role.STREAM)
    _assign_role(axes, node, node.name, -2, Role.COLUMN if axes.exchanged else Role.ROW)
    _assign_role(axes, node, node.name, -1, Role.ROW if axes.exchanged else Role.COLUMN)


def _check_held(axes: Axes, node: Node, use: str, dim: int, what: str) -> None:
    extent = axes.shapes[use][dim]
    if extent > MAX_HEAD:
        raise LoweringError(
            f"node {node.name}: dimension {dim % len(axes.shapes[use])} of {axes.title(use)} "
            f"(extent {extent}) {what}: at most {MAX_HEAD} elements"
        )


def _check_chain(axes: Axes, firsts: list[Node], last: list[Node]) -> None:
    """Refuse products that one loop does not hold.

    A product of a sum over the streamed axis would need the loop's result, one that no sum reads another loop.
    """
    matmuls = [node for node in axes.graph.nodes if is_matmul(node)]
    for node in matmuls:
        below = feeding(axes.graph.nodes, node.tensors)
        found = next((name for name in axes.sums if name in below), None)
        if found is not None:
            wanted = feeding(axes.graph.nodes, [found]) - {found}
            before = [one.name for one in matmuls if one.name in wanted]
            raise LoweringError(
                f"node {node.name}: an operand depends on {found}, which is complete only after the loop; "
                f"a kernel has one loop: {remedies.computed_before(before)}"
            )
    if len({_contracted(axes, node) for node in last}) > 1:
        raise LoweringError(
            f"matmuls {', '.join(axes.sums)} do not share their streamed axis; a kernel has one: {remedies.OWN_GRAPH}"
        )
    wanted = feeding(axes.graph.nodes, [node.tensors[0] for node in last])
    for node in firsts:
        if node.name not in wanted:
            raise LoweringError(
                f"node {node.name}: it feeds none of the products {', '.join(axes.sums)}, and has not their loop; "
                f"a kernel has one: {remedies.computed_before([node.name])}"
            )


def _check_equal(axes: Axes, products: list[Node], most: float = math.inf) -> None:
    """Refuse products that differ in their number of rows or columns: a kernel has one tile for all of them.

    `most` are the columns that one product instead of them may have.
    """
    names = ", ".join(node.name for node in products)
    right = list(dict.fromkeys(axes.title(axes.use(node, 1)) for node in products))
    shared = len({node.inputs[0] for node in products}) == 1 < len(right)
    for dim, what in ((-2, "rows"), (-1, "columns")):
        counts = [node.type.shape[dim] for node in products]
        remedy = "compile each as a graph of its own"
        if what == "columns" and shared and sum(counts) <= most:
            remedy += f", or put {', '.join(right)} into one tensor, for one matmul with all their columns"
        if len(set(counts)) > 1:
            raise LoweringError(
                f"matmuls {names} have {', '.join(map(str, counts))} {what}, and the products of one kernel have "
                f"equally many; {remedy}"
            )


def _assign_chain(axes: Axes, matmuls: list[Node]) -> None:
    """Roles of the axes of products that feed products."""
    last = [node for node in matmuls if node.name in axes.sums]
    firsts = [node for node in matmuls if node.name not in axes.sums]
    _check_chain(axes, firsts, last)
    _check_equal(axes, last, MAX_HEAD)
    names = ", ".join(node.name for node in firsts)
    _join(axes, firsts, f"matmuls {names} contract axes of different extents; a kernel holds one")
    for node in last:
        _assign_sum(axes, node)
        use, dim = axes.use(node, 1), matmul_dims(node)[1][0]
        _check_held(axes, node, use, dim, "is a column axis, which a block holds whole")
    for node in firsts:
        use, dim = axes.use(node, 0), matmul_dims(node)[0][1]
        _assign_batches(axes, node)
        _assign_role(axes, node, use, dim, Role.INNER)
        _check_held(axes, node, use, dim, "is contracted whole in every step of the loop")
        if {axes.roles.get(axes.atoms(node.name, dim)[-1]) for dim in (-2, -1)} != K_BLOCK:
            raise LoweringError(
                f"node {node.name}: its rows and columns are not the rows and the streamed axis of the product "
                "that it feeds; such a product cannot be computed K-block by K-block"
            )


def _check_zeros_around(axes: Axes) -> None:
    """Refuse zeros before or behind rows and what streams: no loop with values begins or ends with them."""
    for whole, (axis, start) in axes.slices.items():
        (own, *_), count = axes.leaves(axis), axes.extents[axes.same[whole]]
        inside = 0 <= start <= count - axes.extents[own]
        if not inside and axes.roles.get(own) in (Role.ROW, Role.STREAM):
            use = axis[0].rpartition("/")[2]
            name = axes.paths[use][0] if use in axes.paths else use
            raise LoweringError(
                f"node {name}: zeros around its {axes.roles[own]} axis are not lowered in a loop that computes "
                f"values; {remedies.computed_before([name])}"
            )


# --- products that share a loop -------------------------------------------------------------------------


def _assign_products(axes: Axes, matmuls: list[Node]) -> None:
    """Roles of the axes of products that no product feeds."""
    if axes.kind.plain and len({axes.graph.type_of(n.tensors[0]).dtype for n in matmuls}) > 1:
        raise LoweringError(
            f"matmuls {', '.join(axes.sums)} have operands of different types; one kernel takes one: "
            f"{remedies.OWN_GRAPH}"
        )
    _join(axes, matmuls, _apart(axes, matmuls, "streamed"))
    if axes.kind.plain:
        _join_results(axes, matmuls)
    for node in matmuls:
        _assign_sum(axes, node)
    if axes.kind.plain:
        # Of rows that a reshape has parted, or merged, the outer parts are batches, whichever dimension they are in.
        for what, dim, parts in (("row", -2, slice(-1, None)), ("column", -1, slice(None))):
            if len({axes.atoms(node.name, dim)[parts] for node in matmuls}) > 1:
                raise LoweringError(_apart(axes, matmuls, what))
    else:  # rows of joined products would be other rows
        _check_equal(axes, matmuls, 0 if axes.kind is Kind.REDUCED else math.inf)
    if axes.kind is Kind.SCALED:
        _join_bound(axes)


def _join(axes: Axes, matmuls: list[Node], refusal: str) -> None:
    """Make one of the axes that products contract. Raises LoweringError with the refusal if extents differ."""
    found = [_contracted(axes, node) for node in matmuls]
    if len({tuple(axes.extents[a] for a in atoms) for atoms in found}) > 1:
        raise LoweringError(refusal)
    for same in zip(*found, strict=True):
        axes.same.union(*same)


def _join_results(axes: Axes, matmuls: list[Node]) -> None:
    """Make one the axes of products of one left operand that have one shape, whether or not anything combines them:
    a tile of each lies at the same place, and what they multiply is read once.
    """
    first, *others = matmuls
    for node in others:
        if node.tensors[0] != first.tensors[0] or node.type.shape != first.type.shape:
            continue
        for dim in range(node.type.rank):
            pairs = zip(axes.atoms(first.name, dim), axes.atoms(node.name, dim), strict=False)
            for one, other in pairs:
                if one != other and one_axis(axes, (one, other)):
                    axes.same.union(one, other)


def _contracted(axes: Axes, node: Node) -> tuple[Dim, ...]:
    """The atoms of the axis that a product contracts."""
    return axes.atoms(axes.use(node, 1), matmul_dims(node)[1][1])


def _apart(axes: Axes, matmuls: list[Node], what: str) -> str:
    """Reason why products cannot be one kernel, with the remedy where they share a tensor."""
    names = ", ".join(axes.sums)
    left, right = (
        {axes.paths[use][-1] for node in matmuls if (use := axes.use(node, operand)) in axes.paths}
        for operand in (0, 1)
    )
    if len(left) == 1 < len(right):
        return (
            f"matmuls {names} multiply {left.pop()} by weights of their own, and nothing combines them; put the "
            f"weights ({', '.join(sorted(right))}) into one tensor, for one matmul with all their columns"
        )
    return f"matmuls {names} do not share their {what} axis; they cannot share one loop: {remedies.OWN_GRAPH}"


def _join_bound(axes: Axes) -> None:
    """Unify axes that only a reduction sees with the streamed axis."""
    stream = next(axis for axis, role in axes.roles.items() if role is Role.STREAM)
    reductions = [node for node in axes.graph.nodes if node.op.startswith("reduce_")]
    found = [
        atom for node in reductions for atom in axes.atoms(*axes.reduced(node)) if atom not in axes.roles
    ]
    axes.same.union(stream, *(atom for atom in found if one_axis(axes, [stream, atom])))
    axes.roles[axes.same[stream]] = axes.roles.pop(stream)


# --- a graph's axes -------------------------------------------------------------------------------------


def graph_axes(graph: Graph, *, held: bool = True) -> Axes:
    """The axes of a graph of which every node is needed, with their roles. Unless they may be `held`, rows are read
    in parts, however long they are.

    Raises LoweringError for products and reductions that do not make one loop, and for axes with two roles.
    """
    for write in (with_short_axes, with_turned_pairs):
        if (written := write(graph)) is not graph:
            # A slice of what a reshape has parted may lie where no kernel reads it: the axis is reduced, or
            # turned, then.
            with contextlib.suppress(LoweringError):
                return _axes_as_written(written, held=held)
    return _axes_as_written(graph, held=held)


def _axes_as_written(graph: Graph, *, held: bool) -> Axes:
    """The axes of a graph in which reductions are what they are written as."""
    graph = with_equal_parts(with_turned_products(taken_apart(graph)))
    graph = with_steps_as_axes(with_sliced_inputs(graph))
    graph = with_joined_reductions(with_bare_operands(graph))
    kind, graph = kind_of(graph), own_gathers(graph)
    matmuls = [node for node in graph.nodes if is_matmul(node)]
    check_nodes(graph, kind)
    sums = chained_products(graph) if kind is Kind.CHAIN else tuple(node.name for node in matmuls)
    computed = computed_side(graph, matmuls) if kind is Kind.COMPUTED else None
    check_operands(graph, kind, matmuls, sums if kind in (Kind.CHAIN, Kind.SCALED) else (), computed)
    if kind.plain:
        check_elementwise(graph, kind)
    axes = relate_axes(graph, kind, sums)
    axes.exchanged = computed == 1
    if kind is Kind.ROWS:
        assign_rows(axes, held=held)
    elif kind is Kind.ELEMENTWISE:
        assign_elementwise(axes)
    elif kind is Kind.CHAIN:
        _assign_chain(axes, matmuls)
        _check_zeros_around(axes)
        check_pages(axes)
    else:
        _assign_products(axes, matmuls)
        assign_segments(axes)
    return axes
