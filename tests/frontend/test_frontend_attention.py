"""Attention-like graphs: their regions, evaluated K-block by K-block, give what the graphs mean."""

from __future__ import annotations

import math

import attention_graphs as a
import numpy as np
import pytest
from attention_graphs import Sizes, attention, causal
from region_numpy import Counts, evaluate_region

from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder
from wsopt.graph.reference import evaluate, random_inputs, relative_error
from wsopt.graph.types import Graph

TOLERANCE = {"bf16": 8e-3, "f16": 1.5e-3, "f32": 8e-3}


def check(graph: Graph, seed: int = 0, tolerance: float | None = None) -> Counts:
    """Evaluate with masks everywhere, and with bounds that skip and unmask; the counts of the latter."""
    region = find_region(graph)
    inputs = random_inputs(graph, seed)
    wanted = evaluate(graph, inputs)
    counts = Counts()
    for split in (False, True):
        found, counts = evaluate_region(graph, region, inputs, split=split)
        for name, array in wanted.items():
            limit = tolerance or TOLERANCE[graph.type_of(name).dtype.value]
            assert relative_error(found[name].astype(np.float32), array.astype(np.float32)) < limit
    return counts


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("keys", [64, 72, 100])
def test_full_attention(keys: int, dtype: str) -> None:
    counts = check(attention(sizes=Sizes(keys=keys, dtype=dtype)))
    assert counts.skipped == 0
    assert counts.unmasked == (keys // 16) * 12  # every K-block that does not reach beyond the end


@pytest.mark.parametrize(("queries", "keys"), [(72, 72), (40, 104), (64, 128), (96, 64)])
def test_causal_attention(queries: int, keys: int) -> None:
    counts = check(attention(causal, Sizes(queries=queries, keys=keys)))
    assert counts.unmasked or queries > keys
    assert counts.skipped


FORMS: dict[str, tuple[Graph, bool]] = {
    "window": (attention(a.window), True),
    "window both ways": (attention(a.around), True),
    "nested masks": (attention(a.nested), True),
    "soft cap": (attention(a.soft_cap), False),
    "normed scores": (a.linear(a.rms_normed), False),
    "cap, causal, window": (attention(a.everything), True),
    "alibi": (attention(a.alibi), True),
    "bias": (attention(a.bias("queries", "keys")), False),
    "bias by head": (attention(a.bias("batch", "heads", "queries", "keys")), False),
    "bias of keys": (attention(a.bias("batch", "one", "one", "keys", dtype="f32")), False),
    "bias of queries": (attention(a.bias("heads", "queries", "one", dtype="f32")), False),
    "key limit": (attention(a.key_limit), True),
    "factor by head": (attention(a.per_head), False),
    "segments": (attention(a.segments), True),
    "added mask": (attention(a.added(-math.inf)), True),
    "added large": (attention(a.added(-1e30)), True),
    "chosen large": (attention(a.chosen(-1e9)), True),
    "chosen small": (attention(a.chosen(-3.0)), False),
    "rows with nothing": (attention(a.whole_rows), True),
    "rows with nothing but large": (attention(lambda p, x: p.g.where(p.rows < 20, x, -1e9)), False),
    "every second": (attention(a.even), False),
    "cross": (attention(sizes=Sizes(queries=40, keys=150, column=32)), False),
    "one query": (attention(sizes=Sizes(queries=1)), False),
    "one key": (attention(sizes=Sizes(keys=1)), False),
    "one head": (attention(causal, Sizes(batch=1, heads=1)), True),
    "written out": (a.written_out(), True),
    "written out, safe": (a.written_out(a.whole_rows, safe=True), True),
    "sink": (a.with_sink(), True),
    "sink, rows with nothing": (a.with_sink(a.whole_rows), True),
    "joined sink": (a.with_joined_sink(), True),
    "joined sink, rows with nothing": (a.with_joined_sink(a.whole_rows), True),
    "written out, lse": (a.written_out(lse=True), True),
    "lse": (a.with_lse(), True),
    "lse, full, ragged": (a.with_lse(lambda _, x: x, Sizes(keys=75)), False),
    "grouped": (a.grouped("reshape"), False),
    "grouped causal": (a.grouped("reshape", causal), True),
    "grouped as it lies": (a.grouped("inputs"), False),
    "grouped as it lies, causal": (a.grouped("inputs", causal), True),
    "multi-query": (a.multi_query(), False),
    "multi-query causal": (a.multi_query(causal), True),
    "linear": (a.linear(), False),
    "linear causal": (a.linear(a.zero_causal), True),
    "linear f16": (a.linear(a.zero_causal, Sizes(dtype="f16")), True),
    "linear normal": (a.linear(a.zero_causal, normal=True), True),
    "retention": (a.linear(a.rescaled, Sizes(keys=70)), True),
    "packed heads": (a.packed(), False),
    "packed heads, causal": (a.packed(causal), True),
    "merged heads": (a.merged_heads(), False),
    "transposed": (a.transposed(), False),
    "one tensor": (a.shared(), False),
    "cleaned of nan": (a.cleaned(), True),
    "alibi, all keys": (
        attention(lambda p, x: x + a.slopes(p) * p.g.cast(p.columns - p.rows, dtype="f32")),
        False,
    ),
    "grouped, bias of queries": (
        a.grouped("inputs", lambda p, x: x + p.g.input("b", (p.sizes.queries, 1), "f32")),
        False,
    ),
    "two values": (a.two_values(), True),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms(form: str) -> None:
    graph, skips = FORMS[form]
    counts = check(graph)
    assert bool(counts.skipped) == skips


@pytest.mark.parametrize("sink", [-1e4, -3.0, 1e4, math.inf, -math.inf])
def test_a_sink_of_any_size_takes_its_share(sink: float) -> None:
    """Rows that see no key give zeros, but for a sink of -inf: then nothing is left to divide by."""
    graph = a.with_sink(a.whole_rows)
    region, inputs = find_region(graph), random_inputs(graph, 0)
    inputs["sink"] = np.full_like(inputs["sink"], sink)
    wanted = evaluate(graph, inputs)["o"].astype(np.float32)
    found = evaluate_region(graph, region, inputs, split=True)[0]["o"].astype(np.float32)
    assert np.array_equal(np.isnan(found), np.isnan(wanted))
    assert np.linalg.norm(np.nan_to_num(found - wanted)) <= 8e-3 * np.linalg.norm(np.nan_to_num(wanted))


def zero_one(large: float, *, reversed_: bool) -> Graph:
    """Attention under a mask of zeros and ones, which becomes a large negative number where it is zero."""
    g = GraphBuilder("masked")
    q, k, v = (g.input(name, (1, 2, 48, 16), "bf16") for name in "qkv")
    mask = g.input("mask", (1, 1, 1, 48), "f32")
    off = g.mul(g.sub(mask, 1.0), large) if reversed_ else g.mul(g.sub(1.0, mask), -large)
    scores = g.add(g.mul(g.matmul(q, k, transpose_b=True), 0.25), off)
    weights = g.cast(g.softmax(scores, axis=-1), dtype="bf16")
    g.output(g.cast(g.matmul(weights, v), dtype="bf16", name="o"))
    return g.build()


@pytest.mark.parametrize("large", [1e4, 1e9, 3.4028234663852886e38])
@pytest.mark.parametrize("reversed_", [False, True])
def test_scores_keep_their_digits_under_masks_of_zeros_and_ones(large: float, reversed_: bool) -> None:
    graph = zero_one(large, reversed_=reversed_)
    region, inputs = find_region(graph), random_inputs(graph, 0)
    inputs["mask"] = (np.arange(48) % 3 != 0).astype(np.float32).reshape(1, 1, 1, 48)
    wanted = evaluate(graph, inputs)["o"].astype(np.float32)
    for split in (False, True):
        found, _ = evaluate_region(graph, region, inputs, split=split)
        assert relative_error(found["o"].astype(np.float32), wanted) < TOLERANCE["bf16"]


@pytest.mark.parametrize(
    ("batch", "queries", "keys"), [(1, 1, 1), (1, 8, 1), (2, 8, 1), (2, 1, 1), (2, 8, 72)]
)
def test_a_single_key_of_grouped_heads_is_what_streams(batch: int, queries: int, keys: int) -> None:
    """Of two axes of one element that a reshape leaves, the inner one is that of the keys."""
    g = GraphBuilder("grouped")
    q = g.input("q", (batch, 4, queries, 64), "bf16")
    k, v = (g.input(name, (batch, 2, keys, 64), "bf16") for name in "kv")
    groups = g.reshape(q, shape=(batch, 2, 2, queries, 64))
    k, v = (g.reshape(one, shape=(batch, 2, 1, keys, 64)) for one in (k, v))
    p = g.cast(g.softmax(g.matmul(groups, k, transpose_b=True) * 0.125), dtype="bf16")
    g.output(g.reshape(g.cast(g.matmul(p, v), dtype="bf16"), shape=(batch, 4, queries, 64), name="y"))
    graph = g.build()
    assert [view.tensor for view in find_region(graph).stationary_operands] == ["q"]
    check(graph)
