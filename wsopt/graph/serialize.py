"""graph.json out: the JSON values of a graph, and one canonical byte string to name it by."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from wsopt.graph.extents import Extent, extent_to_json
from wsopt.graph.ops import OPS
from wsopt.graph.parse import FORMAT
from wsopt.graph.types import AttrValue, DType, Graph, Input, Node, Operand


def graph_to_json(graph: Graph, extent: Callable[[int], int | str] = extent_to_json) -> dict[str, Any]:
    """JSON values that `parse_graph` turns into an equal graph; what is at its default is left out.

    `extent` says how each extent is written: expressions of named dimensions as text.
    """
    return {
        "format": FORMAT,
        "name": graph.name,
        **({"doc": graph.doc} if graph.doc else {}),
        **({"deterministic": True} if graph.deterministic else {}),
        "inputs": [_input(item, extent) for item in graph.inputs],
        "nodes": [_node(node, extent) for node in graph.nodes],
        "outputs": list(graph.outputs),
    }


def canonical_bytes(graph: Graph) -> bytes:
    """The graph as UTF-8 JSON without spaces, keys sorted: equal graphs, and only they, give equal bytes.

    `wsopt.graph` is data alone, so these bytes are fit for cache keys.
    """
    return canonical_json(graph_to_json(graph))


def canonical_json(data: dict[str, Any]) -> bytes:
    """JSON values as UTF-8 text without spaces, keys sorted."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")


def scalar_to_json(operand: Operand) -> Operand:
    """A scalar as JSON can hold it: infinities and nan become words. Names pass."""
    if isinstance(operand, str) or math.isfinite(operand):
        return operand
    return "nan" if math.isnan(operand) else "inf" if operand > 0 else "-inf"


def _input(item: Input, extent: Callable[[int], int | str]) -> dict[str, Any]:
    return {
        "name": item.name,
        "shape": [extent(one) for one in item.type.shape],
        "dtype": item.type.dtype.value,
        **({"constant": True} if item.constant else {}),
        **({"strides": list(item.strides)} if item.strides is not None else {}),
    }


def _node(node: Node, extent: Callable[[int], int | str]) -> dict[str, Any]:
    defaults = {spec.name: spec.default for spec in OPS[node.op].attrs if not spec.required}
    attrs = {
        name: attr_to_json(value, extent)
        for name, value in node.attrs
        if name not in defaults or value != defaults[name]
    }
    return {
        "name": node.name,
        "op": node.op,
        "inputs": [scalar_to_json(operand) for operand in node.inputs],
        **({"attrs": attrs} if attrs else {}),
    }


def attr_to_json(value: AttrValue, extent: Callable[[int], int | str] = extent_to_json) -> Any:
    """The JSON value of an attribute."""
    if isinstance(value, DType):
        return value.value
    if isinstance(value, tuple):
        return [extent(one) for one in value]
    return extent(value) if isinstance(value, Extent) else value
