"""What `explain` says of what is left is of operations and tensors, and of no graph that nobody wrote."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch import Tensor, nn  # noqa: E402
from torch_pieces import OPTIONS, fresh  # noqa: E402

from wsopt.graph.builder import GraphBuilder  # noqa: E402
from wsopt.torch import explain  # noqa: E402
from wsopt.torch.reasons import reason_in_words  # noqa: E402

B = torch.bfloat16


_fresh = pytest.fixture(autouse=True)(fresh)


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=B)


def sum_before_norm(x: Tensor, y: Tensor, weight: Tensor, w: Tensor) -> Tensor:
    both = x + y
    return both + nn.functional.layer_norm(both, (64,), weight, weight) @ w


LEFT: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...], str]] = {
    "a sum before a norm": (
        sum_before_norm,
        (normal(2, 16, 64), normal(2, 16, 64), normal(64), normal(64, 64)),
        "aten.add.Tensor: matmul: an axis would be both a stream and a column axis of one kernel",
    ),
    "a lookup beside a product": (
        lambda table, at, w: torch.relu(table[at] @ w),
        (normal(50, 64), torch.arange(32), normal(64, 64)),
        "gather is not lowered beside products",
    ),
    "parts of two sizes": (
        lambda x, y: torch.cat([x.exp(), y.exp()], 1),
        (normal(2, 1, 64), normal(2, 16, 64)),
        "concat: it joins parts of 1, 16 elements; a kernel has one tile for all",
    ),
}


@pytest.mark.parametrize("case", LEFT)
def test_reasons_name_what_is_computed(case: str) -> None:
    model, inputs, expected = LEFT[case]
    left = [why for why, _ in explain(model, *inputs, options=OPTIONS).left]
    assert any(expected in why for why in left), left
    assert not [why for why in left if re.search(r"\b[ni]\d+|make it an input|of the graph|declare", why)]


def test_a_piece_that_is_turned_down_is_too() -> None:
    """By its build, whose reasons the cache keeps as the graph has them."""
    layer = nn.Linear(64, 64, dtype=B)
    options = OPTIONS | {"take": "predicted"}
    report = explain(layer, normal(32, 64), options=options)
    assert not [line for line in report.refused if "graph piece" in line.judged.refusal]


def test_inputs_are_told_by_their_types() -> None:
    g = GraphBuilder("piece")
    x = g.input("i0", (256, 130), "bf16")
    g.output(g.relu(g.exp(x, name="n0"), name="n1"))
    reason = "graph piece: tensor i0: read by exp node n0 and n1_joined, not n10; declare i0 without strides"
    found = reason_in_words(reason, g.build())
    assert found == "the input bf16[256, 130]: read by exp and relu, not n10"
