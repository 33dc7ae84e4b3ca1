"""Roles of the axes of a chain of products: the second product's contracted axis streams.

Which of the graph's matmuls stand in the loop, and where, follows from what they read; everything else that
a kernel could not hold or has no second loop for is refused here.
"""

from __future__ import annotations

import math

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.frontend.axes import Dim, matmul_dims
from wsopt.frontend.loop_axes import LoopAxes, input_path, relate_axes
from wsopt.graph.needed import live_nodes
from wsopt.graph.types import DType, Graph, Node
from wsopt.tensors.views import K_BLOCK, Role

MAX_HEAD = 256
"""Elements of the axes that a block holds whole: the widest tensor instruction, and the largest TMA box."""

_OPERANDS = (DType.F16, DType.BF16)


def _follows_product(graph: Graph, live: tuple[Node, ...]) -> frozenset[str]:
    """The nodes that depend on a matmul, and the matmuls."""
    found: set[str] = set()
    for node in live:
        if node.op == "matmul" or found & set(node.tensors):
            found.add(node.name)
    return frozenset(found)


def chained_products(graph: Graph) -> tuple[str, ...]:
    """Matmuls with an operand that other matmuls feed: the loop sums them up."""
    live = live_nodes(graph)
    follows = _follows_product(graph, live)
    return tuple(
        node.name
        for node in live
        if node.op == "matmul"
        and node.inputs[0] in follows
        and isinstance(node.inputs[1], str)
        and input_path(graph, node.inputs[1]) is not None
    )


def assign_role(axes: LoopAxes, node: Node, use: str, dim: int, role: Role) -> None:
    """Give a dimension's innermost atom a role; outer ones, which a reshape merged in, are batches."""
    *outer, inner = axes.atoms(use, dim)
    if outer and role is not Role.ROW:
        raise LoweringError(
            f"node {node.name}: a reshape splits or merges the {role} axis "
            f"(dimension {dim % len(axes.shapes[use])} of {axes.title(use)})"
        )
    for atom in outer:
        _set_role(axes, node, use, dim, atom, Role.BATCH)
    _set_role(axes, node, use, dim, inner, role)


def _set_role(axes: LoopAxes, node: Node, use: str, dim: int, atom: Dim, role: Role) -> None:
    known = axes.roles.setdefault(atom, role)
    if known is not role:
        raise LoweringError(
            f"node {node.name}: an axis would be both a {known} and a {role} axis of one kernel "
            f"(dimension {dim % len(axes.shapes[use])} of {axes.title(use)}); "
            "products that exchange axes are not fused"
        )
    if role is Role.BATCH and atom not in axes.batches:
        axes.batches.append(atom)


def assign_batches(axes: LoopAxes, node: Node) -> None:
    """Make batches of the axes before a product's rows and columns."""
    for dim in range(node.type.rank - 2):
        for atom in axes.atoms(node.name, dim):
            if axes.extents[atom] > 1:
                _set_role(axes, node, node.name, dim, atom, Role.BATCH)
            else:
                axes.singles.append(atom)


def _assign_last(axes: LoopAxes, node: Node) -> None:
    _, right = matmul_dims(node)
    assign_batches(axes, node)
    assign_role(axes, node, axes.use(node, 1), right[1], Role.STREAM)
    assign_role(axes, node, node.name, -2, Role.ROW)
    assign_role(axes, node, axes.use(node, 1), right[0], Role.COLUMN)
    _check_held(axes, node, axes.use(node, 1), right[0], "is a column axis, which a block holds whole")


def _assign_first(axes: LoopAxes, node: Node) -> None:
    assign_batches(axes, node)
    left, _ = matmul_dims(node)
    assign_role(axes, node, axes.use(node, 0), left[1], Role.INNER)
    _check_held(axes, node, axes.use(node, 0), left[1], "is contracted whole in every step of the loop")
    roles = {role for dim in (-2, -1) for role in axes.axis_roles(node.name, dim)[-1:]}
    if roles != K_BLOCK:
        raise LoweringError(
            f"node {node.name}: its rows and columns are not the rows and the streamed axis of the product "
            "that it feeds; such a product cannot be computed K-block by K-block"
        )


def _check_held(axes: LoopAxes, node: Node, use: str, dim: int, what: str) -> None:
    extent = axes.shapes[use][dim]
    if extent > MAX_HEAD:
        raise LoweringError(
            f"node {node.name}: dimension {dim % len(axes.shapes[use])} of {axes.title(use)} "
            f"(extent {extent}) {what}: at most {MAX_HEAD} elements"
        )


