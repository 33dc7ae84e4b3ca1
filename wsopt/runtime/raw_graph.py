"""Reads graph.json with the standard library alone, to run a build folder where only a part of wsopt is installed.

The graph in a build folder has been checked when it was compiled; here only its shape as data is relied on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wsopt.errors import InputError, Problem

Operand = str | int | float
WORDS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
_BITS = {
    "f32": 32,
    "f16": 16,
    "bf16": 16,
    "f8e4m3": 8,
    "f8e5m2": 8,
    "i32": 32,
    "i8": 8,
    "i4": 4,
    "bool": 8,
}


@dataclass(frozen=True, slots=True)
class RawInput:
    """An input: its shape, dtype word, whether its contents are fixed, strides in elements or None."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    constant: bool
    strides: tuple[int, ...] | None

    @property
    def nbytes(self) -> int:
        """Bytes of its elements, i4 packed."""
        return bytes_of(self.shape, self.dtype)


@dataclass(frozen=True, slots=True)
class RawNode:
    """A node: operands are tensor names or numbers; `attrs` holds what the file gives, no defaults."""

    name: str
    op: str
    inputs: tuple[Operand, ...]
    attrs: Mapping[str, Any]

    @property
    def tensors(self) -> tuple[str, ...]:
        """The operands that are tensors, in order."""
        return tuple(item for item in self.inputs if isinstance(item, str))

    def flag(self, name: str) -> bool:
        """A true-or-false attribute, false if not given."""
        return bool(self.attrs.get(name, False))


@dataclass(frozen=True, slots=True)
class RawGraph:
    """A graph with its nodes in an order in which they can be computed."""

    name: str
    inputs: tuple[RawInput, ...]
    nodes: tuple[RawNode, ...]
    outputs: tuple[str, ...]

    def input(self, name: Operand) -> RawInput | None:
        """The input of this name, or None."""
        return next((item for item in self.inputs if item.name == name), None)

    def node(self, name: Operand) -> RawNode | None:
        """The node of this name, or None."""
        return next((item for item in self.nodes if item.name == name), None)

    def uses(self, name: str) -> int:
        """How often a tensor is read, being an output counted too."""
        return sum(node.tensors.count(name) for node in self.nodes) + self.outputs.count(name)


def bytes_of(shape: tuple[int, ...], dtype: str) -> int:
    """Bytes of a dense tensor, i4 packed two to a byte."""
    return (math.prod(shape) * _BITS[dtype] + 7) // 8


_COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
_WHOLE = ("add", "sub", "mul", "neg", "abs", "maximum", "minimum", "cast", "reshape", "transpose")


def compared_extents(graph: RawGraph) -> dict[str, int]:
    """The inputs of i32 that are compared with indices, each with the largest extent that those count along.

    The same as `graph/lengths.py` has it: they and the indices may be added to others, and be seen through views.
    """
    found: dict[str, int] = {}
    for node in (node for node in graph.nodes if node.op in _COMPARISONS):
        reached = set(node.tensors)
        for below in reversed(graph.nodes):
            if below.name in reached and below.op in _WHOLE:
                reached.update(below.tensors)
        counted = (one for one in graph.nodes if one.name in reached and one.op == "iota")
        extent = max((one.attrs["shape"][one.attrs["axis"]] for one in counted), default=0)
        for item in graph.inputs if extent else ():
            if item.name in reached and item.dtype == "i32":
                found[item.name] = max(found.get(item.name, 0), extent)
    return found


def gathered_extents(graph: RawGraph) -> dict[str, int]:
    """The inputs that `gather` and `scatter_add` take their indices from, each with the least extent that they choose
    from: of the shapes of inputs, which tables are.
    """
    found: dict[str, int] = {}
    for node in (node for node in graph.nodes if node.op in ("gather", "scatter_add")):
        table, item = (seen_input(graph, name) for name in node.tensors[:2])
        if table is not None and item is not None:
            extent = min(found.get(item.name, 2**31 - 1), table.shape[int(node.attrs.get("axis", 0))])
            found[item.name] = extent
    return found


def seen_input(graph: RawGraph, name: str) -> RawInput | None:
    """The input that a tensor is, as it is or in another shape; None if it is computed."""
    node = graph.node(name)
    while node is not None and node.op in ("reshape", "transpose", "slice", "pad"):
        name = node.tensors[0]
        node = graph.node(name)
    return graph.input(name)


def load_raw_graph(path: Path) -> RawGraph:
    """The graph of a file. Raises InputError if it is not a graph, OSError if it cannot be read."""
    try:
        return raw_graph(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(str(path), [Problem("", f"not a graph: {type(error).__name__}: {error}")]) from error


def raw_graph(document: Mapping[str, Any]) -> RawGraph:
    """The graph of a parsed graph.json. Raises KeyError, TypeError or ValueError if it is none."""
    inputs = tuple(_input(item) for item in document["inputs"])
    nodes = [_node(item) for item in document["nodes"]]
    ordered = _ordered(nodes, {item.name for item in inputs})
    return RawGraph(str(document["name"]), inputs, ordered, tuple(document["outputs"]))


def _input(item: Mapping[str, Any]) -> RawInput:
    strides = item.get("strides")
    return RawInput(
        item["name"],
        tuple(map(int, item["shape"])),
        item["dtype"],
        bool(item.get("constant", False)),
        None if strides is None else tuple(map(int, strides)),
    )


def _node(item: Mapping[str, Any]) -> RawNode:
    operands = tuple(WORDS.get(word, word) for word in item.get("inputs", ()))
    return RawNode(item["name"], item["op"], operands, dict(item.get("attrs") or {}))


def _ordered(nodes: list[RawNode], known: set[str]) -> tuple[RawNode, ...]:
    ordered: list[RawNode] = []
    while nodes:
        ready = [node for node in nodes if known.issuperset(node.tensors)]
        if not ready:
            raise ValueError(f"node {nodes[0].name} cannot be computed")
        ordered += ready
        known.update(node.name for node in ready)
        nodes = [node for node in nodes if node.name not in known]
    return tuple(ordered)
