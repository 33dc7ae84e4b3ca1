"""Regions of products over one streamed axis: the products, and the epilogue as scalar statements.

What cannot be lowered is named: node, axis, reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.frontend.axes import Axes, Dim, find_axes, input_layout, is_pointwise, matmul_dims
from wsopt.frontend.expand import Term
from wsopt.frontend.merge import RawView, merge_views
from wsopt.frontend.nodes import OPERANDS, OUTPUTS, SOURCES, narrow_nodes, pointwise
from wsopt.frontend.types import Contraction, Region
from wsopt.graph.types import DType, Graph, Node, row_major_strides
from wsopt.tensors.statements import Statement
from wsopt.tensors.views import Output, Role, Source, View


@dataclass(slots=True)
class _Builder:
    """Collects a region while its graph is walked."""

    axes: Axes
    raw: dict[str, RawView] = field(default_factory=dict)
    products: list[tuple[str, str, str, bool]] = field(default_factory=list)
    sources: dict[str, frozenset[Role]] = field(default_factory=dict)
    statements: list[Statement] = field(default_factory=list)
    values: dict[str, Term] = field(default_factory=dict)
    spans: dict[str, frozenset[Role]] = field(default_factory=dict)
    narrow: frozenset[str] = frozenset()
    counted: set[Dim] = field(default_factory=set)

    @property
    def graph(self) -> Graph:
        return self.axes.graph


def _raw_view(builder: _Builder, use: str) -> RawView:
    """The memory layout of a use of an input, its dimensions named by their axes."""
    layout = builder.axes.layouts[use]
    given = builder.graph.input(layout.tensor)
    assert given is not None, "a layout stands for an input"
    return RawView(
        tensor=layout.tensor,
        dtype=given.type.dtype,
        constant=given.constant,
        axes=tuple(builder.axes.axis(use, dim) for dim in range(len(layout.extents))),
        extents=layout.extents,
        strides=layout.strides,
        origin=layout.origin,
        rank=len(layout.origin),
    )


def _add_product(builder: _Builder, node: Node) -> None:
    dtype = builder.graph.type_of(node.tensors[0]).dtype
    if dtype not in OPERANDS:
        raise LoweringError(
            f"node {node.name}: operands of {dtype.value} are not lowered; {remedies.operand_type(OPERANDS)}"
        )
    for operand in (0, 1):
        builder.raw[f"{node.name}:{operand}"] = _raw_view(builder, f"{node.name}:{operand}")
    short_sums = dtype in (DType.F8E4M3, DType.F8E5M2)
    promote = short_sums and node.attr("accumulate", str) != "fast"
    builder.products.append((node.name, f"{node.name}:0", f"{node.name}:1", promote))
    builder.values[node.name] = node.name
    builder.spans[node.name] = frozenset({Role.ROW, Role.COLUMN})


def _source(builder: _Builder, node: Node, operand: int) -> str:
    """The name of the epilogue source for an operand that is a graph input; one a tensor and layout."""
    use = f"{node.name}:{operand}"
    view = _raw_view(builder, use)
    if view.dtype not in SOURCES:
        raise LoweringError(
            f"node {node.name}: input {view.tensor} is {view.dtype.value}; not lowered there; "
            f"{remedies.source_type(SOURCES)}"
        )
    for dim, extent in enumerate(view.extents):
        if extent > 1 and builder.axes.role(use, dim) not in (Role.ROW, Role.COLUMN, Role.BATCH):
            raise LoweringError(
                f"node {node.name}: axis {dim} of {view.tensor} is no axis of the products beside it"
            )
    for known in builder.sources:
        if builder.raw[known] == view:
            return known
    builder.raw[use] = view
    # An axis of one element that is a product's is no less an axis: batches may be merged into it.
    roles = {builder.axes.role(use, dim) for dim in range(len(view.extents))}
    spans = frozenset(role for role in roles if role in (Role.ROW, Role.COLUMN))
    builder.sources[use] = spans
    builder.spans[use] = spans
    return use


def _term(builder: _Builder, node: Node, operand: int) -> Term:
    name = node.inputs[operand]
    if not isinstance(name, str):
        return name
    if f"{node.name}:{operand}" in builder.axes.layouts:
        return _source(builder, node, operand)
    return builder.values[name]


def _emit(builder: _Builder, node: Node, primitive: str, args: tuple[Term, ...], dtype: DType) -> str:
    spans: frozenset[Role] = frozenset().union(*(builder.spans[a] for a in args if isinstance(a, str)))
    count = sum(1 for s in builder.statements if s.name.partition("$")[0] == node.name)
    name = f"{node.name}${count}"
    builder.statements.append(Statement(name, primitive, args, spans, dtype))
    builder.spans[name] = spans
    return name


def _add_pointwise(builder: _Builder, node: Node) -> None:
    builder.values[node.name] = pointwise(
        node,
        tuple(_term(builder, node, operand) for operand in range(len(node.inputs))),
        lambda primitive, terms, dtype: _emit(builder, node, primitive, terms, dtype),
        approximate=node.name in builder.narrow,
    )


def _add_iota(builder: _Builder, node: Node) -> None:
    role = builder.axes.role(node.name, node.attr("axis", int))
    if role not in (Role.ROW, Role.COLUMN, Role.BATCH):
        raise LoweringError(f"node {node.name}: the iota counts along no axis of a product")
    builder.counted.add(builder.axes.axis(node.name, node.attr("axis", int)))
    name = _emit(builder, node, f"iota_{role}", (), DType.I32)
    spans = frozenset({role} - {Role.BATCH})
    builder.statements[-1] = replace(builder.statements[-1], spans=spans)
    builder.spans[name] = spans
    builder.values[node.name] = name


def _visit(builder: _Builder, node: Node) -> None:
    if node.op == "matmul":
        _add_product(builder, node)
    elif node.op == "iota":
        _add_iota(builder, node)
    elif is_pointwise(node):
        _add_pointwise(builder, node)
    elif input_layout(builder.graph, node.name) is None:
        remedy = f"; {remedies.view_of_result(node.op)}" if node.op in ("reshape", "transpose") else ""
        raise LoweringError(
            f"node {node.name}: {node.op} is not lowered; a kernel is products over one streamed axis "
            f"and elementwise operations after them{remedy}"
        )


def _output_view(builder: _Builder, name: str) -> RawView:
    kind = builder.graph.type_of(name)
    if kind.dtype not in OUTPUTS:
        raise LoweringError(f"output {name} is {kind.dtype.value}; add a cast to a floating-point type")
    roles = [builder.axes.role(name, dim) for dim in range(kind.rank)]
    for dim, role in enumerate(roles):
        if role is None and kind.shape[dim] > 1:
            raise LoweringError(f"output {name}: axis {dim} is no axis of a product")
    if Role.ROW not in roles or Role.COLUMN not in roles:
        raise LoweringError(f"output {name} has not the rows and columns of a product; compute it outside")
    if len(builder.spans[str(builder.values[name])]) < 2:
        raise LoweringError(
            f"output {name} is the same along the rows or columns of the product; compute it outside"
        )
    return RawView(
        tensor=name,
        dtype=kind.dtype,
        constant=False,
        axes=tuple(builder.axes.axis(name, dim) for dim in range(kind.rank)),
        extents=kind.shape,
        strides=row_major_strides(kind.shape),
        origin=tuple(range(kind.rank)),
        rank=kind.rank,
    )


def _shape(builder: _Builder, output: RawView, view: View) -> tuple[tuple[str, int] | int, ...]:
    """For each dimension of an output an input that has its extent: so shapes can be run-time values."""
    seen = {dim for dims in view.origin for dim in dims}
    return tuple(
        1 if extent == 1 and dim not in seen else _with_axis(builder, axis)
        for dim, (axis, extent) in enumerate(zip(output.axes, output.extents, strict=True))
    )


def _with_axis(builder: _Builder, axis: Dim) -> tuple[str, int]:
    for raw in builder.raw.values():
        if axis in raw.axes:
            return raw.tensor, raw.origin[raw.axes.index(axis)]
    raise AssertionError(f"no input has axis {axis}")


def _extents(builder: _Builder) -> dict[Dim, int]:
    """Extent of every axis that a product has."""
    found: dict[Dim, int] = {}
    for node in builder.axes.live:
        if node.op == "matmul":
            for dim in range(node.type.rank):
                found[builder.axes.axis(node.name, dim)] = node.type.shape[dim]
            use = builder.axes.use(node, 0)
            inner = matmul_dims(node)[0][1]
            found[builder.axes.axis(use, inner)] = builder.axes.shape(use)[inner]
    return found


def _check_products(builder: _Builder) -> None:
    kinds = {builder.raw[left].dtype for _, left, _, _ in builder.products}
    if len(kinds) > 1:
        names = ", ".join(name for name, *_ in builder.products)
        raise LoweringError(
            f"matmuls {names} have operands of different types; one kernel takes one: {remedies.OWN_GRAPH}"
        )
    inner = {name: matmul_dims(_node(builder, name))[0][1] for name, *_ in builder.products}
    streams = {builder.axes.axis(f"{name}:0", dim) for name, dim in inner.items()}
    rows = {builder.axes.axis(name, -2) for name, *_ in builder.products}
    columns = {builder.axes.axis(name, -1) for name, *_ in builder.products}
    for what, found in (("streamed axis", streams), ("row axis", rows), ("column axis", columns)):
        if len(found) > 1:
            names = ", ".join(name for name, *_ in builder.products)
            raise LoweringError(_apart(builder, names, what))


def _apart(builder: _Builder, names: str, what: str) -> str:
    """Reason why products cannot be one kernel, with the remedy where they share a tensor."""
    left = {builder.raw[left].tensor for _, left, _, _ in builder.products}
    right = {builder.raw[right].tensor for _, _, right, _ in builder.products}
    if len(left) == 1 < len(right):
        return (
            f"matmuls {names} multiply {left.pop()} by weights of their own, and nothing combines them; put the "
            f"weights ({', '.join(sorted(right))}) into one tensor, for one matmul with all their columns"
        )
    return f"matmuls {names} do not share their {what}; they cannot share one loop: {remedies.OWN_GRAPH}"


def _node(builder: _Builder, name: str) -> Node:
    node = builder.graph.producer(name)
    assert node is not None, name
    return node


def products_region(graph: Graph) -> Region:
    """The region of a graph of products over one streamed axis.

    Raises LoweringError, naming node, axis and reason, for a graph that is not products over one streamed
    axis with an elementwise tree after them.
    """
    builder = _Builder(find_axes(graph))
    if not any(node.op == "matmul" for node in builder.axes.live):
        raise LoweringError(
            "the graph has neither a matmul nor a reduction of rows; without one it is not lowered"
        )
    builder.narrow = narrow_nodes(builder.graph, builder.axes.live)
    for node in builder.axes.live:
        _visit(builder, node)
    _check_products(builder)
    outputs = {f"out:{name}": _output_view(builder, name) for name in graph.outputs}
    keys = [*builder.raw, *outputs]
    raws = [*builder.raw.values(), *outputs.values()]
    views, _, extents = merge_views(
        raws,
        builder.axes.roles,
        builder.axes.batches,
        _extents(builder),
        frozenset(builder.counted),
        singles=[axis for axis in builder.axes.singles if axis not in builder.counted],
    )
    view = dict(zip(keys, views, strict=True))
    return Region(
        name=graph.name,
        doc=graph.doc,
        extents=extents,
        contractions=tuple(Contraction(n, view[a], view[b], p) for n, a, b, p in builder.products),
        sources=tuple(Source(use, view[use], spans) for use, spans in builder.sources.items()),
        statements=tuple(builder.statements),
        outputs=tuple(
            Output(name, str(builder.values[name]), view[key], _shape(builder, outputs[key], view[key]))
            for name, key in zip(graph.outputs, outputs, strict=True)
        ),
    )
