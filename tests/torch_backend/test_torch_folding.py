"""Integers that depend on no input: computed while a graph is compiled, said as numbers and indices, or left."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from wsopt.graph.types import DType  # noqa: E402
from wsopt.torch.folding import Folded  # noqa: E402
from wsopt.torch.say_attention import attention  # noqa: E402
from wsopt.torch.writer import Writer, number  # noqa: E402

pytestmark = pytest.mark.torch


def _written(function: Callable[..., Any], *inputs: Any) -> list[str] | float | bool | None:
    """The operations that say a function's result, or the number that it is; None where it is left to FX."""
    module = make_fx(function, tracing_mode="fake")(*inputs)
    (output,) = (node for node in module.graph.nodes if node.op == "output")
    w = Writer(group="g")
    found = Folded().value(w, output.args[0])
    if found is None:
        return None
    assert found.shape == tuple(output.args[0].meta["val"].shape)
    return [node.op for node in w.nodes.values()] if isinstance(found.tensor, str) else found.tensor


def test_positions_are_an_index() -> None:
    assert _written(lambda: torch.arange(64)) == ["iota"]
    assert _written(lambda: torch.arange(3, 67)) == ["iota", "add"]
    assert _written(lambda: torch.arange(64).view(1, 1, 64, 1) * 2 - 5) == ["iota", "mul", "add"]
    assert _written(lambda: torch.arange(8)[:, None] * 4 + torch.arange(4)) == ["iota", "mul", "iota", "add"]


def test_segments_of_one_sequence_are_a_number() -> None:
    def segments() -> Any:
        positions = torch.arange(64)[None]
        first = torch.diff(positions, prepend=positions[:, :1] - 1, dim=-1) != 1
        return first.cumsum(-1)

    assert _written(segments) == 0
    assert _written(lambda: segments()[:, :, None] == segments()[:, None, :]) is True


def test_what_is_neither_is_left() -> None:
    assert _written(lambda: torch.arange(64) % 7) is None
    assert _written(lambda: torch.arange(64) > 3) is None
    assert _written(lambda: torch.arange(64).float()) is None
    assert _written(lambda: torch.randint(0, 4, (8,))) is None
    assert _written(lambda x: torch.arange(64) + x, torch.ones(64, dtype=torch.int64)) is None
    assert _written(lambda: torch.zeros(1 << 15, 1 << 13, dtype=torch.bool)) is None  # more than is worth it


def test_an_index_has_the_contents_of_the_tensor() -> None:
    """Numbers that only look like an index at their beginning are not taken for one."""
    assert _written(lambda: torch.arange(64).clamp(max=40)) is None
    assert _written(lambda: torch.tensor([0, 1, 2, 4])) is None


@pytest.mark.parametrize("left_out", [-65504.0, -65536.0, -math.inf])
def test_a_mask_that_torch_makes_of_truth_values_is_taken_for_those(left_out: float) -> None:
    w = Writer(group="g", shape=(1, 2, 64, 64))
    q, k, v = (w.input(name, (1, 2, 64, 64), DType.BF16) for name in "qkv")
    seen = w.elementwise("less_equal", w.index((64, 64), 1), w.index((64, 64), 0))
    mask = w.cast(w.elementwise("where", seen, number(0.0), number(left_out)), DType.BF16)
    attention(w, q, k, v, w.expand(w.view(mask, (1, 1, 64, 64)), (1, 2, 64, 64)), False, None)
    masks = [node for node in w.nodes.values() if node.op == "where"][1:]
    assert [node.inputs[0] for node in masks] == [seen.tensor]
    assert masks[0].inputs[2] == -math.inf


def test_a_bias_is_added() -> None:
    w = Writer(group="g", shape=(1, 2, 64, 64))
    q, k, v = (w.input(name, (1, 2, 64, 64), DType.BF16) for name in "qkv")
    seen = w.elementwise("less_equal", w.index((64, 64), 1), w.index((64, 64), 0))
    attention(w, q, k, v, w.elementwise("where", seen, number(0.0), number(-1.0)), False, None)
    assert sum(node.op == "where" for node in w.nodes.values()) == 1
    assert any(node.op == "add" for node in w.nodes.values())


def test_truth_values_from_outside_are_not_read() -> None:
    w = Writer(group="g", shape=(1, 2, 64, 64))
    q, k, v = (w.input(name, (1, 2, 64, 64), DType.BF16) for name in "qkv")
    seen = w.input("seen", (64, 64), DType.BOOL)
    attention(w, q, k, v, w.elementwise("where", seen, number(0.0), number(-math.inf)), False, None)
    assert sum(node.op == "where" for node in w.nodes.values()) == 1
    assert any(node.op == "add" for node in w.nodes.values())
