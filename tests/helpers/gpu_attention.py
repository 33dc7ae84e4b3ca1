"""Graphs of the attention family as a build folder records them: their JSON, read back without the compiler."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import attention_graphs as a

from wsopt.bench.attention_source import Call, attention_call
from wsopt.bench.raw_region import raw_region
from wsopt.frontend.needed import region_data, work_data
from wsopt.frontend.region import find_region
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.types import Graph
from wsopt.runtime.raw_graph import RawGraph, raw_graph

GRAPHS: dict[str, Graph] = {
    "full": a.attention(),
    "causal": a.attention(a.causal),
    "causal, fewer queries": a.attention(a.causal, a.Sizes(queries=40)),
    "window": a.attention(a.window),
    "window, fewer queries": a.attention(a.window, a.Sizes(queries=40)),
    "around": a.attention(a.around),
    "limit": a.attention(a.key_limit),
    "even": a.attention(a.even),
    "rows": a.attention(a.whole_rows),
    "segments": a.attention(a.segments),
    "soft cap": a.attention(a.soft_cap),
    "cap in a window": a.attention(a.everything),
    "alibi": a.attention(a.alibi),
    "factor a head": a.attention(a.per_head),
    "bias": a.attention(a.bias("batch", "heads", "queries", "keys")),
    "bias a key": a.attention(a.bias("heads", "one", "keys")),
    "chosen": a.attention(a.chosen(-5.0)),
    "written out": a.written_out(),
    "lse": a.with_lse(),
    "lse of a cap": a.with_lse(a.soft_cap),
    "packed": a.packed(a.causal),
    "packed, alibi": a.packed(a.alibi),
    "transposed": a.transposed(),
    "merged": a.merged_heads(),
    "grouped": a.grouped("reshape"),
    "grouped, causal": a.grouped("reshape", a.causal),
    "grouped, tokens first": a.projected(a.causal),
    "grouped as it lies": a.grouped("inputs", a.window),
    "one head of keys": a.multi_query(a.alibi),
    "cleaned": a.cleaned(),
    "two values": a.two_values(),
    "no softmax": a.linear(a.zero_causal),
    "a mean beside": a.shared(),
}


@dataclass(frozen=True)
class Recorded:
    """A graph and its schedule.json as far as baselines read them, by way of JSON text."""

    graph: RawGraph
    schedule: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]

    @property
    def call(self) -> Call:
        return attention_call(self.graph, raw_region(self.schedule["region"]), self.shapes)


def recorded(graph: Graph) -> Recorded:
    region = find_region(graph)
    data = {"region": region_data(region), "work": work_data(region)}
    names = [item.name for item in (*graph.inputs, *graph.nodes)]
    return Recorded(
        raw_graph(json.loads(json.dumps(graph_to_json(graph), allow_nan=False))),
        json.loads(json.dumps(data, allow_nan=False)),
        {name: graph.type_of(name).shape for name in names},
    )
