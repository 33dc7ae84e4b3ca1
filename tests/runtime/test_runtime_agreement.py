"""Bounds and comparisons in torch against those in NumPy, whole and in blocks. Skipped where there is no torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from gpu_graphs import CASES, PROBLEMS, document, small, to_torch  # noqa: E402

from wsopt import graph as numpy_graph  # noqa: E402
from wsopt.agreement.judge import Expected  # noqa: E402
from wsopt.graph import agreement as numpy_agreement  # noqa: E402
from wsopt.runtime.agreement import agreement, expectations  # noqa: E402
from wsopt.runtime.blocks import plan  # noqa: E402
from wsopt.runtime.inputs import random_inputs  # noqa: E402
from wsopt.runtime.raw_graph import RawGraph, load_raw_graph, raw_graph  # noqa: E402
from wsopt.runtime.torch_reference import evaluate, shapes  # noqa: E402

TOLERANCE = 1e-2


def both(data: dict[str, Any]) -> list[tuple[Expected, Expected]]:
    """What torch and NumPy expect of each output of a graph."""
    parsed = numpy_graph.parse_graph(json.dumps(data), "test")
    arrays = numpy_graph.random_inputs(parsed, 7)
    raw = raw_graph(data)
    tensors = {item.name: to_torch(arrays[item.name], item.dtype) for item in raw.inputs}
    ours, theirs = expectations(raw, tensors), numpy_agreement.expectations(parsed, arrays)
    return [(ours[name], theirs[name]) for name in raw.outputs]


def alike(ours: Any, theirs: Any) -> None:
    assert (ours is None) == (theirs is None)
    if ours is not None:
        found, wanted = ours.double().numpy(), np.asarray(theirs, np.float64)
        np.testing.assert_allclose(np.broadcast_to(found, wanted.shape), wanted, rtol=2e-2, atol=1e-9)


@pytest.mark.parametrize(("inputs", "op", "operands", "attrs"), CASES)
def test_bounds_agree_with_numpy(inputs: Any, op: str, operands: Any, attrs: Any) -> None:
    for ours, theirs in both(document(inputs, op, operands, attrs)):
        assert ours.dtype == theirs.dtype
        alike(ours.allowed, theirs.allowed)
        alike(ours.flip, theirs.flip)


@pytest.mark.parametrize("path", PROBLEMS, ids=lambda path: path.stem)
def test_bounds_of_problems_agree_with_numpy(path: Path) -> None:
    for ours, theirs in both(small(path)):
        # Two evaluations of one graph are both right kernels of it.
        assert (np.abs(ours.centre.numpy() - theirs.centre) <= theirs.allowed).all()
        alike(ours.allowed, theirs.allowed)


@pytest.mark.parametrize("path", PROBLEMS, ids=lambda path: path.stem)
def test_blocks_put_together_are_the_whole(path: Path) -> None:
    raw = raw_graph(small(path))
    inputs = random_inputs(raw, 3, "cpu")
    whole, blocks = expectations(raw, inputs), expectations(raw, inputs, block_bytes=1)
    assert plan(raw, extents(raw)) is not None
    meant = evaluate(raw, inputs)
    for name in raw.outputs:
        assert agreement(meant[name], whole[name], TOLERANCE).accepted
        assert agreement(meant[name], blocks[name], TOLERANCE).accepted
        assert blocks[name].value.shape == whole[name].value.shape
        assert ((blocks[name].centre - whole[name].centre).abs() <= whole[name].allowed).all()
        torch.testing.assert_close(blocks[name].allowed, whole[name].allowed, rtol=1e-2, atol=1e-9)


def extents(raw: RawGraph) -> dict[str, tuple[int, ...]]:
    return {name: shape for name, (shape, _) in shapes(raw).items()}


def test_long_attention_goes_head_by_head() -> None:
    (path,) = [path for path in PROBLEMS if path.stem == "attention_16k_causal"]
    raw = load_raw_graph(path)
    found = plan(raw, extents(raw))
    assert found is not None
    assert (found.extent, found.outputs) == (16, (("o", 1),))
    scores = [node for node, _, _ in found.sliced if node.op == "matmul"]
    assert len(scores) == 2
    # The mask is the same for all heads.
    assert {raw.node(name).op for name in found.whole} == {"iota", "less_equal"}  # type: ignore[union-attr]


def test_rows_of_a_product_are_blocks_and_sums_over_them_are_not() -> None:
    data = document([([64, 8], "bf16"), ([8, 16], "bf16")], "matmul", ["i0", "i1"], {})
    found = plan(raw_graph(data), extents(raw_graph(data)))
    assert found is not None
    assert (found.extent, found.outputs) == (64, (("y", 0),))
    data["nodes"].append({"name": "s", "op": "reduce_sum", "inputs": ["y"], "attrs": {"axis": 0}})
    data["outputs"] = ["s"]
    found = plan(raw_graph(data), extents(raw_graph(data)))
    assert found is not None
    assert (found.extent, found.outputs) == (16, (("s", 0),))
    data["nodes"][1]["attrs"]["axis"] = 1
    data["nodes"].append({"name": "p", "op": "softmax", "inputs": ["s"], "attrs": {"axis": 0}})
    data["outputs"] = ["p"]
    assert plan(raw_graph(data), extents(raw_graph(data))) is None
    inputs = random_inputs(raw_graph(data), 0, "cpu")
    assert expectations(raw_graph(data), inputs)["p"].allowed.shape == (64,)


def test_one_wrong_row_and_one_wrong_element_among_thousands() -> None:
    data = document([([8192, 64], "bf16"), ([64, 32], "bf16")], "matmul", ["i0", "i1"], {})
    data["nodes"].append({"name": "z", "op": "cast", "inputs": ["y"], "attrs": {"dtype": "bf16"}})
    data["outputs"] = ["z"]
    raw = raw_graph(data)
    inputs = random_inputs(raw, 0, "cpu")
    expected = expectations(raw, inputs)["z"]
    exact = (inputs["i0"].double() @ inputs["i1"].double()).to(torch.bfloat16)
    assert agreement(exact, expected, TOLERANCE).accepted
    for fault in ("row", "scaled", "element"):
        # One element of a row shows in its norm as well, if the row is short; not one that is a little off.
        wrong = exact.clone()
        if fault == "row":
            wrong[4711] = exact[4712]
        elif fault == "scaled":
            wrong[4711] = (1.02 * exact[4711].float()).to(torch.bfloat16)
        else:
            wrong[4711, 3] += 0.2
        found = agreement(wrong, expected, 2 * TOLERANCE)
        assert found.error < 2 * TOLERANCE
        assert "element [4711, " in found.told, fault
        assert ("row [4711]" in found.told) is (fault == "row")


def test_a_threshold_flips_within_its_error_alone() -> None:
    data = document([([4], "f32")], "mul", ["i0", 3.0], {})
    data["nodes"] += [
        {"name": "c", "op": "greater", "inputs": ["y", 3.0]},
        {"name": "z", "op": "where", "inputs": ["c", "y", 0.0]},
    ]
    data["outputs"] = ["z"]
    expected = expectations(raw_graph(data), {"i0": torch.tensor([1.0, 1.1, 0.9, 2.0])})["z"]
    assert agreement(torch.tensor([3.0, 3.3, 0.0, 6.0]), expected, 1e-4).accepted
    assert agreement(torch.tensor([0.0, 3.3, 0.0, 6.0]), expected, 1e-4).accepted
    for wrong in ([3.1, 3.3, 0, 6], [3, 0, 0, 6], [3, 3.3, 2.7, 6]):
        assert not agreement(torch.tensor(wrong), expected, 1e-4).accepted, wrong
