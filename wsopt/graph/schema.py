"""The JSON Schema of graph.json, made from the op table so that the two cannot drift apart.

It says what a schema can: keys, kinds, ranges, and the operands and attributes of each op. Names, cycles,
shapes and dtypes are judged by `parse_graph` alone.
"""

from __future__ import annotations

from typing import Any, assert_never

from wsopt.graph.dims import DIM_KEYS, MOST_DIMS
from wsopt.graph.draft import INPUT_KEYS, NODE_KEYS
from wsopt.graph.fields import DTYPE_WORDS, NAME_PATTERN, SCALAR_WORDS
from wsopt.graph.infer import MAX_EXTENT, MAX_RANK
from wsopt.graph.op_spec import AttrKind, AttrSpec, OpSpec
from wsopt.graph.ops import OPS
from wsopt.graph.parse import FORMAT, GRAPH_KEYS

Schema = dict[str, Any]


def json_schema() -> Schema:
    """The schema (draft 2020-12) as JSON values, new at every call."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": FORMAT,
        "description": "A compute graph: what to compute, and nothing about how.",
        **_object(
            GRAPH_KEYS,
            {
                "format": {"const": FORMAT},
                "name": _ref("name"),
                "doc": {"type": "string"},
                "deterministic": {"type": "boolean", "default": False},
                "dims": _dims(),
                "inputs": {"type": "array", "items": _ref("input")},
                "nodes": {"type": "array", "items": _ref("node")},
                "outputs": {"type": "array", "items": _ref("name"), "minItems": 1, "uniqueItems": True},
            },
        ),
        "$defs": _definitions(),
    }


def _definitions() -> Schema:
    return {
        "name": {"type": "string", "pattern": f"^{NAME_PATTERN}$", "not": {"enum": list(SCALAR_WORDS)}},
        "dtype": {"enum": list(DTYPE_WORDS)},
        "shape": _shape(),
        "scalar": {"anyOf": [{"type": "number"}, {"enum": list(SCALAR_WORDS)}]},
        "operand": {"anyOf": [_ref("name"), _ref("scalar")]},
        "input": _object(
            INPUT_KEYS,
            {
                "name": _ref("name"),
                "shape": _ref("shape"),
                "dtype": _ref("dtype"),
                "constant": {"type": "boolean", "default": False},
                "strides": _integers(0),
            },
        ),
        "node": _node(),
    }


def _dims() -> Schema:
    extent = {"type": "integer", "minimum": 1, "maximum": MAX_EXTENT}
    weights = {
        "type": "object",
        "propertyNames": {"pattern": "^[0-9]+$"},
        "additionalProperties": {"type": "number", "exclusiveMinimum": 0},
    }
    typical = {"anyOf": [{"type": "array", "items": extent, "uniqueItems": True}, weights]}
    return {
        "type": "object",
        "propertyNames": _ref("name"),
        "minProperties": 1,
        "maxProperties": MOST_DIMS,
        "additionalProperties": _object(DIM_KEYS, {"min": extent, "max": extent, "typical": typical}),
    }


def _shape() -> Schema:
    """Extents: numbers, and where the graph has dims sums of products of numbers and names."""
    return {"type": "array", "items": _or_named(1), "maxItems": MAX_RANK}


def _or_named(least: int) -> Schema:
    """A number from `least` on, or a sum of products of numbers and names."""
    factor = rf"\s*({NAME_PATTERN}|[0-9]+)\s*"
    words = {"type": "string", "pattern": f"^{factor}([+*]{factor})*$"}
    return {"anyOf": [{"type": "integer", "minimum": least, "maximum": MAX_EXTENT}, words]}


def _node() -> Schema:
    fields = {
        "name": _ref("name"),
        "op": {"enum": list(OPS)},
        "inputs": {"type": "array", "items": _ref("operand"), "default": []},
        "attrs": {"type": "object", "default": {}},
    }
    cases = [
        {"if": {"properties": {"op": {"const": spec.name}}}, "then": _operation(spec)}
        for spec in OPS.values()
    ]
    return {**_object(NODE_KEYS, fields), "allOf": cases}


def _operation(spec: OpSpec) -> Schema:
    required = [attr.name for attr in spec.attrs if attr.required]
    optional = [attr.name for attr in spec.attrs if not attr.required]
    attrs = _object((required, optional), {attr.name: _attr(attr) for attr in spec.attrs})
    least, most = spec.arity
    roles = [_ref("operand" if role in spec.scalars else "name") for role in spec.operands]
    inputs = {**({"prefixItems": roles} if roles else {}), "minItems": least, "maxItems": most}
    needed = [*(["inputs"] if least else []), *(["attrs"] if required else [])]
    return {
        "description": spec.doc,
        "properties": {"inputs": inputs, "attrs": attrs},
        **({"required": needed} if needed else {}),
    }


def _attr(spec: AttrSpec) -> Schema:
    default = {} if spec.required or spec.default is None else {"default": spec.default}
    return {**_kind(spec), **default}


def _kind(spec: AttrSpec) -> Schema:
    match spec.kind:
        case AttrKind.FLAG:
            return {"type": "boolean"}
        case AttrKind.COUNT:
            return {"type": "integer", "minimum": 1, "maximum": MAX_EXTENT}
        case AttrKind.AXIS:
            return {"type": "integer", "minimum": -MAX_RANK, "maximum": MAX_RANK - 1}
        case AttrKind.PLACE:
            return _or_named(-MAX_EXTENT)
        case AttrKind.REAL:
            return {"type": "number", "minimum": 0}
        case AttrKind.CHOICE:
            return {"enum": list(spec.choices)}
        case AttrKind.DTYPE:
            return _ref("dtype")
        case AttrKind.SHAPE:
            return _ref("shape")
        case AttrKind.PERM:
            return _integers(0)
        case AttrKind.COUNTS:
            return {"type": "array", "items": _or_named(0), "maxItems": MAX_RANK}
        case AttrKind.BLOCK:
            return {**_integers(1), "minItems": 2, "maxItems": 2}
        case _:
            assert_never(spec.kind)


def _integers(least: int) -> Schema:
    extent = {"type": "integer", "minimum": least, "maximum": MAX_EXTENT}
    return {"type": "array", "items": extent, "maxItems": MAX_RANK}


def _object(keys: tuple[Any, Any], properties: Schema) -> Schema:
    required = list(keys[0])
    return {
        "type": "object",
        "properties": properties,
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}
