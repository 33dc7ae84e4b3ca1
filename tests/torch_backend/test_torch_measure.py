"""Pieces that are judged by a measurement: the part of the FX graph that they stand for, and who wins."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch import Tensor  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from wsopt.build import Build  # noqa: E402
from wsopt.machine import load_machine  # noqa: E402
from wsopt.torch import choose, explain, measure, rounds  # noqa: E402
from wsopt.torch.choose import Judged, estimate, judge  # noqa: E402
from wsopt.torch.cutting import Oracle, best_cut, ways  # noqa: E402
from wsopt.torch.execute import by_reference  # noqa: E402
from wsopt.torch.measure import compared, in_a_thread, usual  # noqa: E402
from wsopt.torch.options import Options  # noqa: E402
from wsopt.torch.outcomes import Refusal, Wanted  # noqa: E402
from wsopt.torch.piece import Piece  # noqa: E402
from wsopt.torch.report import in_words  # noqa: E402

BUILT = Build({}, {"predicted_us": 5.0}, 0.0)


@pytest.fixture(scope="module")
def piece() -> Piece:
    def model(x: Tensor, w: Tensor, y: Tensor) -> Tensor:
        return torch.relu(x.transpose(0, 1).reshape(64, 128) @ w.T) + y

    shapes = ((8, 8, 128), (64, 128), (64, 64))
    x, w, y = (torch.randn(shape, dtype=torch.bfloat16) for shape in shapes)
    given = [x, w, y.t()]
    module = make_fx(model, tracing_mode="fake")(*given)
    _, found = best_cut(ways(module, (), Oracle(load_machine("h200"))))
    (piece,) = found.pieces
    assert piece.inputs[2].order == (2, 0, 1)  # y lies turned
    return piece


def judged(piece: Piece, options: Options) -> Judged:
    """What becomes of a piece of which nothing is in the cache."""
    (found,) = judge([piece], estimate([piece], options), options)
    return found


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WSOPT_CACHE_DIR", str(tmp_path / "cache"))


class Stopwatch:
    """A clock by which one launch takes as long as it says of itself."""

    def __init__(self) -> None:
        self.results: dict[str, Any] = {}

    def sample(self, launches: Sequence[Any], count: int) -> float:
        name, microseconds, found = launches[0]()
        self.results[name] = found
        return float(count * microseconds / 1e3)


def test_both_compute_the_same_from_the_same_inputs(piece: Piece) -> None:
    clock, reference = Stopwatch(), by_reference(piece.graph)

    def compiled(module: Any, _inputs: Sequence[Tensor]) -> Any:
        return lambda *given: ("theirs", 7.0, module(*given))

    def launch(*given: Any) -> Any:
        reference(*given)
        return "ours", 3.0, given[len(piece.inputs) :]

    ours, theirs = compared(piece, launch, "cpu", clock, compiled)
    assert (ours, theirs) == (pytest.approx(3.0), pytest.approx(7.0))
    for found, want in zip(clock.results["ours"], clock.results["theirs"], strict=True):
        assert torch.allclose(found.float().reshape(want.shape), want.float(), rtol=2e-2, atol=2e-2)


def test_the_usual_way_is_the_piece_and_nothing_else(piece: Piece) -> None:
    module, sources = usual(piece)
    called = [node for node in module.graph.nodes if node.op == "call_function"]
    assert {node.name for node in called} >= {"mm", "relu", "add"}
    assert [node.name for node in module.graph.nodes if node.op == "placeholder"] == [
        one.name for one in sources
    ]


@pytest.mark.parametrize(("theirs", "taken"), [(6.0, True), (5.0, False), (4.0, False)])
def test_a_loss_is_never_kept(
    piece: Piece, monkeypatch: pytest.MonkeyPatch, theirs: float, taken: bool
) -> None:
    monkeypatch.setattr(choose, "build_all", lambda graphs, machine, workers: [BUILT for _ in graphs])
    monkeypatch.setattr(measure, "measured_us", lambda piece, build: (5.0, theirs))
    found = judged(piece, Options(take="measure"))
    assert (found.refusal == "") is taken
    assert (found.ours_us, found.theirs_us, found.measured) == (5.0, theirs, True)


@pytest.mark.parametrize(("predicted", "taken"), [(0.01, True), (1e6, False)])
def test_a_prediction_decides_by_default(
    piece: Piece, monkeypatch: pytest.MonkeyPatch, predicted: float, taken: bool
) -> None:
    built = Build({}, {"predicted_us": predicted}, 0.0)
    monkeypatch.setattr(choose, "build_all", lambda graphs, machine, workers: [built for _ in graphs])
    monkeypatch.setattr(choose, "_least_us", lambda graph, machine, theirs: 0.0)
    found = judged(piece, Options())
    assert (found.refusal == "") is taken


@pytest.mark.parametrize("least", [0.0, 5.0])
def test_copies_that_turn_a_result_count(piece: Piece, monkeypatch: pytest.MonkeyPatch, least: float) -> None:
    """By the bounds before a kernel is built, and by its time after."""
    monkeypatch.setattr(choose, "build_all", lambda graphs, machine, workers: [BUILT for _ in graphs])
    monkeypatch.setattr(choose, "_least_us", lambda graph, machine, theirs: least)
    monkeypatch.setattr(choose, "inductor_us", lambda *_given: 7.0)
    turned = replace(piece, turned_bytes=1 << 24)
    launch_us = load_machine("h200").kernel_launch_us  # which passes while the kernel before ends
    assert judged(piece, Options()).ours_us == pytest.approx(5.0 - launch_us)
    found = judged(turned, Options())
    assert found.refusal
    assert found.ours_us is not None
    assert found.ours_us > 7.0


def test_nothing_is_built_where_the_roofline_decides(piece: Piece, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(choose, "build_all", lambda graphs, machine, workers: asked.extend(graphs) or [])
    monkeypatch.setattr(choose, "roofline_us", lambda program, machine: 1e6)
    found = judged(piece, Options())
    assert asked == []
    assert "no kernel is faster" in found.refusal


def test_a_piece_without_a_kernel_has_the_reason(piece: Piece, monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = Refusal("no schedule fits")
    monkeypatch.setattr(choose, "build_all", lambda graphs, machine, workers: [refusal])
    found = judged(piece, Options(take="all"))
    assert found.refusal == "no schedule fits"


class WallClock:
    """A clock of this process's own time, for launches on the CPU."""

    def sample(self, launches: Sequence[Any], count: int) -> float:
        began = time.perf_counter()
        for number in range(count):
            launches[number % len(launches)]()
        return (time.perf_counter() - began) * 1e3


