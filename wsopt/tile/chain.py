"""Graphs in which a product feeds a product: the axes get roles, and the nodes become values.

The second product's contracted axis streams; what stands between the two is computed slab by slab. Nothing
is rewritten here: a maximum is still of the whole axis, and a sum is divided by where the graph says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeVar

from wsopt.errors import LoweringError
from wsopt.graph.ops import OPS, CostClass
from wsopt.graph.types import DType, Graph, Node
from wsopt.tile.algebra import SHORT, simplify, simplify_short
from wsopt.tile.axes import Dim, is_pointwise, live_nodes, matmul_dims
from wsopt.tile.expand import Term
from wsopt.tile.loop_axes import LoopAxes, input_path, is_view, relate_axes
from wsopt.tile.merge import RawView
from wsopt.tile.nodes import SOURCES, narrow_nodes, pointwise
from wsopt.tile.types import SLAB, Role
from wsopt.tile.values import Flow, Pool

T = TypeVar("T")

MAX_HEAD = 256
"""Elements of the axes that a block holds whole: the widest tensor instruction, and the largest TMA box."""

_OPERANDS = (DType.F16, DType.BF16)
_KERNEL_AXES = (Role.ROW, Role.COLUMN, Role.STREAM)


def _follows_product(graph: Graph, live: tuple[Node, ...]) -> frozenset[str]:
    """The nodes that depend on a matmul, and the matmuls."""
    found: set[str] = set()
    for node in live:
        if node.op == "matmul" or found & set(node.tensors):
            found.add(node.name)
    return frozenset(found)


def chained_products(graph: Graph) -> tuple[str, ...]:
    """The matmuls of an input with what other matmuls feed: those that a loop with values sums up."""
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


# --- roles ----------------------------------------------------------------------------------------------


def _assign(axes: LoopAxes, node: Node, use: str, dim: int, role: Role) -> None:
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


def _assign_batches(axes: LoopAxes, node: Node) -> None:
    for dim in range(node.type.rank - 2):
        for atom in axes.atoms(node.name, dim):
            if axes.extents[atom] > 1:
                _set_role(axes, node, node.name, dim, atom, Role.BATCH)


def _assign_last(axes: LoopAxes, node: Node) -> None:
    _, right = matmul_dims(node)
    _assign_batches(axes, node)
    _assign(axes, node, axes.use(node, 1), right[1], Role.STREAM)
    _assign(axes, node, node.name, -2, Role.ROW)
    _assign(axes, node, axes.use(node, 1), right[0], Role.COLUMN)
    _check_held(axes, node, axes.use(node, 1), right[0], "is a column axis, which a block holds whole")


def _assign_first(axes: LoopAxes, node: Node) -> None:
    _assign_batches(axes, node)
    left, _ = matmul_dims(node)
    _assign(axes, node, axes.use(node, 0), left[1], Role.INNER)
    _check_held(axes, node, axes.use(node, 0), left[1], "is contracted whole in every step of the loop")
    roles = {role for dim in (-2, -1) for role in axes.axis_roles(node.name, dim)[-1:]}
    if roles != SLAB:
        raise LoweringError(
            f"node {node.name}: its rows and columns are not the rows and the streamed axis of the product "
            "that it feeds; such a product cannot be computed slab by slab"
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
        allowed = " and ".join(d.value for d in _OPERANDS)
        raise LoweringError(
            f"node {node.name}: operands of {dtype.value} are not lowered in a chain of products; "
            f"{allowed} are"
        )
    if f"{node.name}:{operand}" in axes.paths or (last and operand == 0):
        return
    producer = axes.graph.producer(node.tensors[operand])
    assert producer is not None, "what is no use of an input is computed"
    raise LoweringError(
        f"node {node.name}: operand {operand} of the matmul is computed by {producer.op} node "
        f"{producer.name}; it has to be an input of the graph (or a reshape or transpose of one)"
    )


def _check_depth(axes: LoopAxes, last: tuple[str, ...]) -> None:
    """Refuse a product of what a loop has summed up: it would need the loop's result."""
    behind: dict[str, str] = {}
    for node in axes.live:
        found = next((behind[name] for name in node.tensors if name in behind), None)
        if node.op == "matmul" and found is not None:
            raise LoweringError(
                f"node {node.name}: an operand depends on {found}, which is complete only after the loop; "
                "a kernel has one loop"
            )
        if node.name in last:
            behind[node.name] = node.name
        elif found is not None:
            behind[node.name] = found


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
        raise LoweringError(f"matmuls {', '.join(last)} do not share their streamed axis; a kernel has one")
    firsts = [node for node in matmuls if node.name not in last]
    _check_fed(axes, firsts, last)
    _join_inner(axes, firsts)
    for node in matmuls:
        if node.name in last:
            _assign_last(axes, node)
    for node in matmuls:
        if node.name not in last:
            _assign_first(axes, node)
    return axes


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
                "a kernel has one"
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


