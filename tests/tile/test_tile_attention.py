"""Attention-like graphs: their regions, evaluated slab by slab, give what the graphs mean."""

from __future__ import annotations

import numpy as np
import pytest
from attention_graphs import Sizes, attention, causal
from region_numpy import Counts, evaluate_region

from wsopt.graph.reference import evaluate, random_inputs, relative_error
from wsopt.graph.types import Graph
from wsopt.tile.region import find_region

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
    assert counts.unmasked == (keys // 16) * 12  # every slab that does not reach beyond the end


@pytest.mark.parametrize(("queries", "keys"), [(72, 72), (40, 104), (64, 128), (96, 64)])
def test_causal_attention(queries: int, keys: int) -> None:
    counts = check(attention(causal, Sizes(queries=queries, keys=keys)))
    assert counts.unmasked or queries > keys
    assert counts.skipped
