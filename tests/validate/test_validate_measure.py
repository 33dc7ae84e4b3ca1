"""The parent of the measuring processes: every candidate gets its row, whatever becomes of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from wsopt.bench.bench_options import BenchOptions
from wsopt.errors import CheckError
from wsopt.validate.files import Measured, load_measured
from wsopt.validate.measure import main as measure_main
from wsopt.validate.measure import measure_candidates
from wsopt.validate.memory import available_bytes, peak_bytes

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
    found = measured_with(monkeypatch, folder, check={"one/01": "contended"})
    assert (tmp_path / "before").exists()
    assert set(statuses(found).values()) == {"ok"}
    assert len(found.rows) == 9


KILLED = "the system killed the process (signal 9), which it does where host memory ends"


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file in which workers write their modes and items; a machine with many processors."""
    monkeypatch.setenv("TRUTH_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    monkeypatch.setattr("wsopt.validate.measure.available_bytes", lambda: 100)
    return tmp_path / "runs"


def checked_beside(runs: Path) -> list[int]:
    """How many items each check worker had, but for the first."""
    return [len(line.split()) - 1 for line in runs.read_text().splitlines() if line.startswith("check")][1:]


@pytest.mark.parametrize(
    ("told", "shares"),
    [({"peak": 1}, 6), ({"peak": 25}, 3), ({"peak": 33}, 2), ({"peak": 90}, 1), ({"free": 5 * 2**29}, 1)],
)
def test_so_many_at_a_time_as_have_room(
    monkeypatch: pytest.MonkeyPatch, folder: Path, runs: Path, told: dict[str, object], shares: int
) -> None:
    found = measured_with(monkeypatch, folder, check=told)
    assert set(statuses(found).values()) == {"ok"}
    assert runs.read_text().startswith("check one/00\n")
    assert len(checked_beside(runs)) == shares
    assert sum(checked_beside(runs)) == 6


def test_one_that_is_killed_beside_others_is_right_alone(
    monkeypatch: pytest.MonkeyPatch, folder: Path, runs: Path
) -> None:
    found = measured_with(monkeypatch, folder, check={"peak": 90, "one/01": "killed beside others"})
    assert set(statuses(found).values()) == {"ok"}
    assert "check one/01\n" in runs.read_text()


@pytest.mark.parametrize(
    ("fate", "told"),
    [
        ("killed", f"{KILLED}: the process ended with status -9: Downloading"),
        ("memory", "out of host memory: "),
    ],
)
def test_one_that_memory_does_not_do_for_says_so(
    monkeypatch: pytest.MonkeyPatch, folder: Path, runs: Path, fate: str, told: str
) -> None:
    found = measured_with(monkeypatch, folder, check={"two/01": fate})
    (row,) = [row for row in found.rows if row.status != "ok"]
    assert (row.graph, row.candidate, row.status) == ("two", "01", "error")
    assert row.message.startswith(told)
    assert row.message.endswith("; it was checked twice, the second time alone")
    assert runs.read_text().count("check two/01\n") >= 1


def test_workers_that_find_the_gpu_full_are_not_the_end(
    monkeypatch: pytest.MonkeyPatch, folder: Path, runs: Path
) -> None:
    found = measured_with(monkeypatch, folder, check={"start": "full", "peak": 90})
    assert set(statuses(found).values()) == {"ok"}
    assert len(found.rows) == 9
    assert max(checked_beside(runs)) > 1


def test_memory_that_ends_while_a_graph_is_timed_is_no_candidates_fault(
    monkeypatch: pytest.MonkeyPatch, folder: Path, runs: Path
) -> None:
    found = measured_with(monkeypatch, folder, time={"two/01": "killed"})
    rows = [row for row in found.rows if row.graph == "two"]
    assert [row.status for row in rows] == ["error"] * 3
    assert all(row.message.startswith(KILLED) for row in rows)
    assert runs.read_text().count("time two/") == 2


def test_what_is_available_is_read_from_the_system_and_from_a_limit(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  8000 kB\nMemAvailable:    4000 kB\nHugePages_Total:  0\n")
    assert available_bytes(meminfo, tmp_path) == 4000 * 1024
    for name, text in (("memory.max", "3000000"), ("memory.current", "1000000"), ("memory.stat", "anon 1\n")):
        (tmp_path / name).write_text(text)
    assert available_bytes(meminfo, tmp_path) == 2000000
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 500000\n")
    assert available_bytes(meminfo, tmp_path) == 2500000
    (tmp_path / "memory.max").write_text("max")
    assert available_bytes(meminfo, tmp_path) == 4000 * 1024
    assert available_bytes(tmp_path / "none", tmp_path / "none") > 2**20
    assert peak_bytes() > 2**20


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
