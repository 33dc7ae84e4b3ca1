"""Numbers and integers are what they are in FX: of its types, and none that would wrap around here alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch import Tensor  # noqa: E402
from torch_pieces import with_pieces  # noqa: E402

from wsopt.torch.compiler import watching  # noqa: E402

B = torch.bfloat16
W = (torch.randn(64, 64, generator=torch.Generator().manual_seed(0)) / 8).to(B)
SHORT = torch.full((16, 64), 2**30, dtype=torch.int32)


def cut_off(x: Tensor) -> Tensor:
    return x * torch.full((16, 64), 2.7).to(torch.int32)


def rounded(x: Tensor) -> Tensor:
    return x.float() - torch.full((16, 64), 0.1, dtype=B)


def truth_as_number(x: Tensor) -> Tensor:
    return x * torch.full_like(x, True) + torch.full((16, 64), True).to(B)


def chosen_truth(x: Tensor) -> Tensor:
    return x * torch.where(x > 1, True, x < 0)


def large_number(x: Tensor) -> Tensor:
    return x + (torch.arange(64) * 10_000_000_000).float().log().clamp(0).to(B)


def large_square(x: Tensor) -> Tensor:
    return x * (torch.arange(64) * torch.arange(64) * 1_000_000).to(B)


def large_of_short(x: Tensor) -> Tensor:
    return x.float() + SHORT.long().mul(3).float().mul(1e-9)


CASES: tuple[Callable[[Tensor], Tensor], ...] = (
    cut_off,
    rounded,
    truth_as_number,
    chosen_truth,
    large_number,
    large_square,
    large_of_short,
)


@pytest.mark.parametrize("behind", CASES, ids=[one.__name__ for one in CASES])
def test_numbers_behind_a_product_are_what_they_are_in_torch(behind: Callable[[Tensor], Tensor]) -> None:
    torch._dynamo.reset()

    def model(x: Tensor) -> Tensor:
        return behind(x @ W)

    x = torch.randn(16, 64, generator=torch.Generator().manual_seed(1)).to(B)
    with torch.no_grad(), watching() as seen:
        found = with_pieces(model)(x)
        want = model(x)
    assert sum(len(one.taken) for one in seen) == 1
    assert found.dtype is want.dtype
    assert torch.allclose(found.float(), want.float(), rtol=1e-2, atol=1e-3)


def test_integers_that_stay_small_are_said() -> None:
    """Squares of places in 64 are small whatever their type."""
    torch._dynamo.reset()

    def model(x: Tensor) -> Tensor:
        return (x @ W) * (torch.arange(64) * torch.arange(64))

    x = torch.randn(16, 64).to(B)
    with torch.no_grad(), watching() as seen:
        with_pieces(model)(x)
    (one,) = seen
    (piece,) = one.taken
    assert [node.op for node in piece.graph.nodes].count("iota") >= 1
