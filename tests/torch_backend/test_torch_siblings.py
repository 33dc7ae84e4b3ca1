"""Products of one tensor become one, of weights that are packed once; a change of a weight in place is noticed."""

from __future__ import annotations

import gc

import pytest

torch = pytest.importorskip("torch")

from wsopt.torch import backend, compiler, explain  # noqa: E402
from wsopt.torch.packing import Packs  # noqa: E402

OPTIONS = {"execute": "reference", "rest": "eager", "take": "all"}


class Heads(torch.nn.Module):
    """Queries, keys and values of a normed tensor, and what is done to them before they meet."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(64)
        self.parts = torch.nn.ModuleList(torch.nn.Linear(64, n, bias=bias) for n in (64, 32, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.norm(x)
        q, k, v = (part(rows) for part in self.parts)
        k, v = (y.view(2, 24, 2, 16).repeat_interleave(2, 2).flatten(2) for y in (k.tanh(), v))
        return q.sigmoid() * k + v


@pytest.fixture
def model(request: pytest.FixtureRequest) -> torch.nn.Module:
    torch.manual_seed(0)
    return Heads(request.param).bfloat16().eval()


def error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    found, wanted = found.detach(), wanted.detach()
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


@pytest.mark.torch
@pytest.mark.parametrize("model", [False, True], indirect=True)
def test_three_products_are_one_kernel(model: torch.nn.Module) -> None:
    x = torch.randn(2, 24, 64).bfloat16()
    report = explain(model, x, options=OPTIONS)
    assert [line.count for line in report.taken if line.flops] == [1]
    assert report.share == 1
    with torch.no_grad():
        compiled = torch.compile(model, backend=backend, options=OPTIONS)
        assert error(compiled(x), model(x)) < 0.01
        model.parts[1].weight.mul_(3)
        assert error(compiled(x), model(x)) < 0.01


@pytest.mark.torch
@pytest.mark.parametrize("model", [True], indirect=True)
def test_weights_that_are_trained_are_not_packed(
    model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "join", None)
    compiled = torch.compile(model, backend=backend, options=OPTIONS)
    x = torch.randn(2, 24, 64).bfloat16()
    for _ in range(2):
        loss = compiled(x).float().square().mean()
        wanted = model(x).float().square().mean()
        assert error(loss, wanted) < 0.01
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for one in model.parameters():
                one.sub_(one.grad)


@pytest.mark.torch
def test_what_is_packed_follows_the_weights() -> None:
    calls: list[int] = []

    def pack(sources: object) -> tuple[torch.Tensor, ...]:
        calls.append(1)
        return (torch.cat(list(sources)),)  # type: ignore[call-overload]

    first, second = torch.ones(4, 2), torch.zeros(4, 2)
    packs, frozen = Packs(pack), Packs(pack, frozen=True)
    for one in (packs, frozen):
        assert one.of((first, second))[0].sum() == 8
        assert one.of((first, second))[0].sum() == 8
    assert len(calls) == 2
    second.add_(1)
    assert packs.of((first, second))[0].sum() == 16
    assert frozen.of((first, second))[0].sum() == 8
    assert packs.of((second, first[:2]))[0].sum() == 12  # other tensors have a pack of their own
    del first, second
    gc.collect()
    assert not packs._entries


@pytest.mark.torch
def test_tensors_whose_changes_nobody_counts_are_packed_at_every_call() -> None:
    with torch.inference_mode():
        weight = torch.ones(4, 2)
        packs = Packs(lambda sources: (sources[0] + 0,))
        assert packs.of((weight,))[0].sum() == 8
        weight.add_(1)
        assert packs.of((weight,))[0].sum() == 16
