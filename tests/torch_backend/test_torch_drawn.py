"""Drawn programs of views, broadcasts, products, reductions and arithmetic: with pieces they compute the same."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

from torch import Tensor  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch_pieces import with_pieces  # noqa: E402

from wsopt.runtime.torch_reference import relative_error  # noqa: E402
from wsopt.torch.compiler import watching  # noqa: E402

STEPS = 9
B = torch.bfloat16
WEIGHTS = [torch.randn(32, 64, generator=torch.Generator().manual_seed(n)).to(B) / 8 for n in range(9)]
UNARY = (torch.tanh, torch.relu, torch.sin, torch.neg, torch.sigmoid, lambda x: x * 0.5, lambda x: 1 - x)


def drawn_shape(rng: random.Random, size: int) -> tuple[int, ...]:
    """A shape of so many elements, with extents of 1 here and there."""
    shape: list[int] = []
    while size > 1:
        part = rng.choice([n for n in (2, 4, 8, 16, 32, 64, 128) if size % n == 0])
        shape.append(part)
        size //= part
    if rng.random() < 0.3:
        shape.insert(rng.randrange(len(shape) + 1), 1)
    return tuple(shape) or (1,)


def view(rng: random.Random, x: Tensor, _others: list[Tensor]) -> Tensor:
    return x.reshape(drawn_shape(rng, x.numel()))


def permute(rng: random.Random, x: Tensor, _others: list[Tensor]) -> Tensor:
    return x.permute(rng.sample(range(x.ndim), x.ndim))


def repeat(rng: random.Random, x: Tensor, _others: list[Tensor]) -> Tensor:
    axis = rng.randrange(x.ndim + 1)
    wide = x.unsqueeze(axis).expand(*x.shape[:axis], 2, *x.shape[axis:])
    if x.numel() > 2**13:
        return torch.tanh(x)
    return wide.reshape(drawn_shape(rng, wide.numel())) if rng.random() < 0.7 else wide


def unary(rng: random.Random, x: Tensor, _others: list[Tensor]) -> Tensor:
    return rng.choice(UNARY)(x)


def binary(rng: random.Random, x: Tensor, others: list[Tensor]) -> Tensor:
    """With a tensor that broadcasts, or one brought into the shape of x."""
    fits = [y for y in others if y.numel() == x.numel()]
    y = rng.choice(fits).reshape(x.shape)
    choice = rng.random()
    if choice < 0.3:
        y = y.amax(dim=rng.randrange(y.ndim), keepdim=True)
    elif choice < 0.5:
        y = y.flatten()[: x.shape[-1]]
    return rng.choice([torch.add, torch.sub, torch.mul, torch.maximum])(x, y)


def reduce(rng: random.Random, x: Tensor, _others: list[Tensor]) -> Tensor:
    axis, keep = rng.randrange(x.ndim), rng.random() < 0.5
    found = rng.choice([torch.mean, torch.amax, torch.amin])(x, dim=axis, keepdim=keep)
    return found if found.numel() > 64 else torch.softmax(x, axis)


def norm(rng: random.Random, x: Tensor, _others: list[Tensor]) -> Tensor:
    return (
        torch.nn.functional.layer_norm(x.float(), x.shape[-1:]).to(B)
        if rng.random() < 0.5
        else torch.softmax(x, -1)
    )


def product(rng: random.Random, x: Tensor, _others: list[Tensor]) -> Tensor:
    """With a weight, or with itself."""
    flat = x.reshape(-1, 64) if x.numel() % 64 == 0 else x
    if flat.shape[-1] != 64:
        return torch.tanh(x)
    rows = flat.reshape((*drawn_shape(rng, flat.shape[0]), 64))
    if rng.random() < 0.3 and rows.ndim > 2 and rows.shape[-2] > 1:
        return torch.softmax(rows @ rows.transpose(-1, -2) * 0.1, -1).to(B) @ rows
    return torch.nn.functional.linear(rows, WEIGHTS[rng.randrange(len(WEIGHTS))])


KINDS = [view, permute, repeat, unary, unary, binary, binary, reduce, norm, product, product]


def program(seed: int, given: list[Tensor]) -> Any:
    """A graph of drawn steps; its results are the last value and one before."""

    def run(*inputs: Tensor) -> tuple[Tensor, Tensor]:
        rng = random.Random(seed)
        values = list(inputs)
        for _ in range(STEPS):
            values.append(rng.choice(KINDS)(rng, rng.choice(values[-3:]), values))
        return values[-1], rng.choice(values[2:])

    return make_fx(run)(*given)


@pytest.mark.parametrize("first", range(0, 80, 10))
def test_drawn_programs_compute_the_same(first: int) -> None:
    taken = 0
    for seed in range(first, first + 10):
        torch._dynamo.reset()
        given = [
            torch.randn(16, 64, 8, generator=torch.Generator().manual_seed(seed + n)).to(B) for n in (0, 1)
        ]
        model = program(seed, given)
        with torch.no_grad():
            plain = model(*given)
            with watching() as seen:
                found = with_pieces(model)(*given)
        for one, want in zip(found, plain, strict=True):
            assert (one.shape, one.dtype, one.stride()) == (want.shape, want.dtype, want.stride()), seed
            assert math.isfinite(float(want.float().norm())), seed
            assert relative_error(one, want) < 3e-2, seed
        taken += sum(len(graph.taken) for graph in seen)
    assert taken >= 5, "drawn programs have pieces"
