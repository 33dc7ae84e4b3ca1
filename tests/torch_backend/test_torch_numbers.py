"""Numbers and integers are what they are in FX: of its types, and none that would wrap around here alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch import Tensor  # noqa: E402
from torch_pieces import with_pieces  # noqa: E402

from wsopt.machine.load import load_machine  # noqa: E402
from wsopt.torch.compiler import watching  # noqa: E402
from wsopt.torch.cutting import Oracle  # noqa: E402

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


def positive(x: Tensor) -> tuple[Tensor, ...]:
    y = x @ W
    return (y > 0,)


def kept_beside(x: Tensor) -> tuple[Tensor, ...]:
    """As what a backward pass wants of a forward pass."""
    y = x @ W
    positive = y > 0
    return torch.where(positive, y, y * 0.1), positive


def of_rows(x: Tensor) -> tuple[Tensor, ...]:
    return (x == x.amax(-1, keepdim=True),)


def turned(x: Tensor) -> tuple[Tensor, ...]:
    """Which lie with their dimensions in another order."""
    heads = x.reshape(-1, 4, 16).transpose(0, 1) @ W[:16].expand(4, 16, 64)
    return ((heads > 0.25).transpose(0, 1).contiguous(),)


def not_a_number(x: Tensor) -> tuple[Tensor, ...]:
    y = (x / 0) @ W
    return y != y, y > 1


TRUTHS = (positive, kept_beside, of_rows, turned, not_a_number)


@pytest.mark.parametrize("rows", [16, 37, 1])
@pytest.mark.parametrize("model", TRUTHS, ids=[one.__name__ for one in TRUTHS])
def test_truth_values_leave_a_piece(model: Callable[[Tensor], tuple[Tensor, ...]], rows: int) -> None:
    torch._dynamo.reset()
    x = torch.randn(rows, 64, generator=torch.Generator().manual_seed(1)).to(B)
    with torch.no_grad(), watching() as seen:
        found = with_pieces(model)(x)
        want = model(x)
    ((piece,),) = (one.taken for one in seen)
    assert torch.bool in {node.meta["val"].dtype for node in piece.outputs}
    assert not Oracle(load_machine("h200")).refusal(piece)
    for got, right in zip(found, want, strict=True):
        assert got.dtype is right.dtype
        assert got.stride() == right.stride()
        assert torch.allclose(got.float(), right.float(), rtol=1e-2, atol=1e-3, equal_nan=True)
        assert right.dtype is not torch.bool or torch.equal(got, right)


def test_a_truth_value_that_leaves_a_piece_may_change_its_extent() -> None:
    torch._dynamo.reset()
    model = with_pieces(kept_beside)
    with torch.no_grad(), watching() as seen:
        for rows in (16, 37, 40):
            x = torch.randn(rows, 64, generator=torch.Generator().manual_seed(1)).to(B)
            for got, right in zip(model(x), kept_beside(x), strict=True):
                assert torch.allclose(got.float(), right.float(), rtol=1e-2, atol=1e-3)
    assert [piece.changing is not None for one in seen for piece in one.taken] == [False, True]
