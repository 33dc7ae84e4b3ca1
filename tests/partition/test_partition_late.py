"""A cut that has little time: bounds are left out, then better covers; a kernel that is missing is named."""

from __future__ import annotations

import json
import math
import pickle
import time
from pathlib import Path

import pytest
from partition_graphs import mlp

from wsopt.deadline import Deadline
from wsopt.errors import TimeOverError
from wsopt.machine.types import Machine
from wsopt.partition import cut as cutting
from wsopt.partition import prices as pricing
from wsopt.partition.build import CutBuild
from wsopt.partition.command import compiled_text
from wsopt.partition.cut import CutCertificate, Cutter, cutter_of, settled
from wsopt.partition.document import RECORD, CutRecord, Step, summary_of
from wsopt.partition.prices import Level, Price, Prices
from wsopt.partition.text import cut_text


def spent(share: float) -> Deadline:
    """A limit of which such a share is over."""
    return Deadline(1000.0, time.monotonic() - 1000.0 * share)


def _priced(machine: Machine, deadline: Deadline, *, fused: Level, apart: Level) -> Cutter:
    """A feed-forward layer's candidates: its fused product at 2 us, others at 10 us, as well known as is said."""
    cutter = cutter_of(mlp(2048, 1024, 4096), Prices(machine, deadline=deadline))
    for piece in cutter.found.pieces:
        one = piece.graph.outputs == ("m",) and len(piece.nodes) == 5
        cutter.prices.known[piece.key] = Price(2.0, fused) if one else Price(10.0, apart)
    return cutter


def test_a_cover_by_kernels_that_are_made_is_taken_when_the_time_is_over(h200: Machine) -> None:
    found = settled([_priced(h200, spent(0.7), fused=Level.ROOFLINE, apart=Level.SOLVED)])
    assert (len(found.pieces), found.microseconds) == (4, 40.0)
    assert found.skipped == ("kernels of 1 piece not made, with which 22.0 us are not excluded",)
    assert not found.certificate.proved
    whole = settled([_priced(h200, spent(0.7), fused=Level.SOLVED, apart=Level.SOLVED)])
    assert (whole.microseconds, whole.skipped, whole.certificate.proved) == (22.0, (), True)


def test_kernels_are_made_without_bounds_when_it_is_late_for_them(
    h200: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float | None] = []

    def late(tasks: list[pricing.BuildTask], *_: object, **__: object) -> list[TimeOverError]:
        asked.extend(task.seconds for task in tasks)
        return [TimeOverError("no time")] * len(tasks)

    monkeypatch.setattr(pricing, "build_batch", late)
    monkeypatch.setattr(pricing, "_bounded", lambda task: pytest.fail("it is bounded"))
    cutter = _priced(h200, spent(0.4), fused=Level.ROOFLINE, apart=Level.ROOFLINE)
    with pytest.raises(TimeOverError, match=r"1000 s of --time-limit .* pieces that end in h, m, y, which"):
        settled([cutter])
    assert len(asked) == 3
    rounds = math.ceil(3 / cutter.prices.workers.at_once)
    assert asked == pytest.approx([550.0 / rounds] * 3, rel=0.01)


def test_a_bound_that_is_late_leaves_the_roofline(h200: Machine) -> None:
    piece = cutter_of(mlp(2048, 1024, 4096), Prices(h200)).found.pieces[0]
    price, tasks = Price(1.0, Level.ROOFLINE), {}
    for share in (0.2, 0.4):
        tasks[share] = pricing._Task(piece.graph, h200, spent(share), price)
    assert pricing._bounded(tasks[0.4]) is price
    assert pricing._bounded(tasks[0.2]).level is Level.BOUND


def test_many_covers_are_followed_by_all_bounds_at_once(
    h200: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many covers it takes, a cut is settled; and pieces that no cover has had yet are bounded together."""
    asked: list[int] = []

    def bounded(prices: Prices, pieces: dict[str, pricing.Piece]) -> dict[str, Price]:
        asked.append(len(pieces))
        return {key: Price(prices.known[key].microseconds, Level.BOUND) for key in pieces}

    def solved(prices: Prices, pieces: dict[str, pricing.Piece]) -> dict[str, Price]:
        return {key: Price(prices.known[key].microseconds, Level.SOLVED) for key in pieces}

    monkeypatch.setattr(Prices, "_bounded", bounded)
    monkeypatch.setattr(Prices, "_solved", solved)
    monkeypatch.setattr(cutting, "_COVERS", 1)
    cutter = _priced(h200, Deadline(), fused=Level.ROOFLINE, apart=Level.ROOFLINE)
    different = len({piece.key for piece in cutter.found.pieces})
    found = settled([cutter])
    assert found.microseconds == 22.0
    assert len(asked) == 2, "those of the first cover, then all others"
    assert sum(asked) == different


def test_a_process_elsewhere_has_the_same_time_left() -> None:
    again: Deadline = pickle.loads(pickle.dumps(spent(0.25)))
    assert again.seconds == 1000.0
    assert again.share(1, 1) == pytest.approx(750.0, abs=1.0)
    assert again.share(5, 2) == pytest.approx(250.0, abs=1.0)
    assert again.share(1, 1, again.search_end) == pytest.approx(350.0, abs=1.0)
    assert Deadline(5.0, time.monotonic() - 6.0).share(1, 1) == 0.0
    assert Deadline().share(7, 2) == math.inf


def test_what_was_skipped_is_told_everywhere() -> None:
    record = RECORD.validate_python(
        {
            "format": "wsopt.cut/1", "name": "g", "machine": "h200", "predicted_us": 2.0, "roofline_us": 1.0,
            "workspace_bytes": 0, "steps": [Step("kernels/0", {}, ("x",), ("y",), 2.0, 1.0, "the SMs")], "places": [],
            "certificate": CutCertificate(1, True, 1, 1, 1, 1, False, ()),
            "skipped": ["kernels/0: 3 structures left open"],
        }
    )  # fmt: skip
    assert isinstance(record, CutRecord)
    assert summary_of(record)["skipped"] == ["kernels/0: 3 structures left open"]
    assert "Skipped for lack of time: kernels/0: 3 structures left open." in cut_text(record)
    older = json.loads(RECORD.dump_json(record))
    del older["skipped"]
    assert "skipped" not in summary_of(RECORD.validate_python(older))
    assert "Skipped" not in cut_text(RECORD.validate_python(older))
    told = compiled_text(CutBuild({}, summary_of(record), 1.0), Path("out"))
    assert "  skipped for lack of time: kernels/0: 3 structures left open\n  written to out" in told
