"""Graphs in which a product feeds a product: the operations between and after them, as values.

Nothing is rewritten here: a maximum is still of the whole axis, and a sum is divided by where the graph says
so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.frontend.algebra import SHORT, simplify, simplify_short
from wsopt.frontend.axes import Dim, is_pointwise
from wsopt.frontend.expand import Term
from wsopt.frontend.loop_axes import LoopAxes, input_path, is_view
from wsopt.frontend.merge import RawView
from wsopt.frontend.nodes import SOURCES, narrow_nodes, pointwise
from wsopt.frontend.roles import chain_axes, chained_products
from wsopt.frontend.values import Flow, Pool
from wsopt.graph.ops import OPS, CostClass
from wsopt.graph.types import DType, Graph, Node
from wsopt.tensors.views import K_BLOCK, Role

_KERNEL_AXES = (Role.ROW, Role.COLUMN, Role.STREAM)

NORMS = ("rms_norm", "layer_norm")
"""Composite operations over their operand's last axis."""


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

    @property
    def flow(self) -> Flow:
        """The graph's outputs as values."""
        return Flow(self.pool, tuple(self.values[name] for name in self.axes.graph.outputs))


def _source(chain: Chain, node: Node, operand: int) -> Term:
    """An input that elementwise operations read; one for each tensor and layout."""
    axes, use = chain.axes, f"{node.name}:{operand}"
    view = axes.raw_view(use)
    if view.dtype not in SOURCES:
        raise LoweringError(
            f"node {node.name}: input {view.tensor} is {view.dtype.value}; not lowered there; "
            f"{remedies.source_type(SOURCES)}"
        )
    for axis, extent, origin in zip(view.axes, view.extents, view.origin, strict=True):
        if extent > 1 and axes.roles.get(axis) in (None, Role.INNER):
            raise LoweringError(
                f"node {node.name}: axis {origin} of {view.tensor} is no axis of what is computed with it"
            )
    view = _without_ones(view, frozenset(a for a, role in axes.roles.items() if role in _KERNEL_AXES))
    use = next((known for known, raw in chain.raw.items() if known in chain.spans and raw == view), use)
    roles = {axes.roles[axis] for axis in view.axes}
    chain.raw[use] = view
    chain.spans[use] = frozenset(roles & set(_KERNEL_AXES))
    dtype = DType.F32 if view.dtype.is_float else view.dtype
    return chain.pool.make("source", (), dtype, node.name, (use, 0), chain.spans[use])


def _without_ones(view: RawView, tiled: frozenset[Dim]) -> RawView:
    """The view less dimensions of extent one, along which a tensor is broadcast; not those of axes that are `tiled`,
    of which the products have one element as well: those may have more at run time.
    """
    pairs = zip(view.axes, view.extents, strict=True)
    return view.along([extent > 1 or axis in tiled for axis, extent in pairs])


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
    if chain.pool.spans(left) != K_BLOCK:
        raise LoweringError(f"node {node.name}: its left operand is the same along the rows or the stream")
    return chain.pool.make("contract", (left,), DType.F32, node.name, (node.name, 0))