# --- values ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Chain:
    """A graph's nodes as values, with the tensors that they read. `raw` is by use of an input."""

    axes: LoopAxes
    last: tuple[str, ...]
    pool: Pool
    values: dict[str, Term] = field(default_factory=dict)
    raw: dict[str, RawView] = field(default_factory=dict)
    spans: dict[str, frozenset[Role]] = field(default_factory=dict)
    narrow: frozenset[str] = frozenset()

    def extent(self, role: Role) -> int:
        """Elements along the axis of a role that one axis has."""
        return next(self.axes.extents[axis] for axis, known in self.axes.roles.items() if known is role)

    @property
    def flow(self) -> Flow:
        """The graph's outputs as values."""
        return Flow(self.pool, tuple(self.values[name] for name in self.axes.graph.outputs))


def _source(chain: Chain, node: Node, operand: int) -> Term:
    """An input that elementwise operations read; one for each tensor and layout."""
    axes, use = chain.axes, f"{node.name}:{operand}"
    view = axes.raw_view(use)
    if view.dtype not in SOURCES:
        raise LoweringError(f"node {node.name}: input {view.tensor} is {view.dtype.value}; not lowered there")
    for axis, extent, origin in zip(view.axes, view.extents, view.origin, strict=True):
        if extent > 1 and axes.roles.get(axis) in (None, Role.INNER):
            raise LoweringError(
                f"node {node.name}: axis {origin} of {view.tensor} is no axis of what is computed with it"
            )
    view = _without_ones(view)
    use = next((known for known, raw in chain.raw.items() if known in chain.spans and raw == view), use)
    roles = {axes.roles[axis] for axis in view.axes}
    chain.raw[use] = view
    chain.spans[use] = frozenset(roles & set(_KERNEL_AXES))
    dtype = DType.F32 if view.dtype.is_float else view.dtype
    return chain.pool.make("source", (), dtype, node.name, (use, 0), chain.spans[use])


def _without_ones(view: RawView) -> RawView:
    """The view less dimensions of extent one, along which a tensor is broadcast."""
    kept = [place for place, extent in enumerate(view.extents) if extent > 1]

    def of(values: tuple[T, ...]) -> tuple[T, ...]:
        return tuple(values[place] for place in kept)

    return replace(
        view,
        axes=of(view.axes),
        extents=of(view.extents),
        strides=of(view.strides),
        origin=of(view.origin),
        parts=of(view.parts),
    )


def _term(chain: Chain, node: Node, operand: int) -> Term:
    name = node.inputs[operand]
    if not isinstance(name, str):
        return name
    return (
        _source(chain, node, operand) if f"{node.name}:{operand}" in chain.axes.paths else chain.values[name]
    )


def _product(chain: Chain, node: Node) -> Term:
    for operand in range(node.name in chain.last, 2):
        chain.raw[f"{node.name}:{operand}"] = chain.axes.raw_view(f"{node.name}:{operand}")
    if node.name not in chain.last:
        return chain.pool.make("product", (), DType.F32, node.name, (node.name, 0))
    left = _term(chain, node, 0)
    if chain.pool.spans(left) != SLAB:
        raise LoweringError(f"node {node.name}: its left operand is the same along the rows or the stream")
    return chain.pool.make("contract", (left,), DType.F32, node.name, (node.name, 0))


def _iota(chain: Chain, node: Node) -> Term:
    """The index along a dimension, put together from those along its atoms."""
    index: Term = 0
    dim = node.attr("axis", int)
    for atom in chain.axes.atoms(node.name, dim):
        role, extent = chain.axes.roles.get(atom), chain.axes.extents[atom]
        if extent == 1:
            continue
        if role in (None, Role.INNER):
            raise LoweringError(f"node {node.name}: the iota counts along no axis of the kernel (axis {dim})")
        spans = frozenset({role} & set(_KERNEL_AXES))
        here = chain.pool.make(f"iota_{role}", (), DType.I32, node.name, atom, spans)
        if index == 0:
            index = here
        else:
            scaled = chain.pool.make("mul", (index, extent), DType.I32, node.name)
            index = chain.pool.make("add", (scaled, here), DType.I32, node.name)
    return index


