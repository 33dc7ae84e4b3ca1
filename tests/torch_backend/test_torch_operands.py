"""Operands that torch copies within its products, as the gradient of a sum, are copied before, and read by pieces."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch import Tensor, nn  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch_pieces import fresh, with_pieces  # noqa: E402

from wsopt.torch.compiler import watching  # noqa: E402
from wsopt.torch.operands import copy_operands, leave_copies  # noqa: E402

B = torch.bfloat16

_fresh = pytest.fixture(autouse=True)(fresh)


def gradients(model: Callable[[Tensor], Tensor], layer: nn.Module, x: Tensor) -> list[Tensor]:
    layer.zero_grad()
    inside = x.clone().requires_grad_()
    model(inside).backward()
    return [inside.grad, *(one.grad.clone() for one in layer.parameters() if one.grad is not None)]


@pytest.mark.parametrize("rest", ["eager", "inductor"])
@pytest.mark.parametrize("scale", [1.0, 1 / 64])
def test_all_products_of_a_sum_s_gradient_are_pieces(scale: float, rest: str) -> None:
    layer = nn.Linear(128, 64, bias=False, dtype=B)

    def model(x: Tensor) -> Tensor:
        return layer(x).sum() * scale

    x = torch.randn(96, 128, dtype=B)
    plain = gradients(model, layer, x)
    with watching() as seen:
        found = gradients(with_pieces(model, rest=rest), layer, x)
    assert sum(one.cut.flops for one in seen) == 3 * 2 * 96 * 128 * 64
    for one, other in zip(found, plain, strict=True):
        assert torch.allclose(one.float(), other.float(), rtol=2e-2, atol=1e-2)


REPEATING: dict[str, Callable[[Tensor], Tensor]] = {
    "of a mean over tokens": lambda y: y.mean(1).square().sum(),
    "of a sum over tokens, behind an activation": lambda y: torch.tanh(y.sum(1)).sum(),
    "of a sum of rows": lambda y: y.flatten(0, 1).sum(0).square().sum(),
    "of a mean of columns": lambda y: y.mean(2).square().sum(),
    "of a mean of columns beside another reader": lambda y: y.mean(2).square().sum() + y.square().sum(),
}
"""Results of a layer with gradients that are fewer elements, seen as many."""


@pytest.mark.parametrize("rest", ["eager", "inductor"])
@pytest.mark.parametrize("form", REPEATING)
def test_products_read_gradients_that_repeat_elements_as_they_lie(form: str, rest: str) -> None:
    layer = nn.Sequential(nn.Linear(128, 256, dtype=B), nn.Linear(256, 64, dtype=B))

    def model(x: Tensor) -> Tensor:
        return REPEATING[form](layer(x))

    x = torch.randn(4, 24, 128, dtype=B)
    plain = gradients(model, layer, x)
    with watching() as seen:
        found = gradients(with_pieces(model, rest=rest), layer, x)
    assert sum(one.cut.flops for one in seen) == 3 * 2 * 96 * 256 * (128 + 64)
    for one, other in zip(found, plain, strict=True):
        assert torch.allclose(one.float(), other.float(), rtol=3e-2, atol=3e-2 * other.float().abs().max())


def test_a_product_reads_what_is_the_same_everywhere() -> None:
    w = torch.randn(128, 64, dtype=B)

    def model(w: Tensor) -> Tensor:
        return torch.full((32, 128), 0.5, dtype=B) @ w

    with torch.no_grad(), watching() as seen:
        found = with_pieces(model)(w)
    assert len(seen[0].taken) == 1
    assert torch.allclose(found.float(), model(w).float(), rtol=2e-2, atol=1e-1)


def test_batches_that_lie_innermost_are_copied() -> None:
    x, w = torch.randn(64, 128, 8, dtype=B), torch.randn(8, 128, 32, dtype=B)

    def model(x: Tensor, w: Tensor) -> Tensor:
        return torch.bmm(x.permute(2, 0, 1), w)

    with torch.no_grad(), watching() as seen:
        found = with_pieces(model)(x, w)
    assert len(seen[0].taken) == 1
    assert torch.allclose(found.float(), model(x, w).float(), rtol=2e-2, atol=1e-1)


def test_copies_that_no_piece_reads_are_taken_out() -> None:
    def model(x: Tensor, w: Tensor) -> Tensor:
        return x.expand(96, 128) @ w

    inputs = torch.randn(1, 1), torch.randn(128, 64)
    module = make_fx(model, tracing_mode="fake")(*inputs)
    before = str(module.graph)
    copy_operands(module.graph)
    assert "aten.clone.default" in str(module.graph)
    leave_copies(module.graph)
    assert str(module.graph) == before
    module.recompile()
    assert torch.equal(module(*inputs), model(*inputs))
