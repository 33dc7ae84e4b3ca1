"""Graphs that a graph runs have pieces of their own: branches, bodies of loops, regions that are compiled once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch import Tensor  # noqa: E402
from torch._higher_order_ops.while_loop import while_loop  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402
from torch_pieces import with_pieces  # noqa: E402

from wsopt.runtime.torch_reference import relative_error  # noqa: E402
from wsopt.torch.compiler import watching  # noqa: E402
from wsopt.torch.report import report_of  # noqa: E402

B = torch.bfloat16
W = (torch.randn(64, 64, generator=torch.Generator().manual_seed(0)) / 8).to(B)


def branches(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda y: (y @ W).relu(), lambda y: (y @ W).tanh(), (x,))


def branches_within(x: Tensor) -> Tensor:
    def first(y: Tensor) -> Tensor:
        return torch.cond(y.mean() > 0, lambda z: (z @ W).sin(), lambda z: (z @ W.t()).relu(), (y,))

    return torch.cond(x.sum() > 0, first, lambda y: (y @ W).tanh(), (x,))


def loop(x: Tensor) -> Tensor:
    found: Tensor = while_loop(
        lambda n, _: n < 3, lambda n, y: (n + 1, (y @ W).tanh()), (torch.tensor(0), x)
    )[1]
    return found


@torch.compiler.nested_compile_region
def region(x: Tensor) -> Tensor:
    q, k, v = (one.view(2, 16, 2, 32).transpose(1, 2) for one in (x @ W, x, x))
    rows = scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 16, 64)
    return x + rows @ W


def regions(x: Tensor) -> Tensor:
    return region(region(x))


@pytest.mark.parametrize("rest", ["eager", "inductor"])
@pytest.mark.parametrize(
    ("model", "shape", "pieces"),
    [
        (branches, (32, 64), 2),
        (branches_within, (32, 64), 3),
        (loop, (32, 64), 1),
        (regions, (2, 16, 64), 3),
    ],
)
def test_graphs_within_a_graph_have_pieces(
    model: Callable[[Tensor], Tensor], shape: tuple[int, ...], pieces: int, rest: str
) -> None:
    torch._dynamo.reset()
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(B)
    with torch.no_grad(), watching() as seen:
        found = with_pieces(model, rest=rest)(x)
        want = model(x)
    report = report_of(seen)
    assert sum(line.count for line in report.taken) == pieces, report
    assert report.flops
    assert report.share == 1.0, report
    assert (found.shape, found.dtype) == (want.shape, want.dtype)
    assert relative_error(found, want) < 1e-2
    assert not any(f"no entry for {name}" in str(report) for name in ("cond", "while_loop", "invoke"))


def test_regions_have_pieces_in_training() -> None:
    torch._dynamo.reset()
    gradients = []
    for model in (with_pieces(regions), regions):
        x = torch.randn(2, 16, 64, generator=torch.Generator().manual_seed(1)).to(B).requires_grad_()
        with watching() as seen:
            model(x).float().square().sum().backward()
        gradients.append((x.grad, sum(len(one.taken) for one in seen)))
    (found, pieces), (want, _) = gradients
    assert pieces >= 4
    assert relative_error(found, want) < 2e-2
