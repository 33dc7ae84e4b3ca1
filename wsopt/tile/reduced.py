"""The same graph at reduced extents: a few tiles each way, with ragged edges, for runs on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wsopt.graph.parse import parse_graph
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.types import Graph
from wsopt.tile.axes import Axes, Dim, find_axes
from wsopt.tile.structures import column_role, row_role
from wsopt.tile.types import Role, Structure

_ALIGNMENT = 16
"""Extents stay multiples of 16 elements, so that TMA can move tensors of every element type."""

_SHORTEST = 8
"""Elements of the streamed axis in the last slab where a tail of 16 is too short for a multiple of 16."""

_BATCHES = 2


def _target(role: Role, s: Structure, trips: int) -> int:
    """About two and a half tiles each way, and enough slabs to go round the ring."""
    if role is row_role(s.swap):
        extent = 2 * s.tile_rows + s.rows // 2
    elif role is column_role(s.swap):
        extent = 2 * s.columns + s.columns // 4
    elif role is Role.STREAM:
        rest = (s.tail or s.depth) * 3 // 4 // _ALIGNMENT * _ALIGNMENT
        return (trips - 1) * s.depth + (rest or _SHORTEST)
    else:
        return _BATCHES
    return -(-extent // _ALIGNMENT) * _ALIGNMENT + _ALIGNMENT // 2 * (role is row_role(s.swap) and not s.swap)


def _extents(axes: Axes, s: Structure, trips: int) -> dict[Dim, int]:
    """The new extent of every axis that has a role; never more than it was."""
    merged = len(axes.batches)
    found = {}
    for axis, role in axes.roles.items():
        target = _target(role, s, trips)
        if role is Role.ROW and merged:
            target = -(-target // (_BATCHES * _ALIGNMENT)) * _ALIGNMENT
        found[axis] = target
    return found


def _shrink(shape: list[int], use: str, axes: Axes, extents: Mapping[Dim, int]) -> list[int]:
    return [
        extent if extent == 1 else min(extent, extents.get(axes.axis(use, dim), extent))
        for dim, extent in enumerate(shape)
    ]


def _dense_strides(shape: list[int], strides: list[int]) -> list[int]:
    """Strides of a dense tensor with its dimensions in the same order in memory."""
    found, step = [0] * len(shape), 1
    for dim in sorted(range(len(shape)), key=lambda d: (strides[d], -d)):
        found[dim] = step
        step *= -(-shape[dim] // _ALIGNMENT) * _ALIGNMENT if step == 1 else shape[dim]
    return found


def _input(item: dict[str, Any], axes: Axes, extents: Mapping[Dim, int]) -> dict[str, Any]:
    for use, layout in axes.layouts.items():
        if layout.tensor == item["name"]:
            shrunk = _shrink(list(layout.extents), use, axes, extents)
            shape = list(item["shape"])
            for position, dim in enumerate(layout.origin):
                shape[dim] = min(shape[dim], shrunk[position])
            item = {**item, "shape": shape}
    if "strides" in item:
        item = {**item, "strides": _dense_strides(item["shape"], item["strides"])}
    return item


def _node(node: dict[str, Any], axes: Axes, extents: Mapping[Dim, int]) -> dict[str, Any]:
    if node["op"] != "iota":
        return node
    shape = _shrink(list(node["attrs"]["shape"]), node["name"], axes, extents)
    return {**node, "attrs": {**node["attrs"], "shape": shape}}


def reduced(graph: Graph, s: Structure, trips: int) -> Graph:
    """The graph with every tiled axis cut to a few tiles of `s`, and the streamed one to `trips` slabs."""
    axes = find_axes(graph)
    extents = _extents(axes, s, trips)
    data = graph_to_json(graph)
    data["inputs"] = [_input(item, axes, extents) for item in data["inputs"]]
    data["nodes"] = [_node(node, axes, extents) for node in data["nodes"]]
    return parse_graph(data, f"{graph.name} at reduced extents")
