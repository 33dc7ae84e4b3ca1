"""Axes of tensors with scales: a group of neighbours, or a block, shares one, so an axis is cut into both.

Elements lie along an axis whose outer part counts groups; scales and zeros lie along that part alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.frontend.axes import Axes, Dim, regroup
from wsopt.frontend.kinds import QUANTIZING, reduces_rows
from wsopt.graph.scales import unit_of
from wsopt.graph.types import Node

SCALED = ("dequantize", *QUANTIZING)
"""Operations on tensors with scales."""


def related(axes: Axes, node: Node, uses: Sequence[str]) -> Iterator[tuple[Dim, Dim]]:
    """The dimensions of elements, and those of scales and zeros but the last, along which groups or blocks lie."""
    wide = uses[0] if node.op == "quantize_scale" else node.name
    extents, cut = axes.shapes[wide], len(unit_of(dict(node.attrs)))
    for use in (node.name, *uses):
        shape, elements = (
            axes.shapes[use],
            use == uses[0] or (use == node.name and node.op != "quantize_scale"),
        )
        for dim in range(-len(shape), 0 if elements else -cut):
            if shape[dim] == extents[dim] and use != wide:
                yield (wide, dim), (use, dim)


def cut(axes: Axes, node: Node) -> None:
    """Cut the last axes of elements into groups or blocks, along which scales and zeros lie, and what is in one."""
    unit = unit_of(dict(node.attrs))
    if node.op in QUANTIZING and len(unit) > 1:
        raise LoweringError(
            f"node {node.name}: scales of blocks are not computed in a kernel; those of groups are: give it a group, "
            f"or {remedies.computed_before([node.name])}"
        )
    wide = axes.use(node, 0) if node.op in QUANTIZING else node.name
    shape = axes.shapes[wide]
    if in_rows(axes, node):
        if node.op == "quantize_scale":
            axes.in_rows[node.name, len(shape) - 1] = (wide, len(shape) - 1), unit[0]
        return
    first = len(shape) - len(unit)
    wholes, parts = list[Dim](), list[int]()
    for dim, own in enumerate(unit, start=first):
        parts += [shape[dim]] if own in (1, shape[dim]) else [shape[dim] // own, own]
    seen, place = f"{node.name}/groups", first
    if len(parts) > len(unit):
        axes.shapes[seen] = (*shape[:first], *parts)
        axes.extents.update({(seen, dim): extent for dim, extent in enumerate(axes.shapes[seen])})
        for dim in range(first):
            axes.same.union((wide, dim), (seen, dim))
        regroup(axes, node.name, wide, seen)
    for dim, own in enumerate(unit, start=first):
        apart = own not in (1, shape[dim])
        wholes.append((seen, place) if len(parts) > len(unit) else (wide, dim))
        place += 1 + apart
    if node.op in QUANTIZING and len(parts) > len(unit):
        axes.grouped[node.name] = seen
    own = range(1, len(node.inputs)) if node.op == "dequantize" else ()
    scales = [axes.use(node, operand) for operand in own if isinstance(node.inputs[operand], str)]
    for use in [*scales, *([node.name] if node.op == "quantize_scale" else [])]:
        for dim, whole in enumerate(wholes, start=-len(unit)):
            if axes.shapes[use] and axes.shapes[use][dim] > 1:
                _lie_along(axes, node, whole, (use, len(axes.shapes[use]) + dim))


def in_rows(axes: Axes, node: Node) -> bool:
    """Whether a node quantizes groups of rows that another one reduces whole: then rows are not cut to groups.

    Raises LoweringError for scales that something else reads: their axis has no element for each of a row's.
    """
    own = node.attr("group", int) if node.op in QUANTIZING else 0
    shape = axes.shapes[axes.use(node, 0)]
    others = (one for one in axes.graph.nodes if reduces_rows(one))
    alike = all(one.op in QUANTIZING and one.attr("group") == own for one in others)
    if own in (0, 1, shape[-1]) or alike:
        return False
    if node.op == "quantize_scale" and axes.graph.consumers(node.name):
        raise LoweringError(
            f"node {node.name}: scales of groups of rows that are reduced whole are stored, and not computed with: "
            f"{remedies.computed_before([node.name])}"
        )
    return True


def _lie_along(axes: Axes, node: Node, whole: Dim, scales: Dim) -> None:
    """Make the dimension of scales one with the axis that counts their groups."""
    if len(axes.leaves(whole)) > 1:
        raise LoweringError(
            f"node {node.name}: its groups of {unit_of(dict(node.attrs))[-1]} lie along an axis that has groups of "
            f"another size; a kernel takes one: {remedies.OWN_GRAPH}"
        )
    axes.same.union(*axes.leaves(whole), scales)
