"""Products of one tensor become one, of weights that are packed once; a change of a weight in place is noticed."""

from __future__ import annotations

import gc
import json

import pytest

torch = pytest.importorskip("torch")

from torch_pieces import OPTIONS, fresh, with_pieces  # noqa: E402

from wsopt.torch import compiler, explain  # noqa: E402
from wsopt.torch.packing import Packs  # noqa: E402

_fresh = pytest.fixture(autouse=True)(fresh)


class Heads(torch.nn.Module):
    """Attention of a normed tensor, two heads of queries to one of keys and values; or a gated layer."""

    def __init__(self, bias: bool, gated: bool = False) -> None:
        super().__init__()
        self.norm, self.gated = torch.nn.LayerNorm(64), gated
        sizes = (64, 64) if gated else (64, 32, 32)
        self.parts = torch.nn.ModuleList(torch.nn.Linear(64, n, bias=bias) for n in sizes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.norm(x)
        found = [part(rows) for part in self.parts]
        if self.gated:
            return torch.nn.functional.silu(found[0]) * found[1]
        q, k, v = (y.view(2, 24, -1, 16).transpose(1, 2) for y in found)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)


@pytest.fixture
def model(request: pytest.FixtureRequest) -> torch.nn.Module:
    torch.manual_seed(0)
    return Heads(request.param).bfloat16().eval()


def error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    found, wanted = found.detach(), wanted.detach()
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


def products(model: torch.nn.Module, x: torch.Tensor) -> list[tuple[str, int]]:
    """The operations of each kernel with one product or more, and how often it is there."""
    report = explain(model, x, options=OPTIONS | {"frozen": True})
    return [(line.text.partition(" ->")[0], line.count) for line in report.taken if line.flops]


@pytest.mark.torch
@pytest.mark.parametrize("model", [False, True], indirect=True)
def test_three_products_are_one_kernel(model: torch.nn.Module) -> None:
    x = torch.randn(2, 24, 64).bfloat16()
    assert ("matmul", 1) in products(model, x) or ("matmul add", 1) in products(model, x)
    with torch.no_grad():
        compiled = with_pieces(model, frozen=True)
        assert error(compiled(x), model(x)) < 0.01
        model.parts[1].weight.mul_(3)
        assert error(compiled(x), model(x)) < 0.01


@pytest.mark.torch
def test_products_that_a_kernel_combines_stay_as_they_are() -> None:
    gated = Heads(False, gated=True).bfloat16().eval()
    ((words, count),) = products(gated, torch.randn(2, 24, 64).bfloat16())
    assert count == 1
    assert words.count("matmul") == 2


@pytest.mark.torch
@pytest.mark.parametrize("model", [True], indirect=True)
def test_weights_that_are_trained_are_not_packed(
    model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "join", None)
    compiled = with_pieces(model, frozen=True)
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
    packs = Packs(pack)
    assert packs.of((first, second))[0].sum() == 8
    assert packs.of((first, second))[0].sum() == 8
    assert len(calls) == 1
    second.add_(1)
    assert packs.of((first, second))[0].sum() == 16
    assert packs.of((second, first[:2]))[0].sum() == 12  # other tensors have a pack of their own
    del first, second
    gc.collect()
    assert not packs._entries


@pytest.mark.torch
def test_tensors_whose_changes_nobody_counts_are_packed_once() -> None:
    with torch.inference_mode():
        weight = torch.ones(4, 2)
        packs = Packs(lambda sources: (sources[0] + 0,))
        assert packs.of((weight,))[0] is packs.of((weight,))[0]


@pytest.mark.torch
def test_weights_that_autocast_rounds_are_rounded_once() -> None:
    model, x = torch.nn.Linear(64, 32).eval(), torch.randn(16, 64)
    with compiler.watching() as seen, torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found = with_pieces(model, frozen=True)(x)
        assert error(found, model(x)) < 0.01
    ((piece,),) = [one.taken for one in seen]
    assert piece.folded is not None
    assert [node.op for node in piece.folded.prepack.nodes] == ["cast"]
    assert not any(one.name in piece.folded.prepack.constants for one in piece.kernel.inputs)


@pytest.mark.torch
@pytest.mark.solver
@pytest.mark.compiler
def test_a_kernel_of_joined_weights_is_built_and_simulated() -> None:
    class Two(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = (
                torch.nn.Linear(64, 64, bias=False),
                torch.nn.Linear(64, 128, bias=False),
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.first(x).cumsum(0).sum() + self.second(x).cumsum(0).sum()

    model = Two().bfloat16().eval()
    options = OPTIONS | {"frozen": True, "execute": "simulation"}
    report = explain(model, torch.randn(128, 64).bfloat16(), options=options)
    (line,) = (line for line in report.taken if line.flops)
    assert line.count == 1
    assert line.judged.build is not None
    graph = json.loads(line.judged.build.files["graph.json"])
    assert [(one["shape"], one.get("constant", False)) for one in graph["inputs"]] == [
        ([128, 64], False), ([192, 64], True),
    ]  # fmt: skip


@pytest.mark.torch
def test_calls_hand_over_what_the_kernel_reads_in_its_order() -> None:
    """Also where the constants stand on both sides of the rows, and one was written to."""
    from wsopt.graph.builder import GraphBuilder
    from wsopt.partition.constants import folded
    from wsopt.torch.execute import by_reference
    from wsopt.torch.packing import with_packing

    g = GraphBuilder("two")
    a, x, b = (
        g.input(n, s, "bf16", constant=n != "x") for n, s in (("a", (8, 16)), ("x", (4, 16)), ("b", (8, 16)))
    )
    g.output(g.cast(g.matmul(x, g.concat(a, b, axis=0), transpose_b=True), "bf16", name="y"))
    graph = g.build()
    parts = folded(graph)
    assert parts is not None
    tensors = [torch.randn(*one.type.shape).bfloat16() for one in graph.inputs]
    launch = with_packing(graph, parts, by_reference(parts.main))
    for change in (0.0, 1.0):
        found, wanted = torch.empty(4, 16).bfloat16(), torch.empty(4, 16).bfloat16()
        tensors[2].add_(change)
        by_reference(graph)(*tensors, wanted)
        launch(*tensors, found)
        assert torch.equal(found, wanted)
