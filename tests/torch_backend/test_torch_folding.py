"""Integers that depend on no input: computed while a graph is compiled, said as numbers and indices, or left."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from wsopt.graph.extents import value_at  # noqa: E402
from wsopt.graph.types import DType  # noqa: E402
from wsopt.torch.affine import Affine  # noqa: E402
from wsopt.torch.folding import Folded  # noqa: E402
from wsopt.torch.integers import Integers  # noqa: E402
from wsopt.torch.say_attention import attention  # noqa: E402
from wsopt.torch.symbols import symbols_of  # noqa: E402
from wsopt.torch.writer import Writer, number  # noqa: E402

pytestmark = pytest.mark.torch


def _written(function: Callable[..., Any], *inputs: Any) -> list[str] | float | bool | None:
    """The operations that say a function's result, or the number that it is; None where it is left to FX."""
    module = make_fx(function, tracing_mode="fake")(*inputs)
    (output,) = (node for node in module.graph.nodes if node.op == "output")
    w = Writer(group="g")
    found = Folded().value(w, output.args[0])
    if found is None:
        assert w.nodes == {}
        return None
    assert found.shape == tuple(output.args[0].meta["val"].shape)
    return [node.op for node in w.nodes.values()] if isinstance(found.tensor, str) else found.tensor


def _at_every_length(function: Callable[..., Any]) -> list[str] | float | bool | None:
    """The same of a function of tensors whose first extents `n` and `m` change, held against what it gives at several
    lengths: as indices of the least and of the largest elements tell.
    """
    module = make_fx(function, tracing_mode="symbolic")(torch.empty(23), torch.empty(29))
    (output,) = (node for node in module.graph.nodes if node.op == "output")
    symbols = symbols_of(module.graph)
    limits = symbols.limits
    w, folded = Writer(group="g", integers=Integers(limits=limits)), Folded(symbols)
    found = folded.value(w, output.args[0])
    if found is None:
        assert w.nodes == {}
        return None
    affine = folded.affine[output.args[0]]
    assert affine is not None
    assert found.shape == affine.shape == symbols.shape(output.args[0].meta["val"])
    for lengths in ((2, 2), (3, 50), (64, 7)):
        told, plain = (
            _contents(affine, dict(zip(limits, lengths, strict=False))),
            function(*map(torch.empty, lengths)),
        )
        assert torch.equal(told.to(plain.dtype), plain)
    return [node.op for node in w.nodes.values()] if isinstance(found.tensor, str) else found.tensor


def _contents(affine: Affine, lengths: dict[str, int]) -> Any:
    """The elements of an affine function of indices at some lengths."""
    shape = tuple(value_at(n, lengths) for n in affine.shape)
    total = torch.full(shape, affine.first)
    for axis, step in enumerate(affine.steps):
        total += (torch.arange(shape[axis]) * step).view(
            [-1 if at == axis else 1 for at in range(len(shape))]
        )
    return total


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


def test_positions_of_a_length_that_changes_are_an_index() -> None:
    def positions(x: Any) -> Any:
        return torch.arange(x.shape[0])

    assert _at_every_length(lambda x, _y: positions(x)) == ["iota"]
    assert _at_every_length(lambda x, _y: torch.arange(3, x.shape[0] + 3)) == ["iota", "add"]
    assert _at_every_length(lambda x, _y: torch.arange(0, 2 * x.shape[0], 2)) == ["iota", "mul"]
    assert _at_every_length(lambda x, _y: torch.arange(x.shape[0], dtype=torch.int32)) == ["iota"]
    assert _at_every_length(lambda x, _y: positions(x).view(1, 1, -1, 1) * 2 - 5) == ["iota", "mul", "add"]
    assert _at_every_length(lambda x, _y: 7 - positions(x).expand(4, 1, -1)) == ["iota", "mul", "add"]
    assert _at_every_length(lambda x, y: positions(x)[:, None] * 4 + positions(y)) == [
        "iota",
        "mul",
        "iota",
        "add",
    ]
    assert _at_every_length(lambda x, y: (positions(x)[:, None] - positions(y)).transpose(0, 1)) == [
        *("iota", "mul", "iota", "add"),
    ]
    assert (
        _at_every_length(lambda x, _y: -positions(x)[None, 4:].permute(1, 0) if x.shape[0] > 4 else None)
        is None
    )
    assert _at_every_length(lambda x, _y: torch.full((x.shape[0], 2), 3)) == 3


