"""Tuning from a graph to `compile --tuned`, with the GPU replaced: here, and over files from elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import forked_command
import pytest
from tune_examples import FakeMeasurer

from wsopt.build import Build
from wsopt.cache import cache_folder
from wsopt.driver import build
from wsopt.errors import InputError, NotMeasuredError
from wsopt.folder import read_folder, write_folder
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.types import Graph
from wsopt.machine import Machine
from wsopt.tune import tuned as tuned_module
from wsopt.tune.candidates import load_candidates
from wsopt.tune.database import Database
from wsopt.tune.measure import Tuning, measure_candidates
from wsopt.tune.races import load_races, write_races
from wsopt.tune.session import Session, table
from wsopt.tune.tuned import graph_key, triton_version, tuned_build

KEEP = 3
ROOT = Path(__file__).parents[2]


def measurer(**speeds: float | str) -> FakeMeasurer:
    return FakeMeasurer({name[1:]: speed for name, speed in speeds.items()}, triton=triton_version())


def tuned(graph: Graph, machine: Machine, **options: str) -> Build:
    return tuned_build(graph, machine, **options)  # type: ignore[arg-type]


def test_a_clear_winner_is_compiled_without_measuring(cache: Path, small: Graph, h200: Machine) -> None:
    with pytest.raises(
        NotMeasuredError, match="graph small: nothing was measured of it for h200; measure it"
    ):
        tuned(small, h200)
    session = Session(small, h200, KEEP, measure=measurer(_02=0.9, _03=1.2))
    found = session.run()
    assert found["chosen"]["rank"] == 3
    assert [row["ratio"] for row in found["candidates"]] == [1.0, 0.9, 1.2]
    assert len(table(found)) == 1 + KEEP
    best = session.candidates()[2]
    chosen = tuned(small, h200)
    assert chosen.kernel == best.kernel
    assert chosen.summary["tuned"]["rank"] == 3
    assert "Number 3 of the model's candidates" in chosen.files["report.txt"]
    assert "this one, number 3 (II" in chosen.files["report.txt"]
    assert chosen.files == tuned(small, h200).files
    write_folder(cache / "build", chosen.files)
    back = read_folder(cache / "build")
    assert back.summary == chosen.summary
    assert back.certificate.rank == 3
    assert build(small, h200).kernel == session.candidates()[0].kernel  # compile without it is as ever


def test_candidates_are_ranked_and_checked(cache: Path, small: Graph, h200: Machine) -> None:
    session = Session(small, h200, KEEP)
    session.write(cache / "candidates")
    listed = load_candidates(cache / "candidates")
    assert [one.rank for one in listed.candidates] == [1, 2, 3]
    times = [one.predicted_us for one in listed.candidates]
    assert times == sorted(times) == [one.bound_us for one in listed.candidates]
    assert len({one.source for one in listed.candidates}) == KEEP
    for one in listed.candidates:
        verified = read_folder(cache / "candidates" / one.folder).summary["verified"]
        assert verified["compiled"]
        assert verified["interpreter"]["seeds"] >= 20
    session.write(cache / "candidates")  # what holds candidates is replaced, what does not is not
    (cache / "other").mkdir()
    (cache / "other" / "letter").write_text("mine")
    with pytest.raises(InputError, match="is there and holds no candidates"):
        session.write(cache / "other")


@pytest.mark.parametrize("speeds", [{"_02": 1.0015}, {"_02": "wrong", "_03": 0.8}, {"_02": "hang"}])
def test_the_first_stays(cache: Path, small: Graph, h200: Machine, speeds: dict[str, float | str]) -> None:
    assert Session(small, h200, KEEP, measure=measurer(**speeds)).run()["chosen"]["rank"] == 1
    chosen = tuned(small, h200)
    assert chosen.kernel == build(small, h200).kernel
    assert "The model's first choice: 3 of 3 candidates" in chosen.files["report.txt"]


def test_a_second_session_measures_what_is_missing(cache: Path, small: Graph, h200: Machine) -> None:
    def stop(name: str) -> None:
        if name == "03":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Session(small, h200, KEEP, measure=replace(measurer(_02=1.1), before=stop)).run()
    assert tuned(small, h200).summary["tuned"]["measured"] == 2
    again = measurer(_03=1.3)
    assert Session(small, h200, KEEP, measure=again).run()["chosen"]["rank"] == 3
    assert again.asked == ["01", "03"]
    again.asked.clear()
    Session(small, h200, KEEP, again=True, measure=again).run()
    assert again.asked == ["01", "02", "03"]


def test_results_from_another_machine(cache: Path, small: Graph, h200: Machine, tmp_path: Path) -> None:
    """Candidates are written here, measured there without a solver, and brought in by the command line."""
    (tmp_path / "small.json").write_text(json.dumps(graph_to_json(small)))

    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        return forked_command.run(tmp_path, arguments, {**os.environ, "PYTHONPATH": str(ROOT)})

    done = command("tune", "small.json", "-k", str(KEEP), "--candidates", "there")
    assert done.returncode == 0, done.stderr
    races = measure_candidates(tmp_path / "there", Tuning(measurer(_02=1.5)))
    write_races(tmp_path / "results.json", races)
    assert "3 results of 1 graph on NVIDIA H200" in command("tune", "--import", "results.json").stdout
    found = json.loads(command("compile", "small.json", "--tuned", "--json").stdout)
    assert found["tuned"]["rank"] == 2
    report = command("inspect", "small.wsopt").stdout
    assert report == (tmp_path / "small.wsopt" / "report.txt").read_text()
    assert "1.5000 times as fast as the first" in report
    assert command("tune", "--export", "all.json").returncode == 0
    assert load_races(tmp_path / "all.json") == tuple(sorted(races, key=lambda one: one.source))
    (tmp_path / "results.json").write_text('{"format": "wsopt.tune/9", "races": []}')
    refused = command("tune", "--import", "results.json")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "results.json: /format: is 'wsopt.tune/9'; this version reads 'wsopt.tune/1'" in refused.stderr
    assert command("tune").returncode == command("tune", "small.json", "--export", "x").returncode == 2


def test_what_was_measured_with_another_triton_waits(cache: Path, small: Graph, h200: Machine) -> None:
    old = replace(measurer(_02=1.5), triton="3.5.9")
    Session(small, h200, KEEP, measure=old).run()
    told = f"it was measured with Triton 3.5.9, this is {triton_version()}"
    with pytest.raises(NotMeasuredError, match=told):
        tuned(small, h200)
    Session(small, h200, KEEP, measure=measurer(_03=1.2)).run()
    assert tuned(small, h200).summary["tuned"]["rank"] == 3
    assert len(Database(cache_folder()).races()) == 2 * KEEP


def test_two_cards_have_to_be_told_apart(cache: Path, small: Graph, h200: Machine) -> None:
    Session(small, h200, KEEP, measure=measurer(_02=1.5)).run()
    Session(small, h200, KEEP, measure=replace(measurer(_03=1.5), card="NVIDIA H100")).run()
    with pytest.raises(NotMeasuredError, match="on NVIDIA H100 and on NVIDIA H200; say which with --card"):
        tuned(small, h200)
    assert tuned(small, h200, card="NVIDIA H100").summary["tuned"]["rank"] == 3
    with pytest.raises(NotMeasuredError, match="it was not measured on NVIDIA B200, but on NVIDIA H100"):
        tuned(small, h200, card="NVIDIA B200")


def test_a_changed_model_keeps_what_was_measured_of_the_same_code(
    cache: Path, small: Graph, h200: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version ranks the candidates otherwise: their races count, and a new first choice asks for more."""
    Session(small, h200, KEEP, measure=measurer(_02=1.2, _03=1.5)).run()
    ordered = Session(small, h200, KEEP).candidates()
    for order, rank in (((1, 0, 2), 3), ((2, 0, 1), 1)):
        found = tuple(ordered[place] for place in order)
        monkeypatch.setattr(tuned_module, "builds", lambda *_, found=found, **__: found)
        assert tuned(small, h200).summary["tuned"]["rank"] == rank
    fresh = replace(ordered[0], files={**ordered[0].files, "kernel.py": "NEW = 1\n"})
    monkeypatch.setattr(tuned_module, "builds", lambda *_, **__: (fresh, *ordered))
    with pytest.raises(NotMeasuredError, match="this version's first choice was not measured on NVIDIA H200"):
        tuned(small, h200)


def test_a_graph_is_known_by_what_it_computes(small: Graph) -> None:
    assert graph_key(replace(small, name="other", doc="words")) == graph_key(small)
    (x, w) = small.inputs
    assert graph_key(replace(small, inputs=(replace(x, constant=True), w))) != graph_key(small)
