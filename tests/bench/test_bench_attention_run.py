"""Attention by the libraries' calls computes what the graph means, on the CPU. Skipped where there is no torch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from gpu_attention import GRAPHS, recorded

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from wsopt.bench.baselines import build_baseline  # noqa: E402
from wsopt.bench.bench_options import BASELINES  # noqa: E402
from wsopt.bench.eager_source import Inapplicable, Missing  # noqa: E402
from wsopt.bench.product_source import read_source  # noqa: E402
from wsopt.runtime.inputs import random_inputs  # noqa: E402
from wsopt.runtime.torch_reference import evaluate, relative_error  # noqa: E402

EMPTY_ROWS = {"rows", "segments"}
"""Rows that see no key: torch's softmax makes them nan, so what eager code computes is not what is meant."""

NONE = {"two values", "no softmax", "a mean beside"}
FLASH = {
    "full", "causal", "causal, fewer queries", "window", "window, fewer queries", "around", "limit",
    "soft cap", "cap in a window", "written out", "packed", "transposed", "grouped", "grouped, causal",
    "grouped, tokens first", "grouped as it lies",
}  # fmt: skip
SDPA = (FLASH | {"bias"}) - {
    "window", "window, fewer queries", "around", "soft cap", "cap in a window", "grouped as it lies"
}  # fmt: skip
APPLIES = {"sdpa": SDPA, "flash_attn_4": FLASH, "flex": set(GRAPHS) - NONE, "eager": set(GRAPHS)}


def flash_attn_func(
    q: Any, k: Any, v: Any, softmax_scale: float, causal: bool = False,
    window_size: tuple[int | None, int | None] = (None, None), softcap: float = 0.0,
) -> tuple[Any, None]:  # fmt: skip
    """What flash-attn-4 documents: (batch, sequence, heads, head), masks aligned at the ends."""
    q, k, v = (x.transpose(1, 2).float() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    s = q @ k.mT * softmax_scale
    s = softcap * torch.tanh(s / softcap) if softcap else s
    i = torch.arange(s.shape[-2])[:, None] + s.shape[-1] - s.shape[-2]
    j = torch.arange(s.shape[-1])
    left, right = (None, 0) if causal else window_size
    seen = torch.ones(s.shape[-2:], dtype=torch.bool)
    seen = seen if left is None else seen & (j >= i - left)
    seen = seen if right is None else seen & (j <= i + right)
    weights = torch.softmax(s.masked_fill(~seen, -torch.inf), -1).nan_to_num(0)
    return (weights @ v).transpose(1, 2).to(torch.bfloat16), None


@pytest.fixture(autouse=True)
def libraries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A stand-in for flash-attn-4, and Dynamo without a compiler behind it, which fails if it compiles twice."""
    package, cute = ModuleType("flash_attn"), ModuleType("flash_attn.cute")
    cute.flash_attn_func = flash_attn_func  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flash_attn", package)
    monkeypatch.setitem(sys.modules, "flash_attn.cute", cute)
    import torch._dynamo

    real: Callable[..., Any] = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, mode, dynamic: real(f, backend="eager", dynamic=dynamic))
    with torch._dynamo.config.patch(error_on_recompile=True):
        yield


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("library", APPLIES)
@pytest.mark.filterwarnings("ignore")
def test_computes(name: str, library: str) -> None:
    made = recorded(GRAPHS[name])
    try:
        baseline = build_baseline(library, made.graph, made.schedule)
    except Inapplicable:
        assert name not in APPLIES[library]
        return
    assert name in APPLIES[library]
    for seed in (0, 1):
        inputs = random_inputs(made.graph, seed, "cpu")
        expected = evaluate(made.graph, inputs)
        outputs = baseline.bind(made.graph, inputs)()
        for key, output in zip(made.graph.outputs, outputs, strict=True):
            error = relative_error(output, expected[key])
            assert (error < 2e-2) is not (library == "eager" and name in EMPTY_ROWS), baseline.source


def test_a_package_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flash_attn.cute", None)
    made = recorded(GRAPHS["full"])
    with pytest.raises(Missing, match="flash-attn-4 is not installed here"):
        build_baseline("flash_attn_4", made.graph, made.schedule)


def test_a_copy_moves_the_graphs_bytes() -> None:
    made = recorded(GRAPHS["full"])
    machine = {"dram_sustained_bandwidth": 1e12}
    schedule = made.schedule | {"machine": machine, "schedule": {"prediction": {"roofline_us": 1e-3}}}
    baseline = build_baseline("copy", made.graph, schedule)
    (target,) = baseline.bind(made.graph, random_inputs(made.graph, 0, "cpu"))()
    assert 2 * target.nbytes == 4 * 2 * 2 * 72 * 16 * 2
    assert not baseline.complete
    schedule["schedule"] = {"prediction": {"roofline_us": 1e3}}
    with pytest.raises(Inapplicable, match="bound by its arithmetic"):
        build_baseline("copy", made.graph, schedule)
    with pytest.raises(Inapplicable, match="does not say what bounds the graph"):
        build_baseline("copy", made.graph, {})


def test_reads_are_of_the_inputs_bytes() -> None:
    made = recorded(GRAPHS["full"])
    assert read_source(made.graph).endswith(f"    return reading({3 * 2 * 2 * 72 * 16 * 2}, q.device)\n")


@pytest.mark.parametrize("name", BASELINES)
def test_every_baseline_has_its_builder(name: str) -> None:
    made = recorded(GRAPHS["full"])
    if name in ("cublas", "scaled_mm", "grouped_mm", "copy", "read"):
        with pytest.raises(Inapplicable):
            build_baseline(name, made.graph, made.schedule)
    else:
        assert build_baseline(name, made.graph, made.schedule).name == name
