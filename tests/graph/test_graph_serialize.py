"""Out and in again: the round trip of random graphs, and canonical bytes."""

from __future__ import annotations

import json
import math
from typing import Any

from graph_examples import MLP, PROBLEMS, changed, node
from hypothesis import given, settings
from hypothesis import strategies as st

from wsopt.graph import Graph, GraphBuilder, Symbol, canonical_bytes, graph_to_json, load_graph, parse_graph

SCALARS = st.one_of(
    st.integers(-(2**31), 2**31 - 1),
    st.floats(width=32, allow_nan=False),
    st.just(math.nan),
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "where", "softmax", "reduce", "cast", "transpose", "gelu", "iota"]), SCALARS
    ),
    min_size=1,
    max_size=8,
)


def build(doc: str, shape: list[int], steps: list[tuple[str, float]], strided: bool) -> Graph:
    """A chain of ops with scalars and attributes of every kind."""
    g = GraphBuilder("random", doc)
    strides = [2 * extent for extent in shape] if strided else None
    x: Symbol = g.input("x", shape, "f16", constant=strided, strides=strides)
    for kind, scalar in steps:
        match kind:
            case "add":
                x = scalar + x
            case "where":
                x = g.where(x < scalar, x, scalar)
            case "softmax" if x.shape:
                x = g.softmax(x, axis=0)
            case "reduce" if x.shape:
                x = g.reduce_max(x, -1, keepdims=True)
            case "cast":
                x = g.cast(x, "bf16")
            case "transpose":
                x = g.transpose(x, range(len(x.shape))[::-1])
            case "iota" if x.shape:
                x = x * g.iota(x.shape, -1)
            case _:
                x = g.gelu(x, approximate="tanh")
    g.output(g.neg(x))
    return g.build()


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=20), st.lists(st.integers(1, 9), max_size=3), STEPS, st.booleans())
def test_round_k_iteration(doc: str, shape: list[int], steps: list[tuple[str, float]], strided: bool) -> None:
    graph = build(doc, shape, steps, strided)
    again = parse_graph(graph_to_json(graph), "again")
    assert again == graph
    assert parse_graph(json.dumps(graph_to_json(graph), allow_nan=False), "text") == graph
    assert canonical_bytes(again) == canonical_bytes(graph)
    assert parse_graph(canonical_bytes(graph).decode(), "canonical") == graph


def test_problems_round_k_iteration() -> None:
    for path in PROBLEMS:
        graph = load_graph(path)
        assert parse_graph(graph_to_json(graph), "again") == graph


def test_defaults_are_left_out_and_do_not_matter() -> None:
    assert graph_to_json(parse_graph(MLP, "t")) == MLP
    spelt: dict[str, Any] = {
        "/inputs/0/constant": False,
        "/inputs/0/strides": [16, 1],
        "/nodes/0/attrs/accumulate": "f32",
        "/nodes/1/attrs": {},
    }
    assert canonical_bytes(parse_graph(changed(spelt), "t")) == canonical_bytes(parse_graph(MLP, "t"))


def test_canonical_bytes_tell_graphs_apart() -> None:
    variants = [
        {},
        {"/name": "other"},
        {"/doc": "é"},
        {"/inputs/0/strides": [32, 1]},
        {"/nodes/2/attrs": {}},
        {"/nodes/-": node("s", "add", "a", 1)},
        {"/nodes/-": node("s", "add", "a", 1.0)},
        {"/nodes/-": node("s", "add", "a", "nan")},
        {"/nodes/-": node("s", "add", "a", "-inf")},
    ]
    found = [canonical_bytes(parse_graph(changed(changes), "t")) for changes in variants]
    assert len(set(found)) == len(variants)
    assert "é".encode() in found[2]
    assert b" " not in found[3].replace(b"y = gelu(x @ w.T + b)", b"")
