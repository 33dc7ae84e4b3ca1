"""The parent of the measuring processes: every candidate gets its row, whatever becomes of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from wsopt.errors import CheckError
from wsopt.gpu.bench_options import BenchOptions
from wsopt.truth.files import Measured, load_measured
from wsopt.truth.measure import main as measure_main
from wsopt.truth.measure import measure_candidates

WORKER = (sys.executable, str(Path(__file__).parent / "fixtures" / "fake_worker.py"))
OPTIONS = BenchOptions(limit_s=1.0)


def measured_with(monkeypatch: pytest.MonkeyPatch, folder: Path, **fates: dict[str, object]) -> Measured:
    monkeypatch.setenv("TRUTH_FAKE", json.dumps(fates))
    return measure_candidates(folder, OPTIONS, worker=WORKER)


def statuses(found: Measured) -> dict[str, str]:
    return {f"{row.graph}/{row.candidate}": row.status for row in found.rows}


def test_all_is_well(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    found = measured_with(monkeypatch, folder)
    assert len(found.rows) == 4 + 3 + 2
    assert {row.status for row in found.rows} == {"ok"}
    assert [row.median_us for row in found.rows[:4]] == [10.0, 11.0, 12.0, 13.0]
    assert [f"{row.graph}/{row.candidate}" for row in found.rows if row.baseline] == [
        "one/cublas",
        "two/cublas",
    ]
    assert found.card["device"] == "Fake 9000"


@pytest.mark.parametrize(
    ("fate", "status", "told"),
    [
        ("wrong", "wrong", "y is off by 0.5"),
        ("hang", "hang", "a sample did not end"),
        ("stuck", "hang", "no result within 1 s"),
        ("crash", "error", "an illegal memory access"),
    ],
)
def test_one_fails_its_check(
    monkeypatch: pytest.MonkeyPatch, folder: Path, fate: str, status: str, told: str
) -> None:
    found = measured_with(monkeypatch, folder, check={"one/01": fate})
    row = next(row for row in found.rows if (row.graph, row.candidate) == ("one", "01"))
    assert row.status == status
    assert told in row.message
    assert sorted(statuses(found).values()) == sorted([status, *["ok"] * 8])


def test_one_without_room_beside_others_is_checked_alone(
    monkeypatch: pytest.MonkeyPatch, folder: Path, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRUTH_CROWD", str(tmp_path / "before"))
    found = measured_with(monkeypatch, folder, check={"one/01": "crowded"})
    assert (tmp_path / "before").exists()
    assert set(statuses(found).values()) == {"ok"}
    assert len(found.rows) == 9


def test_one_hangs_while_it_is_timed(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    found = statuses(measured_with(monkeypatch, folder, time={"two/02": "hang"}))
    assert found.pop("two/02") == "hang"
    assert set(found.values()) == {"ok"}
    assert len(found) == 8


def test_a_graph_that_cannot_be_timed(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    found = measured_with(monkeypatch, folder, time={"two/00": "lost"})
    rows = [row for row in found.rows if row.graph == "two"]
    assert [(row.candidate, row.status, row.message) for row in rows] == [
        (name, "error", "out of memory") for name in ("00", "01", "02")
    ]
    assert sum(row.status == "ok" for row in found.rows) == 5


def test_nothing_starts(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    with pytest.raises(CheckError, match=r"no measurement could start: .*No module named 'torch'"):
        measured_with(monkeypatch, folder, check={"start": "no"})


def test_another_card(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    with pytest.raises(CheckError, match="solved for another card: Fake 9000 has 78 SMs, h200 has 132"):
        measured_with(monkeypatch, folder, check={"sms": 78})


def test_command(monkeypatch: pytest.MonkeyPatch, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TRUTH_FAKE", "{}")
    monkeypatch.setitem(measure_candidates.__kwdefaults__ or {}, "worker", WORKER)
    out = folder.parent / "measured.json"
    assert measure_main([str(folder), "--json", str(out)]) == 0
    assert capsys.readouterr().out == "9 ok, 0 wrong, 0 hang, 0 error\n"
    assert len(load_measured(out).rows) == 9
    assert measure_main([str(folder.parent), "--json", str(out)]) == 2
