"""Cuts a graph into blocks along an axis of its outputs, so that large intermediate tensors need not exist whole.

An attention's scores take 17 GB at 16384 keys and 16 heads; one head's take 1 GB.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from wsopt.runtime.raw_graph import Operand, RawGraph, RawNode

Key = tuple[str, int | None]
"""A tensor, and the axis along which a block of it is taken; None takes it whole."""

Shapes = Mapping[str, tuple[int, ...]]
Axes = tuple[int | None, ...]

_NORMS = ("softmax", "rms_norm", "layer_norm")
_REDUCTIONS = ("reduce_sum", "reduce_max", "reduce_min", "reduce_mean", "reduce_argmax", "logsumexp")
_SCALED = ("dequantize", "quantize", "quantize_scale")


class _WholeOnly(Exception):
    """A node whose result along an axis needs all of its operands."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Blocks along one axis: its extent, each output's tensor, and the operands' for every node, in order.

    `sliced` nodes are computed once a block; of what else they read, each whole node once for all.
    """

    extent: int
    outputs: tuple[Key, ...]
    whole: tuple[str, ...]
    sliced: tuple[tuple[RawNode, int, Axes], ...]


def plan(graph: RawGraph, shapes: Shapes) -> Plan | None:
    """Blocks along the first axis that all outputs have and every node lets through; None if there is none."""
    rank = min(len(shapes[name]) for name in graph.outputs)
    for axis in range(rank):
        extents = {shapes[name][axis] for name in graph.outputs}
        if len(extents) == 1 and max(extents) > 1:
            try:
                return _plan(graph, shapes, axis, extents.pop())
            except _WholeOnly:
                continue
    return None


def _plan(graph: RawGraph, shapes: Shapes, axis: int, extent: int) -> Plan:
    outputs: tuple[Key, ...] = tuple((name, axis) for name in graph.outputs)
    needed: set[Key] = set(outputs)
    whole, sliced = list[str](), list[tuple[RawNode, int, Axes]]()
    for node in reversed(graph.nodes):
        axes = sorted(at for name, at in needed if name == node.name and at is not None)
        for at in axes:
            back = operand_axes(node, at, shapes)
            needed.update((name, along) for name, along in _named(node, back))
            sliced.append((node, at, back))
        if (node.name, None) in needed:
            needed.update((name, None) for name in node.tensors)
            whole.append(node.name)
    return Plan(extent, outputs, tuple(reversed(whole)), tuple(reversed(sliced)))


def _named(node: RawNode, back: Axes) -> list[Key]:
    pairs = zip(node.inputs, back, strict=True)
    return [(operand, along) for operand, along in pairs if isinstance(operand, str)]


def operand_axes(node: RawNode, axis: int, shapes: Shapes) -> Axes:
    """Which axis of each operand a block along `axis` of the result is computed from; None where all of it is.

    Raises _WholeOnly if the result there depends on more.
    """
    rule = _RULES.get(node.op)
    if rule is not None:
        return rule(node, axis, shapes)
    return tuple(_aligned(operand, axis, node, shapes) for operand in node.inputs)


def _aligned(operand: Operand, axis: int, node: RawNode, shapes: Shapes) -> int | None:
    """The axis of an operand that is broadcast to the result's."""
    if not isinstance(operand, str):
        return None
    at = axis - len(shapes[node.name]) + len(shapes[operand])
    return at if at >= 0 and shapes[operand][at] > 1 else None


def _matmul(node: RawNode, axis: int, shapes: Shapes) -> Axes:
    rank = len(shapes[node.name])
    if axis < rank - 2:
        return tuple(_aligned(operand, axis, node, shapes) for operand in node.inputs)
    side = axis - (rank - 2)
    back: list[int | None] = [None, None]
    turned = node.flag("transpose_b" if side else "transpose_a")
    back[side] = len(shapes[str(node.inputs[side])]) - (1 if bool(side) != turned else 2)
    return tuple(back)


def _grouped_matmul(node: RawNode, axis: int, _shapes: Shapes) -> Axes:
    """A block of the columns, of every group's matrix; offsets count all rows."""
    if axis == 0:
        raise _WholeOnly(node.name)
    return (None, 1 if node.flag("transpose_b") else 2, None)


def _reshape(node: RawNode, axis: int, shapes: Shapes) -> Axes:
    source, target = shapes[str(node.inputs[0])], shapes[node.name]
    for at, extent in enumerate(source):
        if extent == target[axis] and math.prod(source[:at]) == math.prod(target[:axis]):
            return (at,)
    raise _WholeOnly(node.name)


def _transpose(node: RawNode, axis: int, _shapes: Shapes) -> Axes:
    return (tuple(node.attrs["perm"])[axis],)


def _beside(node: RawNode, axis: int, shapes: Shapes) -> Axes:
    """Along another axis than that of a slice, or of tensors one behind the other."""
    if axis == node.attrs.get("axis", -1) % len(shapes[node.name]):
        raise _WholeOnly(node.name)
    return (axis,) * len(node.inputs)


def _pad(node: RawNode, axis: int, _shapes: Shapes) -> Axes:
    """Along an axis that is not longer than it was."""
    if node.attrs["low"][axis] or node.attrs["high"][axis]:
        raise _WholeOnly(node.name)
    return (axis,)


def _gather(node: RawNode, axis: int, shapes: Shapes) -> Axes:
    """A block of the indices, or of the axes beside the one that they choose from."""
    table, indices = (len(shapes[str(name)]) for name in node.inputs)
    along = node.attrs.get("axis", 0) % table
    if along <= axis < along + indices:
        return (None, axis - along)
    return (axis if axis < along else axis - indices + 1, None)


def _scatter_add(node: RawNode, axis: int, shapes: Shapes) -> Axes:
    """Along an axis behind the rows."""
    if axis == 0:
        raise _WholeOnly(node.name)
    return (axis, None, axis - 1 + len(shapes[str(node.inputs[1])]))


def _reduce(node: RawNode, axis: int, shapes: Shapes) -> Axes:
    along = node.attrs["axis"] % len(shapes[str(node.inputs[0])])
    if not node.flag("keepdims"):
        return (axis + (axis >= along),)
    if axis == along:
        raise _WholeOnly(node.name)
    return (axis,)


def _along_last(node: RawNode, axis: int, shapes: Shapes) -> Axes:
    rank = len(shapes[node.name])
    if axis == node.attrs.get("axis", -1) % rank:
        raise _WholeOnly(node.name)
    return tuple(_aligned(operand, axis, node, shapes) for operand in node.inputs)


def _scaled(node: RawNode, axis: int, shapes: Shapes) -> Axes:
    """Along an axis before those of groups or blocks."""
    if axis >= len(shapes[node.name]) - len(node.attrs.get("block") or [0]):
        raise _WholeOnly(node.name)
    return tuple(_aligned(operand, axis, node, shapes) for operand in node.inputs)


_RULES: Mapping[str, Callable[[RawNode, int, Shapes], Axes]] = {
    "matmul": _matmul,
    "grouped_matmul": _grouped_matmul,
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _beside,
    "concat": _beside,
    "pad": _pad,
    "gather": _gather,
    "iota": lambda _node, _axis, _shapes: (),
    "scatter_add": _scatter_add,
    "cumsum": _along_last,
    **dict.fromkeys(_REDUCTIONS, _reduce),
    **dict.fromkeys(_NORMS, _along_last),
    **dict.fromkeys(_SCALED, _scaled),
}