def test_parts_and_choices_of_positions_are_an_index() -> None:
    def positions(x: Any) -> Any:
        return torch.arange(x.shape[0])

    def around(x: Any) -> Any:
        own = positions(x)[None]
        return torch.cat([own[:, :1] - 1, own], -1)

    def choice(x: Any, y: Any) -> Any:
        table = positions(y)[:, None] * 3 + 1
        return table.expand(-1, 4)[torch.arange(2)[:, None], torch.arange(3)]

    assert _at_every_length(lambda x, _y: around(x)) == ["iota", "add"]
    assert _at_every_length(lambda x, _y: around(x)[:, 1:]) == ["iota"]
    assert _at_every_length(lambda x, _y: positions(x)[:1] + 4) == 4
    assert _at_every_length(lambda x, _y: positions(x)[1]) == 1
    assert _at_every_length(choice) == ["iota", "mul", "add"]
    assert _at_every_length(lambda x, y: positions(x)[torch.arange(2)[:, None] * 1 + 0]) == ["iota"]


def test_running_sums_and_comparisons_that_come_out_alike_are_numbers() -> None:
    def positions(x: Any) -> Any:
        return torch.arange(x.shape[0])

    def segments(x: Any) -> Any:
        own = positions(x)[None]
        first = torch.diff(own, prepend=own[:, :1] - 1, dim=-1) != 1
        return first.cumsum(-1)

    assert _at_every_length(lambda x, _y: segments(x)) == 0
    assert _at_every_length(lambda x, _y: segments(x)[:, :, None] == segments(x)[:, None, :]) is True
    assert _at_every_length(lambda x, _y: torch.full(x.shape, 1).cumsum(0)) == ["iota", "add"]
    assert _at_every_length(lambda x, _y: positions(x) >= 0) is True
    assert _at_every_length(lambda x, _y: positions(x) < 0) is False
    assert _at_every_length(lambda x, _y: positions(x) == -1) is False
    assert _at_every_length(lambda x, _y: (positions(x) != -1) & (positions(x) > -5)) is True
    assert (
        _at_every_length(lambda x, _y: torch.logical_not((positions(x) < 0) | (positions(x) > -1))) is False
    )
    assert _at_every_length(lambda x, _y: torch.where(positions(x) >= 0, positions(x), 5)) == ["iota"]


def test_what_a_length_decides_is_left() -> None:
    def positions(x: Any) -> Any:
        return torch.arange(x.shape[0])

    assert _at_every_length(lambda x, _y: positions(x) > 0) is None
    assert _at_every_length(lambda x, _y: positions(x) == 3) is None
    assert _at_every_length(lambda x, _y: positions(x) < 100_000) is None
    assert _at_every_length(lambda x, _y: positions(x).flip(0)) is None
    assert _at_every_length(lambda x, _y: positions(x) + x.shape[0]) is None
    assert _at_every_length(lambda x, _y: positions(x) * positions(x)) is None
    assert _at_every_length(lambda x, _y: positions(x).cumsum(0)) is None
    assert _at_every_length(lambda x, y: torch.cat([positions(x), positions(y)])) is None
    assert _at_every_length(lambda x, _y: positions(x)[-1:]) is None
    assert _at_every_length(lambda x, _y: positions(x)[torch.arange(2) - 1]) is None
    assert _at_every_length(lambda x, y: (positions(x)[:, None] + positions(y)).view(-1)) is None
    assert _at_every_length(lambda x, _y: (positions(x) * (1 << 30)).to(torch.int32)) is None
    assert _at_every_length(lambda x, _y: (x > 0).to(torch.int64) + positions(x)) is None


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