def _iota(chain: Chain, node: Node) -> Term:
    """The index along a dimension, put together from those along its atoms.

    Along an axis of one element it is zero, unless the kernel has that axis: there may be more at run time.
    """
    index: Term = 0
    dim = node.attr("axis", int)
    for atom in chain.axes.atoms(node.name, dim):
        role, extent = chain.axes.roles.get(atom), chain.axes.extents[atom]
        if extent == 1 and role not in _KERNEL_AXES:
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
    use = chain.axes.use(node, 0)
    dim = len(chain.axes.shapes[use]) - 1 if node.op in NORMS else node.attr("axis", int)
    roles = set(chain.axes.axis_roles(use, dim)) - {None}
    if roles == {chain.pool.along}:
        return chain.axes.shapes[use][dim]
    if chain.axes.shapes[use][dim] == 1:
        return None
    what = f"a {'/'.join(sorted(str(r) for r in roles))} axis" if roles else "no axis of the products"
    kind = "streamed" if chain.pool.along is Role.STREAM else str(chain.pool.along)
    raise LoweringError(
        f"node {node.name}: {node.op} along axis {dim} of {chain.axes.title(use)}, which is {what}; "
        f"only the {kind} axis is reduced in a kernel"
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
        return pool.make("mul", (_extent(pool, node, extent), x), DType.F32, node.name)
    if Role.ROW not in pool.spans(x):
        raise LoweringError(
            f"node {node.name}: {node.op} of what is the same in every row; compute it before, and make it an input"
        )
    if op == "min":
        return _negated(pool, pool.make("reduce_max", (_negated(pool, x, node),), DType.F32, node.name), node)
    total = pool.make("reduce_max" if op == "max" else "reduce_sum", (x,), DType.F32, node.name)
    return _over_extent(chain, node, total, extent) if op == "mean" else total


def _extent(pool: Pool, node: Node, extent: int) -> Term:
    """Length of the reduced axis: a number for whole rows, which a kernel knows; an extent for a streamed axis."""
    if pool.along is not Role.STREAM:
        return float(extent)
    whole = pool.make("extent_stream", (), DType.I32, node.name, spans=frozenset())
    return pool.make("round_f32", (whole,), DType.F32, node.name)


def _over_extent(chain: Chain, node: Node, total: Term, extent: int) -> Term:
    """The mean: a sum divided by the number of its elements."""
    length = _extent(chain.pool, node, extent)
    if isinstance(length, str):
        return chain.pool.make("div", (total, length), DType.F32, node.name)
    return chain.pool.make("mul", (total, 1.0 / length), DType.F32, node.name)


def _negated(pool: Pool, x: Term, node: Node) -> Term:
    return pool.make("neg", (x,), DType.F32, node.name)


def _softmax(chain: Chain, node: Node) -> Term:
    """exp(x - max) over its sum; a sum of zero, which a row of -inf has, gives zeros."""
    pool, x = chain.pool, _term(chain, node, 0)
    if _reduced_extent(chain, node) is None or not pool.streams(x):
        raise LoweringError(
            f"node {node.name}: softmax of what is the same along its axis; compute it before, and make it an input"
        )

    def make(primitive: str, *args: Term, dtype: DType = DType.F32) -> Term:
        return pool.make(primitive, args, dtype, node.name)

    peak = make("reduce_max", x)
    if pool.along is not Role.STREAM:  # `online` makes running maxima safe; -inf - -inf is nan
        peak = make("where", make("equal", peak, -math.inf, dtype=DType.BOOL), 0.0, peak)
    weights = make("exp", make("sub", x, peak))
    total = make("reduce_sum", weights)
    nothing = make("equal", total, 0.0, dtype=DType.BOOL)
    return make("div", weights, make("where", nothing, 1.0, total))


def _norm(chain: Chain, node: Node) -> Term:
    """x over the root of its mean square, for layer_norm after its mean; times the weight, plus the bias."""
    pool, extent = chain.pool, _reduced_extent(chain, node)
    x, *vectors = (_term(chain, node, operand) for operand in range(len(node.inputs)))
    if extent is None or not pool.streams(x):
        raise LoweringError(
            f"node {node.name}: {node.op} of what is the same along its axis; compute it before, and make it an input"
        )

    def make(primitive: str, *args: Term) -> Term:
        return pool.make(primitive, args, DType.F32, node.name)

    def mean(term: Term) -> Term:
        return _over_extent(chain, node, make("reduce_sum", term), extent)

    if node.op == "layer_norm":
        x = make("sub", x, mean(x))
    power = make("add", mean(make("mul", x, x)), node.attr("eps", float))
    result = make("mul", x, make("rsqrt", power))
    for primitive, vector in zip(("mul", "add"), vectors, strict=False):
        result = make(primitive, result, vector)
    return result


def _visit(chain: Chain, node: Node) -> Term:
    if node.op == "matmul":
        return _product(chain, node)
    if is_view(node):
        return _term(chain, node, 0)
    if node.op == "iota":
        return _iota(chain, node)
    if node.op == "softmax":
        return _softmax(chain, node)
    if node.op in NORMS:
        return _norm(chain, node)
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
    """A graph with a chain of products as values. Raises LoweringError for nodes that have no place in a loop."""
    axes = chain_axes(graph)
    return read_values(axes, chained_products(graph), Role.STREAM)


def read_values(axes: LoopAxes, last: tuple[str, ...], along: Role) -> Chain:
    """The nodes of a graph whose axes have their roles, as values; reductions go along the axis `along`."""
    longest = max(axes.extents[a] for a, role in axes.roles.items() if role in (Role.ROW, along))
    chain = Chain(axes, last, Pool(simplify_short if longest <= SHORT else simplify, along=along))
    chain.narrow = narrow_nodes(axes.graph, axes.live, exponents=False)
    for node in axes.live:
        if not (is_view(node) and input_path(axes.graph, node.name)):
            chain.values[node.name] = _visit(chain, node)
    return chain
