"""Measuring a folder of candidates, with the benchmark replaced: what is asked, kept, skipped and refused."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest
from tune_examples import FakeMeasurer, write_candidates

from wsopt.errors import CheckError
from wsopt.tune import measure as tune
from wsopt.tune.measure import OPTIONS, Tuning, measure_candidates
from wsopt.tune.races import Race, load_races


def test_every_candidate_beside_the_first(tmp_path: Path) -> None:
    found = write_candidates(tmp_path, 3)
    seen: list[Race] = []
    measurer = FakeMeasurer({"02": 1.25, "03": "wrong"})
    races = measure_candidates(tmp_path, Tuning(measurer, on_race=seen.append))
    assert measurer.asked == ["01", "02", "03"]
    assert measurer.limits == [OPTIONS.limit_s] * 3
    assert races == tuple(seen)
    assert [(one.rank, one.status, one.ratio) for one in races] == [
        (1, "ok", 1.0), (2, "ok", 1.25), (3, "wrong", None)
    ]  # fmt: skip
    assert (races[1].time_us, races[1].against_us, races[1].spread) == (8.0, 10.0, 0.002)
    assert [one.source for one in races] == [one.source for one in found.candidates]
    assert {one.against for one in races} == {found.candidates[0].source}
    assert {(one.graph, one.machine, one.card, one.triton, one.keep) for one in races} == {
        ("g", "h200", "NVIDIA H200", "3.6.0", 3)
    }


def test_a_kernel_that_hangs_or_dies_does_not_stop_the_others(tmp_path: Path) -> None:
    write_candidates(tmp_path, 4)
    races = measure_candidates(tmp_path, Tuning(FakeMeasurer({"02": "hang", "03": "error"})))
    assert [one.status for one in races] == ["ok", "hang", "error", "ok"]
    assert races[1].message == "it is hang"


def test_known_ones_are_left_out_but_the_first(tmp_path: Path) -> None:
    write_candidates(tmp_path, 3)
    measurer, asked = FakeMeasurer(), []

    def known(race: Race) -> bool:
        asked.append((race.rank, race.card, race.triton))
        return race.rank == 2

    measure_candidates(tmp_path, Tuning(measurer, known=known))
    assert measurer.asked == ["01", "03"]
    assert asked == [(2, "NVIDIA H200", "3.6.0"), (3, "NVIDIA H200", "3.6.0")]


def test_no_candidate_starts_after_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_candidates(tmp_path, 5)
    now = [0.0]
    monkeypatch.setattr(tune.time, "monotonic", lambda: now[0])
    measurer = FakeMeasurer(before=lambda name: now.__setitem__(0, now[0] + 50.0))
    races = measure_candidates(tmp_path, Tuning(measurer, seconds=130.0))
    assert [one.rank for one in races] == [1, 2, 3]
    assert measurer.limits == [120.0, 80.0, 30.0]
    # What our own end of time cuts short says nothing about the kernel.
    now[0], measurer.speeds = 0.0, {"03": "hang"}
    assert [one.rank for one in measure_candidates(tmp_path, Tuning(measurer, seconds=130.0))] == [1, 2]


@pytest.mark.parametrize("status", ["wrong", "hang", "error"])
def test_a_first_choice_that_fails_is_told(tmp_path: Path, status: str) -> None:
    write_candidates(tmp_path, 2)
    with pytest.raises(CheckError, match=f"the model's first choice fails on NVIDIA H200: {status}: it is"):
        measure_candidates(tmp_path, Tuning(FakeMeasurer({"01": status})))


def test_another_card_is_refused(tmp_path: Path) -> None:
    write_candidates(tmp_path, 2)
    with pytest.raises(
        CheckError, match="NVIDIA H100 PCIe has 114 SMs, h200 has 132; give its own --machine"
    ):
        measure_candidates(tmp_path, Tuning(FakeMeasurer(card="NVIDIA H100 PCIe", sms=114)))


def test_the_command_adds_to_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_candidates(tmp_path / "c", 3)
    measurer = FakeMeasurer({"02": 1.25, "03": "error"})
    monkeypatch.setattr(tune, "bench_folders", lambda folders, options, worker: measurer(*folders, options))
    command = [str(tmp_path / "c"), "-o", str(tmp_path / "r.json")]
    assert tune.main(command) == 0
    assert "candidate 2: 8.00 us, 1.2500 +- 0.0020 times as fast as the first" in capsys.readouterr().err
    assert len(load_races(tmp_path / "r.json")) == 3
    measurer.speeds = {"03": 0.5}
    measurer.asked.clear()
    assert tune.main(command) == 0
    assert measurer.asked == ["01", "03"]  # an error is tried again
    assert sorted(one.ratio or math.nan for one in load_races(tmp_path / "r.json")) == [0.5, 1.0, 1.25]
    assert tune.main([str(tmp_path), "-o", str(tmp_path / "r.json")]) == 2
    assert "holds no candidates" in capsys.readouterr().err


def test_the_command_needs_neither_solver_nor_the_rest() -> None:
    blocked = {"ortools", "pydantic", "typer", "diskcache", "networkx", "rich", "jinja2", "greenlet", "numpy"}
    script = (
        "import sys\n"
        "class Blocked:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] in {blocked!r}:\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Blocked())\n"
        "import wsopt.tune.measure\n"
    )
    root = str(Path(__file__).parents[2])
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60, cwd=root)
