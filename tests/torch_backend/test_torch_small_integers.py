"""Integers of few bits that depend on no input are indices in pieces, and what they are in torch elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch import Tensor  # noqa: E402
from torch_pieces import fresh, with_pieces  # noqa: E402

from wsopt.torch.compiler import watching  # noqa: E402

B = torch.bfloat16
LEFT, RIGHT = torch.randn(64, 128, dtype=B) / 8, torch.randn(128, 64, dtype=B) / 8


_fresh = pytest.fixture(autouse=True)(fresh)


def others(scores: Tensor) -> Tensor:
    """What each row has to do with the others, as contrastive losses ask."""
    return torch.softmax(scores.masked_fill(torch.eye(64, dtype=torch.bool), -1e9), -1)


@pytest.mark.parametrize(
    "behind", [others, lambda x: x * torch.eye(64, dtype=B), lambda x: x + torch.eye(64)]
)
def test_a_diagonal_is_made_in_the_kernel(behind: Callable[[Tensor], Tensor]) -> None:
    """Torch compares counts of eight bits for it."""

    def model(x: Tensor, w: Tensor) -> Tensor:
        return behind(x @ w)

    with torch.no_grad(), watching() as seen:
        found = with_pieces(model)(LEFT, RIGHT)
        assert torch.allclose(found.float(), model(LEFT, RIGHT).float(), rtol=2e-2, atol=2e-2)
    (piece,) = seen[0].taken
    assert {bound.source.op for bound in piece.inputs} == {"placeholder"}
    assert len(piece.inputs) == 2


def test_what_wraps_around_or_leaves_is_as_in_torch() -> None:
    def model(x: Tensor, w: Tensor) -> tuple[Any, ...]:
        wrapped = (torch.arange(64, dtype=torch.int32) * 5).to(torch.uint8)
        counts = torch.arange(64, dtype=torch.uint8)
        return (x @ w) * wrapped, (x @ w) * (counts * 5), torch.eye(64, dtype=torch.uint8), counts + 1

    with torch.no_grad():
        for found, plain in zip(with_pieces(model)(LEFT, RIGHT), model(LEFT, RIGHT), strict=True):
            assert found.dtype is plain.dtype
            assert torch.allclose(found.float(), plain.float(), rtol=2e-2, atol=2e-2)


def test_a_tensor_that_is_repeated_is_read_once() -> None:
    def model(x: Tensor, w: Tensor, y: Tensor) -> Tensor:
        return (x @ w) * y.repeat(64, 1)

    y = torch.randn(64, dtype=B)
    with torch.no_grad(), watching() as seen:
        found = with_pieces(model)(LEFT, RIGHT, y)
        assert torch.allclose(found.float(), model(LEFT, RIGHT, y).float(), rtol=2e-2, atol=2e-2)
    (piece,) = seen[0].taken
    assert sorted(one.type.size for one in piece.graph.inputs) == [64, 64 * 128, 64 * 128]
