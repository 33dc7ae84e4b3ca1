"""Bounds of arg max, running sums and rows that are added, in torch: whole, and block by block."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from wsopt.runtime.agreement import agreement, expectations  # noqa: E402
from wsopt.runtime.raw_graph import raw_graph  # noqa: E402

GRAPH: dict[str, Any] = {
    "format": "wsopt.graph/1",
    "name": "places",
    "inputs": [
        {"name": "x", "shape": [64, 32], "dtype": "bf16"},
        {"name": "indices", "shape": [40], "dtype": "i32"},
        {"name": "rows", "shape": [40, 32], "dtype": "bf16"},
    ],
    "nodes": [
        {"name": "grown", "op": "exp", "inputs": ["x"]},
        {"name": "more", "op": "exp", "inputs": ["rows"]},
        {"name": "place", "op": "reduce_argmax", "inputs": ["grown"], "attrs": {"axis": 1}},
        {"name": "sums", "op": "cumsum", "inputs": ["grown"], "attrs": {"axis": -1}},
        {"name": "added", "op": "scatter_add", "inputs": ["grown", "indices", "more"]},
    ],
    "outputs": ["place", "sums", "added"],
}


@pytest.mark.parametrize("block_bytes", [2**31, 4000])
@pytest.mark.parametrize("output", GRAPH["outputs"])
def test_what_is_right_is_accepted_and_what_is_off_is_not(output: str, block_bytes: int) -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = {
        "x": torch.randn(64, 32, generator=generator).bfloat16(),
        "indices": torch.randint(-2, 66, (40,), dtype=torch.int32, generator=generator),
        "rows": torch.randn(40, 32, generator=generator).bfloat16(),
    }
    alone = raw_graph({**GRAPH, "outputs": [output]})
    expected = expectations(alone, inputs, block_bytes=block_bytes)[output]
    assert agreement(expected.value, expected, 1e-4).accepted
    off = expected.value.clone()
    off[3] += 1
    assert not agreement(off, expected, 1e-4).accepted
