"""The JSON Schema says what the op table says."""

from __future__ import annotations

import json
import re
from typing import Any

from graph_examples import MLP, PROBLEMS

from wsopt.graph import OPS, DType, json_schema

NODE = json_schema()["$defs"]["node"]


def case(op: str) -> dict[str, Any]:
    (found,) = (c["then"] for c in NODE["allOf"] if c["if"]["properties"]["op"]["const"] == op)
    return dict(found)


def test_schema_is_json_and_names_its_draft() -> None:
    schema = json_schema()
    assert json.loads(json.dumps(schema)) == schema
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["properties"]["format"] == {"const": "wsopt.graph/1"}
    assert schema["required"] == ["format", "name", "inputs", "nodes", "outputs"]
    assert schema["additionalProperties"] is False


def test_references_lead_somewhere() -> None:
    schema = json_schema()
    names = re.findall(r'"#/\$defs/(\w+)"', json.dumps(schema))
    assert names
    assert set(names) <= set(schema["$defs"])


def test_ops_are_those_of_the_table() -> None:
    assert NODE["properties"]["op"]["enum"] == list(OPS)
    assert [c["if"]["properties"]["op"]["const"] for c in NODE["allOf"]] == list(OPS)
    assert json_schema()["$defs"]["dtype"]["enum"] == [dtype.value for dtype in DType]


def test_attributes_and_operands_are_those_of_the_table() -> None:
    for name, spec in OPS.items():
        fields = case(name)["properties"]
        assert list(fields["attrs"]["properties"]) == [attr.name for attr in spec.attrs]
        assert fields["attrs"].get("required", []) == [attr.name for attr in spec.attrs if attr.required]
        assert (fields["inputs"]["minItems"], fields["inputs"]["maxItems"]) == spec.arity


def test_matmul_takes_names_and_knows_its_choices() -> None:
    fields = case("matmul")["properties"]
    assert fields["inputs"]["prefixItems"] == [{"$ref": "#/$defs/name"}] * 2
    assert fields["attrs"]["properties"]["precision"] == {"enum": ["tf32", "ieee"]}
    assert fields["attrs"]["properties"]["transpose_a"] == {"type": "boolean", "default": False}
    assert case("cast")["required"] == ["inputs", "attrs"]


def test_problem_files_use_only_keys_of_the_schema() -> None:
    schema = json_schema()
    for graph in [MLP, *(json.loads(path.read_text()) for path in PROBLEMS)]:
        assert set(graph) <= set(schema["properties"])
        for entry in graph["inputs"]:
            assert set(entry) <= set(schema["$defs"]["input"]["properties"])
        for entry in graph["nodes"]:
            assert set(entry) <= set(NODE["properties"])
            assert set(entry.get("attrs", {})) <= set(case(entry["op"])["properties"]["attrs"]["properties"])