def _check_operand(axes: LoopAxes, node: Node, operand: int, *, last: bool) -> None:
    dtype = axes.graph.type_of(node.tensors[operand]).dtype
    if dtype not in _OPERANDS:
        raise LoweringError(
            f"node {node.name}: operands of {dtype.value} are not lowered in a chain of products; "
            f"{remedies.operand_type(_OPERANDS)}"
        )
    if f"{node.name}:{operand}" in axes.paths or (last and operand == 0):
        return
    producer = axes.graph.producer(node.tensors[operand])
    assert producer is not None, "what is no use of an input is computed"
    raise LoweringError(
        f"node {node.name}: operand {operand} of the matmul is computed by {producer.op} node "
        f"{producer.name}; it has to be an input of the graph (or a reshape or transpose of one): "
        f"{remedies.computed_operand(axes.graph, producer.name)}"
    )


def _check_depth(axes: LoopAxes, last: tuple[str, ...]) -> None:
    """Refuse a product of a sum over the streamed axis: it would need the loop's result."""
    behind: dict[str, str] = {}
    for node in axes.live:
        found = next((behind[name] for name in node.tensors if name in behind), None)
        if node.op == "matmul" and found is not None:
            raise LoweringError(
                f"node {node.name}: an operand depends on {found}, which is complete only after the loop; "
                f"a kernel has one loop: {remedies.computed_before(_products_behind(axes, found))}"
            )
        if node.name in last:
            behind[node.name] = node.name
        elif found is not None:
            behind[node.name] = found


def _products_behind(axes: LoopAxes, name: str) -> list[str]:
    """The products that a node depends on."""
    wanted, found = {name}, []
    for node in reversed(axes.live):
        if node.name in wanted:
            wanted.update(node.tensors)
            if node.op == "matmul" and node.name != name:
                found.append(node.name)
    return found[::-1]


def chain_axes(graph: Graph) -> LoopAxes:
    """The axes of a graph with a chain of products, with their roles.

    Raises LoweringError for operands that are computed otherwise, and for axes that would need two roles.
    """
    axes = relate_axes(graph)
    last = chained_products(graph)
    matmuls = [node for node in axes.live if node.op == "matmul"]
    _check_depth(axes, last)
    for node in matmuls:
        for operand in (0, 1):
            _check_operand(axes, node, operand, last=node.name in last)
    streams = [axes.atoms(axes.use(n, 1), matmul_dims(n)[1][1]) for n in matmuls if n.name in last]
    if len(set(streams)) > 1:
        raise LoweringError(
            f"matmuls {', '.join(last)} do not share their streamed axis; a kernel has one: {remedies.OWN_GRAPH}"
        )
    firsts = [node for node in matmuls if node.name not in last]
    _check_fed(axes, firsts, last)
    check_equal(axes, [node for node in matmuls if node.name in last], MAX_HEAD)
    _join_inner(axes, firsts)
    for node in matmuls:
        if node.name in last:
            _assign_last(axes, node)
    for node in matmuls:
        if node.name not in last:
            _assign_first(axes, node)
    return axes


def check_equal(axes: LoopAxes, products: list[Node], most: float = math.inf) -> None:
    """Refuse products that differ in their number of rows or columns: a kernel has one tile for all of them.

    `most` are the columns that one product instead of them may have.
    """
    names = ", ".join(node.name for node in products)
    for dim, what in ((-2, "rows"), (-1, "columns")):
        counts = [node.type.shape[dim] for node in products]
        if len(set(counts)) == 1:
            continue
        remedy = "compile each as a graph of its own"
        right = list(dict.fromkeys(axes.title(axes.use(node, 1)) for node in products))
        shared = len({node.inputs[0] for node in products}) == 1 < len(right)
        if what == "columns" and shared and sum(counts) <= most:
            remedy += f", or put {', '.join(right)} into one tensor, for one matmul with all their columns"
        raise LoweringError(
            f"matmuls {names} have {', '.join(map(str, counts))} {what}, and the products of one kernel have equally "
            f"many; {remedy}"
        )


def _check_fed(axes: LoopAxes, firsts: list[Node], last: tuple[str, ...]) -> None:
    """Refuse a product that no product of the loop reads."""
    wanted: set[str] = set()
    for node in reversed(axes.live):
        if node.name in last:
            wanted.update(node.tensors[:1])
        elif node.name in wanted:
            wanted.update(node.tensors)
    for node in firsts:
        if node.name not in wanted:
            raise LoweringError(
                f"node {node.name}: it feeds none of the products {', '.join(last)}, and has not their loop; "
                f"a kernel has one: {remedies.computed_before([node.name])}"
            )


def _join_inner(axes: LoopAxes, firsts: list[Node]) -> None:
    """Products over equally long inner axes hold the same extent, so their axes may count as one."""
    inner = [axes.atoms(axes.use(n, 0), matmul_dims(n)[0][1]) for n in firsts]
    if len({tuple(axes.extents[a] for a in atoms) for atoms in inner}) > 1:
        names = ", ".join(n.name for n in firsts)
        raise LoweringError(f"matmuls {names} contract axes of different extents; a kernel holds one")
    for atoms in inner[1:]:
        for a, b in zip(inner[0], atoms, strict=True):
            axes.joined.union(a, b)
