"""Axes of tensors with scales: a group of neighbours, or a block, shares one, so an axis is cut into both.

Elements lie along an axis whose outer part counts groups; scales and zeros lie along that part alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.frontend.axes import Axes, Dim, regroup
from wsopt.frontend.kinds import QUANTIZING, reduces_rows
from wsopt.graph.scales import Unit, unit_of
from wsopt.graph.types import Node

SCALED = ("dequantize", *QUANTIZING)
"""Operations on tensors with scales."""


def related(axes: Axes, node: Node, uses: Sequence[str]) -> Iterator[tuple[Dim, Dim]]:
    """The dimensions of elements, and those of scales and zeros but the last, along which groups or blocks lie."""
    wide = uses[0] if node.op == "quantize_scale" else node.name
    extents, cut = axes.shapes[wide], len(unit_of(dict(node.attrs)))
    for use in (node.name, *uses):
        shape = axes.shapes[use]
        elements = use == uses[0] or (use == node.name and node.op != "quantize_scale")
        for dim in range(-len(shape), 0 if elements else -cut):
            if shape[dim] == extents[dim] and use != wide:
                yield (wide, dim), (use, dim)


def cut(axes: Axes, node: Node) -> None:
    """Cut the last axes of elements into groups or blocks, along which scales and zeros lie, and what is in one.

    Raises LoweringError for groups that are parts of other ones, and for scales of blocks that are computed.
    """
    unit = unit_of(dict(node.attrs))
    if node.op in QUANTIZING and len(unit) > 1:
        raise LoweringError(
            f"node {node.name}: scales of blocks are not computed in a kernel; those of groups are: give it a group, "
            f"or {remedies.computed_before([node.name])}"
        )
    elements = axes.use(node, 0) if node.op in QUANTIZING else node.name
    last = len(axes.shapes[elements]) - 1
    if not in_rows(axes, node):
        wholes = _units(axes, node, elements, unit)
        for use in _scales(axes, node):
            for dim, whole in enumerate(wholes, start=-len(unit)):
                if axes.shapes[use] and axes.shapes[use][dim] > 1:
                    _lie_along(axes, node, whole, (use, len(axes.shapes[use]) + dim))
    elif node.op == "quantize_scale":
        axes.in_rows[node.name, last] = (elements, last), unit[0]


def _units(axes: Axes, node: Node, elements: str, unit: Unit) -> list[Dim]:
    """The axes that count groups or blocks along the last axes of a tensor, which are cut where one has several."""
    shape = axes.shapes[elements]
    first, seen = len(shape) - len(unit), f"{node.name}/groups"
    several = [own not in (1, extent) for own, extent in zip(unit, shape[first:], strict=True)]
    if not any(several):
        return [(elements, dim) for dim in range(first, len(shape))]
    parts, wholes = list[int](), list[Dim]()
    for own, extent, apart in zip(unit, shape[first:], several, strict=True):
        wholes.append((seen, first + len(parts)))
        parts += [extent // own, own] if apart else [extent]
    axes.shapes[seen] = (*shape[:first], *parts)
    axes.extents.update({(seen, dim): extent for dim, extent in enumerate(axes.shapes[seen])})
    for dim in range(first):
        axes.same.union((elements, dim), (seen, dim))
    regroup(axes, node.name, elements, seen)
    if node.op in QUANTIZING:
        axes.grouped[node.name] = seen
    return wholes


def _scales(axes: Axes, node: Node) -> list[str]:
    """The tensors of a node that have an element for each group or block: inputs, or its result."""
    if node.op in QUANTIZING:
        return [node.name] if node.op == "quantize_scale" else []
    operands = range(1, len(node.inputs))
    return [axes.use(node, operand) for operand in operands if isinstance(node.inputs[operand], str)]


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
    if own & (own - 1):
        raise LoweringError(
            f"node {node.name}: groups of {own} elements of rows that are reduced whole are not lowered; those of a "
            f"power of two are, or {remedies.computed_before([node.tensors[0]])}"
        )
    if node.op == "quantize_scale" and not all(
        _is_stored(axes, one) for one in axes.graph.consumers(node.name)
    ):
        raise LoweringError(
            f"node {node.name}: scales of groups of rows that are reduced whole are stored, and not computed with: "
            f"{remedies.computed_before([node.name])}"
        )
    return True


def _is_stored(axes: Axes, node: Node) -> bool:
    """Whether a node is scales in another order that are stored, and nothing else."""
    return node.op == "transpose" and not axes.graph.consumers(node.name)


def _lie_along(axes: Axes, node: Node, whole: Dim, scales: Dim) -> None:
    """Make the dimension of scales one with the axis that counts their groups."""
    if len(axes.leaves(whole)) > 1:
        raise LoweringError(
            f"node {node.name}: its groups of {unit_of(dict(node.attrs))[-1]} lie along an axis that has groups of "
            f"another size; a kernel takes one: {remedies.OWN_GRAPH}"
        )
    axes.same.union(*axes.leaves(whole), scales)