@pytest.mark.slow
def test_a_measurement_goes_on_inside_of_a_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    """There tensors are fake ones, and Inductor is called by itself."""
    found: list[tuple[float, float]] = []

    def measured(piece: Piece, _build: Build) -> tuple[float, float]:
        found.append(in_a_thread(piece, by_reference(piece.graph), "cpu", WallClock()))
        return 1.0, 2.0

    def model(x: Tensor, w: Tensor) -> Tensor:
        return torch.cumprod(torch.relu(x @ w.T), -1)

    monkeypatch.setattr(choose, "build_all", lambda graphs, machine, workers: [BUILT for _ in graphs])
    monkeypatch.setattr(measure, "measured_us", measured)
    x, w = torch.randn(32, 128, dtype=torch.bfloat16), torch.randn(64, 128, dtype=torch.bfloat16)
    options = {"execute": "reference", "rest": "inductor", "take": "measure"}
    report = explain(model, x, w, options=options)
    ((ours, theirs),) = found
    assert ours > 0
    assert theirs > 0
    assert "measured 1.0 us against 2.0 us" in str(report)


def test_what_is_turned_down_is_cut_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    def model(x: Tensor, w: Tensor) -> Tensor:
        return torch.exp(torch.relu(x @ w.T))

    def judged(pieces: Sequence[Piece], _options: Options) -> list[Judged]:
        long = [any(node.op == "exp" for node in piece.graph.nodes) for piece in pieces]
        return [Judged(refusal="spills" if one else "") for one in long]

    monkeypatch.setattr(rounds, "estimate", judged)
    x, w = torch.randn(32, 128, dtype=torch.bfloat16), torch.randn(64, 128, dtype=torch.bfloat16)
    report = explain(model, x, w, options={"execute": "reference", "rest": "eager", "take": "all"})
    assert [line.text for line in report.taken] == ["matmul relu -> bf16[32, 64]"]
    assert [line.text for line in report.refused] == ["matmul relu exp -> bf16[32, 64]"]
    assert "matmul relu exp -> bf16[32, 64], 5.24e+05 operations: spills" in str(report)


