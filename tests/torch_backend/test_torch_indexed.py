"""Elements by place and running sums in whole models, against the model without the backend."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

from torch import Tensor, nn  # noqa: E402
from torch_pieces import fresh, with_pieces  # noqa: E402

from wsopt.torch.compiler import watching  # noqa: E402
from wsopt.torch.rounds import Settled  # noqa: E402

B = torch.bfloat16


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def left(seen: list[Settled]) -> list[str]:
    """Why operations of these kinds are not said."""
    reasons = [why for one in seen for why in one.lowered.refused.values()]
    return [why for why in reasons if any(name in why for name in ("gather", "scatter", "cumsum"))]


@pytest.mark.parametrize(("rows", "classes"), [(37, 131), (4, 1), (16, 512)])
def test_a_cross_entropy_is_the_same_with_its_gradient(rows: int, classes: int) -> None:
    fresh()
    weight = nn.Parameter((drawn(64, classes) / 8).to(B))
    labels = torch.randint(0, classes, (rows,), generator=torch.Generator().manual_seed(1))
    labels[0], labels[1], labels[2] = -100, 0, classes - 1
    x = drawn(rows, 64).to(B)

    def loss(x: Tensor) -> Tensor:
        return nn.functional.cross_entropy((x @ weight).float(), labels)

    want = loss(x)
    want.backward()
    assert weight.grad is not None
    wanted, weight.grad = weight.grad, None
    with watching() as seen:
        found = with_pieces(loss)(x)
        found.backward()
    assert torch.allclose(found, want, rtol=1e-3, atol=1e-4)
    assert torch.allclose(weight.grad.float(), wanted.float(), rtol=2e-2, atol=1e-3)
    assert len(seen) == 2
    assert left(seen) == []


def gathered(x: Tensor, w: Tensor) -> Tensor:
    """Logits of one word a row, of which no others are written."""
    return (x @ w).float().log_softmax(-1).gather(1, torch.arange(x.shape[0])[:, None] % w.shape[1])


def replaced(x: Tensor, w: Tensor) -> Tensor:
    y = x @ w
    y = torch.slice_scatter(y, y[:, 3:20] * 2, 1, -w.shape[1] + 3, 20)
    return torch.select_scatter(y, y[:, 0].relu(), 1, -1)


def interleaved(x: Tensor, w: Tensor) -> Tensor:
    """As a rotary embedding writes pairs in place."""
    y = x @ w
    out = y.clone()
    out[:, ::2] = -y[:, 1::2]
    out[:, 1::2] = y[:, ::2]
    return out


def in_zeros(x: Tensor, w: Tensor) -> Tensor:
    """As the gradient of parts is made."""
    y, zeros = x @ w, torch.zeros(x.shape[0], 96, dtype=B)
    part = torch.slice_scatter(zeros, y, 1, 11, 59) + torch.slice_scatter(zeros, y, 1, 1, None, 2)
    return torch.select_scatter(part, y[:, 0] - 1, 1, -3)


def summed(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).softmax(-1).cumsum(-1)


def summed_down(x: Tensor, w: Tensor) -> Tensor:
    """Along rows that do not lie side by side, of elements in another type."""
    return (x @ w).t().cumsum(1, dtype=torch.float32)


MODELS = (gathered, replaced, interleaved, in_zeros, summed, summed_down)


@pytest.mark.parametrize("rows", [37, 1])
@pytest.mark.parametrize("model", MODELS, ids=[one.__name__ for one in MODELS])
def test_a_model_gives_what_it_gives_alone(model: Callable[[Tensor, Tensor], Tensor], rows: int) -> None:
    fresh()
    x, w = drawn(rows, 64).to(B), (drawn(64, 48) / 8).to(B)
    with torch.no_grad(), watching() as seen:
        found = with_pieces(model)(x, w)
        want = model(x, w)
    (one,) = seen
    assert one.taken
    assert left(seen) == []
    assert found.dtype is want.dtype
    assert found.shape == want.shape
    assert torch.allclose(found.float(), want.float(), rtol=2e-2, atol=2e-2)
