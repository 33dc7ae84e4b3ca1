"""Graphs that are compiled before their kernels are built, and again when they are."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch import Tensor  # noqa: E402
from torch._guards import TracingContext  # noqa: E402
from torch_pieces import fresh  # noqa: E402

from wsopt.build import Build  # noqa: E402
from wsopt.errors import InternalError  # noqa: E402
from wsopt.torch import backend, choose, later  # noqa: E402
from wsopt.torch.compiler import watching  # noqa: E402
from wsopt.torch.late import compiled_late  # noqa: E402
from wsopt.torch.later import Job  # noqa: E402
from wsopt.torch.outcomes import Outcome, Wanted  # noqa: E402
from wsopt.torch.rounds import Settled  # noqa: E402

B = torch.bfloat16
OPTIONS = {"execute": "simulation", "rest": "eager", "take": "all", "wait": False}


class Workshop:
    """Builds kernels when it is let, and keeps them as the cache does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.built: dict[str, Build] = {}
        self.open, self.jobs = threading.Event(), list[Job]()
        self.fault: Exception | None = None
        monkeypatch.setattr(choose, "known", self.known)
        monkeypatch.setattr(choose, "build_all", self.build_all)
        monkeypatch.setattr(later, "Job", self.job)

    def known(self, wanted: Wanted, _machine: str) -> Build | None:
        return self.built.get(str(wanted.graph))

    def build_all(self, wanted: Sequence[Wanted], machine: str, _workers: int) -> list[Outcome]:
        if any(self.known(one, machine) is None for one in wanted):
            assert self.open.wait(20)
            if self.fault:
                raise self.fault
        new = {str(one.graph): Build({}, {"predicted_us": 5.0}, 0.0) for one in wanted}
        self.built |= new
        return list(new.values())

    def job(self, work: Any) -> Job:
        self.jobs.append(Job(work))
        return self.jobs[-1]

    def finish(self) -> None:
        self.open.set()
        for job in self.jobs:
            job.wait()


@pytest.fixture
def workshop(monkeypatch: pytest.MonkeyPatch) -> Workshop:
    fresh()
    return Workshop(monkeypatch)


def taken(seen: Sequence[Settled]) -> list[int]:
    return [len(one.taken) for one in seen]


def test_calls_run_at_once_and_with_kernels_when_they_are_built(workshop: Workshop) -> None:
    seen_by, w = torch.zeros(64), torch.randn(64, 128, dtype=B) / 8

    def model(x: Tensor) -> Tensor:
        seen_by.add_(1)
        return torch.cumprod(torch.relu(x @ w.T), -1)

    x = torch.randn(32, 128, dtype=B)
    with torch.no_grad(), watching() as seen:
        fast = torch.compile(model, backend=backend, options=OPTIONS)
        first = fast(x)
        assert torch.equal(fast(x), first)
        assert (taken(seen), [one.pending for one in seen]) == ([0], [True])
        assert "not built yet" in seen[0].judged[seen[0].refused[0].key].refusal
        workshop.finish()
        for _ in range(3):
            assert torch.allclose(fast(x).float(), first.float(), rtol=2e-2, atol=2e-2)
    assert (taken(seen), [one.pending for one in seen]) == ([0, 1], [True, False])
    assert seen_by[0] == 5


def test_what_is_built_already_is_taken_at_once(workshop: Workshop) -> None:
    def model(x: Tensor) -> Tensor:
        return torch.relu(x @ x.T)

    workshop.open.set()
    x = torch.randn(64, 64, dtype=B)
    for wait in (True, False):
        torch._dynamo.reset()
        with torch.no_grad(), watching() as seen:
            torch.compile(model, backend=backend, options={**OPTIONS, "wait": wait})(x)
        assert taken(seen) == [1]
    assert workshop.jobs == []


def test_backward_graphs_are_compiled_again_too(workshop: Workshop) -> None:
    w = (torch.randn(64, 128, dtype=B) / 8).requires_grad_()

    def gradient(call: Any) -> Tensor:
        w.grad = None
        call(x).sum().backward()
        assert w.grad is not None
        return w.grad

    def model(x: Tensor) -> Tensor:
        return torch.relu(x @ w.T)

    x = torch.randn(32, 128, dtype=B)
    wanted = gradient(model)
    with watching() as seen:
        fast = torch.compile(model, backend=backend, options=OPTIONS)
        assert torch.equal(gradient(fast), wanted)
        assert taken(seen) == [0, 0]
        workshop.finish()
        for _ in range(2):
            assert torch.allclose(gradient(fast).float(), wanted.float(), rtol=2e-2, atol=2e-2)
    assert taken(seen) == [0, 0, 1, 1]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_build_that_fails_is_told(workshop: Workshop) -> None:
    def model(x: Tensor) -> Tensor:
        return torch.relu(x @ x.T)

    workshop.fault = InternalError("the process that builds a piece ended")
    x = torch.randn(64, 64, dtype=B)
    with torch.no_grad():
        fast = torch.compile(model, backend=backend, options=OPTIONS)
        fast(x)
        workshop.finish()
        with pytest.raises(InternalError, match="could not be built"):
            fast(x)


def test_builds_that_are_not_kept_end_it(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    def model(x: Tensor) -> Tensor:
        return torch.relu(x @ x.T)

    workshop.open.set()
    monkeypatch.setattr(choose, "known", lambda wanted, machine: None)
    x = torch.randn(64, 64, dtype=B)
    with torch.no_grad(), watching() as seen:
        fast = torch.compile(model, backend=backend, options=OPTIONS)
        for _ in range(8):
            fast(x)
            workshop.finish()
    assert taken(seen) == [0] * later._MOST
    assert len(workshop.jobs) == later._MOST - 1


def test_extents_that_change_still_do_when_a_graph_is_compiled_again(workshop: Workshop) -> None:
    inner = torch.nn.Linear(128, 64, dtype=B)
    compilations = 0

    def counting(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        nonlocal compilations
        compilations += 1
        return backend(module, inputs, options=OPTIONS)

    fast = torch.compile(lambda x: torch.relu(inner(x)), backend=counting)
    with torch.no_grad(), watching() as seen:
        for extent in (32, 5, 48):
            x = torch.randn(extent, 128, dtype=B)
            torch._dynamo.mark_dynamic(x, 0, min=2, max=512)
            assert torch.allclose(fast(x).float(), torch.relu(inner(x)).float(), rtol=2e-2, atol=2e-2)
            workshop.finish()
    assert (compilations, taken(seen)) == (1, [0, 1])
    assert seen[1].taken[0].changing is not None


@pytest.mark.parametrize("asks", [False, True])
def test_a_condition_that_is_noted_late_is_not_relied_on(asks: bool) -> None:
    """Nobody checks it any more: what was compiled with it is left, and what was there before goes on."""
    kept: list[bool] = []

    def late(module: torch.fx.GraphModule, given: Sequence[Any]) -> Any:
        extents = [one if isinstance(one, torch.SymInt) else one.shape[0] for one in given]
        assert all(isinstance(one, torch.SymInt) for one in extents)
        return module if not asks or extents[0] % 16 == 0 else None

    def compile_(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        args = [torch.randn(32, 4) if isinstance(x, Tensor) else 32 for x in inputs]
        kept.append(compiled_late(late, module, args, TracingContext.try_get()) is not None)
        return module

    torch._dynamo.reset()
    torch.compile(lambda y: y + 1, backend=compile_, dynamic=True)(torch.randn(32, 4))
    assert kept == [not asks]