@pytest.mark.parametrize(("theirs", "asked"), [(1.0, 1), (None, 2)])
def test_what_lost_is_not_tried_with_less_around_it(
    monkeypatch: pytest.MonkeyPatch, theirs: float | None, asked: int
) -> None:
    """A kernel that the compiler rejects may be one with less arithmetic; one that is too slow is too slow."""
    told: list[Piece] = []

    def judged(pieces: Sequence[Piece], _options: Options) -> list[Judged]:
        told.extend(pieces)
        long = [any(node.op == "exp" for node in piece.graph.nodes) for piece in pieces]
        return [Judged(theirs_us=theirs, refusal="no good" if one else "") for one in long]

    def model(x: Tensor, w: Tensor) -> Tensor:
        return torch.exp(torch.relu(x @ w.T))

    monkeypatch.setattr(rounds, "estimate", judged)
    x, w = torch.randn(32, 128, dtype=torch.bfloat16), torch.randn(64, 128, dtype=torch.bfloat16)
    report = explain(model, x, w, options={"execute": "reference", "rest": "eager", "take": "all"})
    assert len(told) == asked
    assert len(report.taken) == asked - 1


def test_what_wins_stays_whatever_its_kin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two products of one size the one with arithmetic behind it wins, and is taken though the other one lost."""

    def judged(pieces: Sequence[Piece], _options: Options) -> list[Judged]:
        wins = [any(node.op == "exp" for node in piece.graph.nodes) for piece in pieces]
        return [Judged(theirs_us=1.0, refusal="" if one else "too slow") for one in wins]

    def model(x: Tensor, w: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return torch.exp(x @ w.T), torch.cumprod(x @ v.T, -1)

    monkeypatch.setattr(rounds, "estimate", judged)
    x, w, v = (torch.randn(rows, 128, dtype=torch.bfloat16) for rows in (32, 64, 64))
    report = explain(model, x, w, v, options={"execute": "reference", "rest": "eager", "take": "all"})
    assert [line.text for line in report.taken] == ["matmul exp -> bf16[32, 64]"]
    assert [line.text for line in report.refused] == ["matmul -> bf16[32, 64]"]


def test_kernels_are_built_in_two_rounds_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round builds for all pieces of a cut at once. What is cut after the second one is not built."""
    asked: list[list[str]] = []

    def refused(wanted: Sequence[Wanted], _machine: str, _workers: int) -> list[Refusal]:
        asked.append(sorted(in_words(one.graph) for one in wanted))
        return [Refusal("spills") for _ in wanted]

    def model(x: Tensor, w: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return torch.tanh(torch.exp(torch.relu(x @ w))), torch.cumprod(x @ v, -1)

    monkeypatch.setattr(choose, "build_all", refused)
    shapes = ((32, 128), (128, 64), (128, 96))
    x, w, v = (torch.randn(shape, dtype=torch.bfloat16) for shape in shapes)
    report = explain(model, x, w, v, options={"execute": "simulation", "rest": "eager", "take": "all"})
    assert asked == [
        ["matmul -> bf16[32, 96]", "matmul relu exp tanh -> bf16[32, 64]"],
        ["matmul relu exp -> bf16[32, 64]"],
    ]
    assert report.taken == ()
    told = {line.text: line.judged.refusal for line in report.refused}
    assert told["matmul relu exp -> bf16[32, 64]"] == "spills"
    assert "not built" in told["matmul relu -> bf16[32, 64]"]