def _reduced_extent(chain: Chain, node: Node) -> int | None:
    """The extent of the axis that a node reduces, if it is the streamed one; None for one of extent one."""
    use, dim = chain.axes.use(node, 0), node.attr("axis", int)
    roles = set(chain.axes.axis_roles(use, dim)) - {None}
    if roles == {Role.STREAM}:
        return chain.axes.shapes[use][dim]
    if chain.axes.shapes[use][dim] == 1:
        return None
    what = f"a {'/'.join(sorted(str(r) for r in roles))} axis" if roles else "no axis of the products"
    raise LoweringError(
        f"node {node.name}: {node.op} along axis {dim} of {chain.axes.title(use)}, which is {what}; "
        "only the streamed axis is reduced in a kernel"
    )


def _reduction(chain: Chain, node: Node) -> Term:
    pool, x, extent = chain.pool, _term(chain, node, 0), _reduced_extent(chain, node)
    op = node.op.removeprefix("reduce_")
    if extent is None:
        return x
    if node.type.dtype is DType.I32:
        raise LoweringError(f"node {node.name}: {node.op} of i32 is not lowered; cast to f32 first")
    if not pool.streams(x):
        if op != "sum":
            return x
        return (
            pool.make("mul", (x, float(extent)), DType.F32, node.name) if isinstance(x, str) else x * extent
        )
    if Role.ROW not in pool.spans(x):
        raise LoweringError(f"node {node.name}: {node.op} of what is the same in every row; compute it apart")
    if op == "min":
        return _negated(pool, pool.make("reduce_max", (_negated(pool, x, node),), DType.F32, node.name), node)
    total = pool.make("reduce_max" if op == "max" else "reduce_sum", (x,), DType.F32, node.name)
    return pool.make("mul", (total, 1.0 / extent), DType.F32, node.name) if op == "mean" else total


def _negated(pool: Pool, x: Term, node: Node) -> Term:
    return pool.make("neg", (x,), DType.F32, node.name)


def _softmax(chain: Chain, node: Node) -> Term:
    """exp(x - max) over its sum; a sum of zero, which a row of -inf has, gives zeros."""
    pool, x = chain.pool, _term(chain, node, 0)
    if _reduced_extent(chain, node) is None or not pool.streams(x):
        raise LoweringError(f"node {node.name}: softmax of what is the same along its axis; compute it apart")

    def make(primitive: str, *args: Term, dtype: DType = DType.F32) -> Term:
        return pool.make(primitive, args, dtype, node.name)

    weights = make("exp", make("sub", x, make("reduce_max", x)))
    total = make("reduce_sum", weights)
    nothing = make("equal", total, 0.0, dtype=DType.BOOL)
    return make("div", weights, make("where", nothing, 1.0, total))


def _visit(chain: Chain, node: Node) -> Term:
    if node.op == "matmul":
        return _product(chain, node)
    if is_view(node):
        return _term(chain, node, 0)
    if node.op == "iota":
        return _iota(chain, node)
    if node.op == "softmax":
        return _softmax(chain, node)
    if OPS[node.op].cost is CostClass.REDUCTION:
        return _reduction(chain, node)
    if is_pointwise(node):
        return pointwise(
            node,
            tuple(_term(chain, node, operand) for operand in range(len(node.inputs))),
            lambda primitive, terms, dtype: chain.pool.make(primitive, terms, dtype, node.name),
            approximate=node.name in chain.narrow,
        )
    raise LoweringError(f"node {node.name}: {node.op} is not lowered beside a chain of products")


def read_chain(graph: Graph) -> Chain:
    """A graph with a chain of products as values. Raises LoweringError for what has no place in a loop."""
    axes = chain_axes(graph)
    longest = max(axes.extents[a] for a, role in axes.roles.items() if role in (Role.ROW, Role.STREAM))
    chain = Chain(axes, chained_products(graph), Pool(simplify_short if longest <= SHORT else simplify))
    chain.narrow = narrow_nodes(graph, axes.live, exponents=False)
    for node in axes.live:
        if not (is_view(node) and input_path(graph, node.name)):
            chain.values[node.name] = _visit(chain, node)
    return chain
