"""The same graph at reduced extents: a few tiles each way, with ragged edges, for runs on the CPU."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from wsopt.graph.parse import parse_graph
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.types import Graph
from wsopt.tile.affine import end_is_masked
from wsopt.tile.axes import Axes, Dim, find_axes
from wsopt.tile.factored import scaled_axes, scaled_products
from wsopt.tile.loop_axes import LoopAxes
from wsopt.tile.region import chain_region, streams_rows
from wsopt.tile.roles import chain_axes, chained_products
from wsopt.tile.row_axes import row_axes
from wsopt.tile.row_products import reduced_axes, reduces_products
from wsopt.tile.structures import column_role, row_role
from wsopt.tile.types import Bound, Role, Structure

_ALIGNMENT = 16
"""Extents stay multiples of 16 elements, so that TMA can move tensors of every element type."""

_SHORTEST = 8
"""Elements of the streamed axis in the last slab where a tail of 16 is too short for a multiple of 16."""

_BATCHES = 2

_FAR = 4096
"""Rows and elements of the streamed axis that are too many to be executed one by one."""


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
    return _alike(found, _dimensions(axes))


def _dimensions(axes: Axes) -> list[set[Dim]]:
    """For every dimension of every input the axes that it is in its uses."""
    known: dict[tuple[str, int], set[Dim]] = {}
    for use, layout in axes.layouts.items():
        for position, dim in enumerate(layout.origin):
            known.setdefault((layout.tensor, dim), set()).add(axes.axis(use, position))
    return list(known.values())


def _alike(extents: Mapping[Dim, int], groups: Iterable[Iterable[Dim]]) -> dict[Dim, int]:
    """The extents, with axes that are one dimension of one input as long as the longest of them."""
    found, changed = dict(extents), True
    together = [[axis for axis in group if axis in found] for group in groups]
    while changed:
        changed = False
        for group in together:
            for axis in group:
                longest = max(found[a] for a in group)
                changed |= found[axis] != longest
                found[axis] = longest
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


def reaching(graph: Graph, s: Structure, trips: int) -> Graph | None:
    """The same with rows and a streamed axis as long as every mask takes to leave something out and let something in.

    None where the few tiles of `reduced` are as long, and where a mask reaches further than `_FAR`.
    """
    if not chained_products(graph):
        return None
    chain = chain_axes(graph)
    reach = max((abs(bound.constant) for bound in _masks(graph, chain)), default=0) + s.depth
    few = _chain_extents(graph, chain, s, trips)
    lengths = [(axis, role) for axis, role in chain.roles.items() if role in (Role.ROW, Role.STREAM)]
    if reach > _FAR or all(min(chain.extent(role), reach) <= few[axis] for axis, role in lengths):
        return None
    least = reach + s.tile_rows + s.depth
    return _reduced_loop(graph, chain, _chain_extents(graph, chain, s, trips, least))


def reduced(graph: Graph, s: Structure, trips: int) -> Graph:
    """The graph with every tiled axis cut to a few tiles of `s`, and the streamed one to `trips` slabs."""
    if chained_products(graph):
        chain = chain_axes(graph)
        return _reduced_loop(graph, chain, _chain_extents(graph, chain, s, trips))
    if streams_rows(graph):
        rows = row_axes(graph)
        return _reduced_loop(graph, rows, _row_extents(rows, s, trips))
    if scaled_products(graph):
        scaled = scaled_axes(graph)
        return _reduced_loop(graph, scaled, _product_extents(scaled, s, (), trips))
    if reduces_products(graph):
        products = reduced_axes(graph)
        return _reduced_loop(graph, products, _product_extents(products, s, (Role.COLUMN,), trips))
    axes = find_axes(graph)
    extents = _extents(axes, s, trips)
    data = graph_to_json(graph)
    data["inputs"] = [_input(item, axes, extents) for item in data["inputs"]]
    data["nodes"] = [_node(node, axes, extents) for node in data["nodes"]]
    return parse_graph(data, f"{graph.name} at reduced extents")


# --- chains of products ---------------------------------------------------------------------------------


def _masks(graph: Graph, axes: LoopAxes) -> list[Bound]:
    """The bounds that masks put on slabs, the end of the streamed axis left out."""
    end = Bound(0, -1, axes.extent(Role.STREAM) - 1)
    return [bound for bound in chain_region(graph).bounds if bound != end]


def _chain_extents(graph: Graph, axes: LoopAxes, s: Structure, trips: int, least: int = 0) -> dict[Dim, int]:
    """The new extent of every axis, of rows and stream `least` where they have it; what a block holds whole stays.

    Queries and keys of one length keep one length, and where a mask ends every row before the streamed axis
    does it still does, so that the region's loop stays what it is. The end of the axis itself moves with it.
    """
    length, bounds = axes.extent(Role.STREAM), _masks(graph, axes)
    least = -(-least // _ALIGNMENT) * _ALIGNMENT
    rows, stream = (
        min(axes.extent(role), max(least, _target(role, s, trips))) for role in (Role.ROW, Role.STREAM)
    )
    if axes.extent(Role.ROW) == length:
        rows = stream = max(rows, stream)
    if end_is_masked(bounds, axes.extent(Role.ROW), length):
        ends = [max(b.constant, b.row * (rows - 1) + b.constant) + 1 for b in bounds if b.stream < 0]
        stream = max(stream, min(ends))
    new = {Role.ROW: rows, Role.STREAM: stream, Role.BATCH: _BATCHES}
    found = {a: min(axes.extents[a], new.get(role, axes.extents[a])) for a, role in axes.roles.items()}
    kept = _split_off(axes)
    if kept & set(
        axes.batches
    ):  # many tiles already: of the other batches only the innermost is more than one
        found.update(dict.fromkeys([a for a in axes.batches if a not in kept][:-1], 1))
    found.update({a: axes.extents[a] for a in kept})
    for shared in _shared_axes(axes):
        least = min(found.get(a, axes.extents[a]) for a in shared if a in kept or not kept & set(shared))
        found.update(dict.fromkeys(shared, least))
    return found


def _split_off(axes: LoopAxes) -> set[Dim]:
    """Axes that lie inside another one in a dimension of an input or an output: a kernel knows their extent."""
    ends = [axes.instance(use, len(path) - 1) for use, path in axes.paths.items()]
    return {
        atom
        for end in (*ends, *axes.graph.outputs)
        for dim in range(len(axes.shapes[end]))
        for atom in axes.atoms(end, dim)[1:]
    }


def _shared_axes(axes: LoopAxes) -> list[tuple[Dim, ...]]:
    """Axes that are one dimension of one input, which is used more than once: they keep one extent."""
    known: dict[tuple[str, int, int], list[Dim]] = {}
    for use, path in axes.paths.items():
        end = axes.instance(use, len(path) - 1)
        for dim in range(len(axes.shapes[end])):
            for place, atom in enumerate(axes.atoms(end, dim)):
                known.setdefault((path[-1], dim, place), []).append(atom)
    return [tuple(dict.fromkeys(atoms)) for atoms in known.values() if len(set(atoms)) > 1]


def _row_extents(axes: LoopAxes, s: Structure, trips: int) -> dict[Dim, int]:
    """The new extent of every axis of streamed rows: `trips` tiles for each of two blocks, the last one ragged.

    There are as many rows as that takes, also where the graph has fewer: the kernel is called with any number. A row
    stays as long as it is: what it is divided by is part of the kernel.
    """
    tiles = _BATCHES * trips
    batches = min(_BATCHES, math.prod(axes.extents[a] for a in axes.batches))
    rows = math.ceil(tiles / batches) * s.tile_rows - s.tile_rows // 2
    few = {Role.BATCH: _BATCHES, Role.ROW: 1}
    found = {a: min(axes.extents[a], few.get(role, axes.extents[a])) for a, role in axes.roles.items()}
    found |= {a: rows for a, role in axes.roles.items() if role is Role.ROW and axes.extents[a] > 1}
    return found | dict.fromkeys(axes.batches[1:], 1)


def _product_extents(axes: LoopAxes, s: Structure, whole: tuple[Role, ...], trips: int) -> dict[Dim, int]:
    """The new extent of every axis of products with reductions; axes that a block holds `whole` stay."""
    new = {role: _target(role, s, trips) for role in (Role.ROW, Role.COLUMN, Role.STREAM, Role.BATCH)}
    for role in whole:
        new.pop(role)
    found = {a: min(axes.extents[a], new.get(role, axes.extents[a])) for a, role in axes.roles.items()}
    return _alike(found, _shared_axes(axes)) | dict.fromkeys(axes.batches[1:], 1)


def _reduced_loop(graph: Graph, axes: LoopAxes, extents: Mapping[Dim, int]) -> Graph:
    """A graph whose axes are told apart by atoms at reduced extents: inputs, indices and reshapes alike."""
    instances = {name: name for name in axes.shapes}
    for use, path in axes.paths.items():
        instances.update({name: axes.instance(use, index) for index, name in enumerate(path)})

    def shape(name: str) -> list[int]:
        use = instances[name]
        return [
            math.prod(extents.get(a, axes.extents[a]) for a in axes.atoms(use, dim))
            for dim in range(len(axes.shapes[use]))
        ]

    data = graph_to_json(graph)
    for item in (*data["inputs"], *data["nodes"]):
        if item["name"] not in instances:
            continue  # nothing that an output needs
        if "shape" in item:
            item["shape"] = shape(item["name"])
        if "strides" in item:
            item["strides"] = _dense_strides(item["shape"], item["strides"])
        if "shape" in item.get("attrs", {}):
            item["attrs"]["shape"] = shape(item["name"])
    live = set(instances)
    data["inputs"] = [item for item in data["inputs"] if item["name"] in live]
    data["nodes"] = [item for item in data["nodes"] if item["name"] in live]
    return parse_graph(data, f"{graph.name} at reduced extents")
