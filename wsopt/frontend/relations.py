"""Which dimensions of a graph's tensors go along one axis: by operations, views, groups that share scales."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wsopt.errors import LoweringError
from wsopt.frontend import groups, remedies
from wsopt.frontend.axes import Axes, Dim, regroup
from wsopt.frontend.kinds import (
    VIEWS,
    Kind,
    input_path,
    is_copied,
    is_grouped,
    is_matmul,
    is_pointwise,
    matmul_dims,
    producer,
)
from wsopt.graph.infer import places
from wsopt.graph.ops import OPS, CostClass
from wsopt.graph.types import Graph, Node


def _add_uses(axes: Axes, node: Node) -> Iterator[tuple[Node, str, str]]:
    """Make instances of every input that a node reads, also through views: each view, its operand and its result."""
    for operand, name in enumerate(node.inputs):
        path = input_path(axes.graph, name) if isinstance(name, str) else None
        if path is not None:
            yield from _add_use(axes, f"{node.name}:{operand}", path)


def _add_use(axes: Axes, use: str, path: tuple[str, ...]) -> Iterator[tuple[Node, str, str]]:
    axes.paths[use] = path
    for index, tensor in enumerate(path):
        axes.add(axes.instance(use, index), tensor)
        if index:
            view = producer(axes.graph, path[index - 1])
            yield view, axes.instance(use, index), axes.instance(use, index - 1)


def _copied(axes: Axes, node: Node) -> Iterator[tuple[Node, str, str]]:
    """The same for an output that is an input, seen in another way: a use of it as it is seen."""
    path = input_path(axes.graph, node.name)
    assert path is not None, "it is a view of an input"
    use = f"{node.name}:0"
    yield from _add_use(axes, use, path)


def _related(axes: Axes, node: Node) -> Iterator[tuple[Dim, Dim]]:
    """The dimensions of a node and of its operands that go along one axis; an extent of one is broadcast."""
    uses = [axes.use(node, operand) for operand, name in enumerate(node.inputs) if isinstance(name, str)]
    if is_matmul(node):
        yield from _multiplied(axes, node, uses)
    elif OPS[node.op].cost is CostClass.REDUCTION:
        yield from _reduced(axes, node)
    elif node.op == "concat":
        yield from _joined(axes, node, uses)
    elif node.op == "gather":
        yield from _gathered(axes, node, uses)
    elif node.op in groups.SCALED:
        yield from groups.related(axes, node, uses)
    elif is_pointwise(node) or OPS[node.op].cost is CostClass.COMPOSITE:
        yield from _alike(axes, node, uses)


def _multiplied(axes: Axes, node: Node, uses: Sequence[str]) -> Iterator[tuple[Dim, Dim]]:
    """The dimensions of a product and of its two sides; where offsets cut its rows into groups, also those that count
    the groups, of the right side and of the offsets.
    """
    (row, contracted), (column, other) = matmul_dims(node)
    yield (uses[0], contracted), (uses[1], other)
    yield (node.name, -2), (uses[0], row)
    yield (node.name, -1), (uses[1], column)
    if is_grouped(node):
        yield (uses[1], 0), (uses[2], 0)
    else:
        yield from _alike(axes, node, uses, inner=2)


def _reduced(axes: Axes, node: Node) -> Iterator[tuple[Dim, Dim]]:
    """The dimensions of a reduction and those of its operand that it keeps."""
    use, axis = axes.reduced(node)
    kept = [dim for dim in range(len(axes.shapes[use])) if dim != axis]
    for place, dim in enumerate(kept):
        yield (node.name, dim if node.attr("keepdims", bool) else place), (use, dim)


def _alike(axes: Axes, node: Node, uses: Sequence[str], inner: int = 0) -> Iterator[tuple[Dim, Dim]]:
    """The dimensions of a node and of operands that have the same extents, but for so many `inner` ones."""
    for use in uses:
        shape = axes.shapes[use]
        for dim in range(-len(shape), -inner):
            if shape[dim] == node.type.shape[dim]:
                yield (node.name, dim), (use, dim)


def _gathered(axes: Axes, node: Node, uses: Sequence[str]) -> Iterator[tuple[Dim, Dim]]:
    """The dimensions of a tensor beside that along which indices choose places, and those of the indices."""
    table, indices = uses
    along, count = node.attr("axis", int), len(axes.shapes[indices])
    for dim in range(len(axes.shapes[table])):
        if dim != along:
            yield (node.name, dim if dim < along else dim + count - 1), (table, dim)
    for dim in range(count):
        yield (node.name, along + dim), (indices, dim)


def _joined(axes: Axes, node: Node, uses: Sequence[str]) -> Iterator[tuple[Dim, Dim]]:
    """The dimensions of tensors one behind the other that are one; notes where each begins along the other one."""
    along, parts, begin = node.attr("axis", int), list[tuple[Dim, int]](), 0
    for use in uses:  # one that joins others itself is as many parts
        own = axes.joints.get((use, along), (((use, along), 0),))
        parts += [(part, begin + at) for part, at in own]
        begin += axes.shapes[use][along]
    extents = [axes.shapes[use][dim] for (use, dim), _ in parts]
    if len({*extents}) > 1:
        raise LoweringError(
            f"node {node.name}: it joins parts of {', '.join(map(str, extents))} elements; a kernel has one tile for "
            f"all: {remedies.OWN_OUTPUTS}"
        )
    yield from ((parts[0][0], part) for part, _ in parts[1:])
    for use in uses:
        yield from (((node.name, dim), (use, dim)) for dim in range(len(node.type.shape)) if dim != along)
    axes.joints[node.name, along] = tuple(parts)


def _slice(axes: Axes, node: Node, old: str, new: str) -> Iterator[tuple[Dim, Dim]]:
    """The dimensions that a slice leaves as they are; notes that of which it takes a part."""
    along, found = node.attr("axis", int), places(dict(node.attrs), axes.shapes[old][node.attr("axis", int)])
    if found.step > 1:
        raise LoweringError(
            f"node {node.name}: a slice with a step of {found.step} is not lowered; make {node.name} an input, and "
            "hand over a dense copy of the slice"
        )
    for dim, extent in enumerate(axes.shapes[old]):
        if dim != along or len(found) == extent:
            yield (old, dim), (new, dim)
        else:
            axes.slices[old, dim] = (new, dim), found.start


def _pad(axes: Axes, node: Node, old: str, new: str) -> Iterator[tuple[Dim, Dim]]:
    """The dimensions around which there are no zeros; notes the others as slices that begin before the tensor."""
    for dim, (low, high) in enumerate(zip(node.attr("low", tuple), node.attr("high", tuple), strict=True)):
        if low or high:
            axes.slices[old, dim] = (new, dim), -low
        else:
            yield (old, dim), (new, dim)


def _seen(axes: Axes, node: Node, old: str, new: str) -> Iterator[tuple[Dim, Dim]]:
    """The dimensions of what a view sees that are its own; those of reshapes are regrouped later."""
    match node.op:
        case "transpose":
            yield from (((old, source), (new, dim)) for dim, source in enumerate(node.attr("perm", tuple)))
        case "slice":
            yield from _slice(axes, node, old, new)
        case "pad":
            yield from _pad(axes, node, old, new)


def relate_axes(graph: Graph, kind: Kind, sums: tuple[str, ...]) -> Axes:
    """Unify the dimensions of a graph of which every node is needed; no axis has a role yet.

    Raises LoweringError for a reshape that cuts axes across each other.
    """
    axes = Axes(graph, kind, sums)
    views: list[tuple[Node, str, str]] = []
    for node in graph.nodes:
        axes.add(node.name, node.name)
        if node.op not in VIEWS:
            views.extend(_add_uses(axes, node))
        elif input_path(graph, node.name) is None:
            views.append((node, node.tensors[0], node.name))
        elif is_copied(graph, node):
            views.extend(_copied(axes, node))
    pairs = [pair for node in graph.nodes for pair in _related(axes, node)]
    for node in (node for node in graph.nodes if f"{node.name}:0" in axes.paths and is_copied(graph, node)):
        pairs += [((node.name, dim), (f"{node.name}:0", dim)) for dim in range(node.type.rank)]
    pairs += [pair for view in views for pair in _seen(axes, *view)]
    for pair in pairs:
        axes.same.union(*((use, dim % len(axes.shapes[use])) for use, dim in pair))
    for node, old, new in views:
        if node.op == "reshape":
            regroup(axes, node.name, old, new)
    for node in (node for node in graph.nodes if node.op in groups.SCALED):
        groups.cut(axes, node)
    return axes
