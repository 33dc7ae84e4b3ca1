"""Candidates of a small graph, from the graph to the folder; and the command around it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fewer_structures import one_of

from wsopt.errors import InputError, RequirementError
from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder
from wsopt.graph.serialize import graph_to_json
from wsopt.machine.load import load_machine
from wsopt.perf.price import lower
from wsopt.perf.timing import predict
from wsopt.program.types import Sharing, Structure
from wsopt.solve.optimum import solve
from wsopt.solve.search import DEFAULT_MARGIN
from wsopt.validate.again import predict_again, started_by
from wsopt.validate.command import Request, run
from wsopt.validate.files import (
    CandidateSet,
    Measured,
    Measurement,
    load_candidates,
    measured_to_json,
    write_json,
)
from wsopt.validate.validation import Validation, validate

COUNT = 4


def silent(_stage: str, _done: int, _total: int) -> None:
    pass


@pytest.fixture(scope="module")
def graph_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    g = GraphBuilder("small")
    p = g.matmul(g.input("x", (256, 256), "bf16"), g.input("w", (256, 256), "bf16"), transpose_b=True)
    g.output(g.cast(p, dtype="bf16", name="y"))
    path = tmp_path_factory.mktemp("graph") / "small.json"
    path.write_text(json.dumps(graph_to_json(g.build())))
    return path


@pytest.fixture(scope="module")
def made(graph_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "candidates"
    with one_of(6), pytest.MonkeyPatch.context() as patch:
        patch.setenv("WSOPT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))  # it is not the best of all
        text, _ = run(request(graphs=(graph_file,), candidates=folder), silent)
    assert text.startswith(f"small: {COUNT} of ")
    assert f"python3 -m wsopt.validate.measure {folder}" in text
    return folder


def request(**given: object) -> Request:
    fields = {"graphs": (), "machine": "h200", "count": COUNT}
    others = dict.fromkeys(("candidates", "measured", "again", "json_path", "plot"))
    return Request(**{**fields, **others, **given})  # type: ignore[arg-type]


def as_predicted(found: CandidateSet) -> Measured:
    rows = [
        Measurement(graph.name, one.name, "ok", median_us=one.predicted_us)
        for graph in found.graphs
        for one in graph.candidates
    ]
    return Measured("2026-11-21T00:00:00Z", {"device": "Fake 9000"}, {}, tuple(rows))


@pytest.fixture(scope="module")
def perfect(made: Path) -> Validation:
    found = load_candidates(made)
    return validate(found, as_predicted(found))


def test_a_folder_a_candidate(made: Path) -> None:
    (graph,) = load_candidates(made).graphs
    assert [one.name for one in graph.candidates] == ["00", "01", "02", "03"]
    assert len({one.what for one in graph.candidates}) == COUNT
    assert (made / "small" / "00" / "schedule.json").is_file()
    for one in graph.candidates:
        assert {"graph.json", "kernel.py"} <= {path.name for path in (made / "small" / one.name).iterdir()}
    assert min(one.predicted_us for one in graph.candidates) == graph.candidates[0].predicted_us
    shallow = graph.candidates[-1]
    assert shallow.depth == shallow.slots > 0


def test_report_of_what_was_measured(made: Path, perfect: Validation, tmp_path: Path) -> None:
    write_json(tmp_path / "measured.json", measured_to_json(as_predicted(load_candidates(made))))
    asked = request(candidates=made, measured=tmp_path / "measured.json", json_path=tmp_path / "out.json")
    text, shortfalls = run(asked, silent)
    assert shortfalls == []
    assert "mean relative error 0.0%" in text
    again, _ = run(request(again=tmp_path / "out.json"), silent)
    assert again == text


def test_predicted_again(perfect: Validation) -> None:
    machine = load_machine("h200")
    assert predict_again(perfect, machine, silent) == perfect


@pytest.mark.parametrize("store_warps", [False, True])
def test_predicted_again_with_the_stores_as_they_were(store_warps: bool) -> None:
    card = load_machine("h200")
    g = GraphBuilder("many_tiles")
    p = g.matmul(g.input("x", (4096, 1024), "bf16"), g.input("w", (4096, 1024), "bf16"), transpose_b=True)
    g.output(g.cast(p, dtype="bf16", name="y"))
    found = find_region(g.build())
    program = lower(found, Structure(64, 256, 64, 2, 4, Sharing.COOPERATIVE, True, False, 2, 4), card)
    solved = solve(program, card, DEFAULT_MARGIN).schedule
    assert solved is not None
    assert solved.buffers.store_warp  # several tiles a block
    again = started_by(solved, program, card, store_warps=store_warps)
    assert again.buffers.store_warp == store_warps
    slots = [depth for _, depth in again.rings]
    assert again.prediction == predict(program, card, again.ii, again.buffers, slots)
    assert (again == solved) == store_warps
    assert (again.prediction.epilogue > solved.prediction.epilogue) != store_warps


def test_a_folder_that_is_not_empty(made: Path, graph_file: Path) -> None:
    with pytest.raises(InputError, match=r"is not empty: it holds candidates\.json"):
        run(request(graphs=(graph_file,), candidates=made), silent)


def test_two_graphs_of_one_name(graph_file: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="two are named small"):
        run(request(graphs=(graph_file, graph_file), candidates=tmp_path / "new"), silent)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "give GRAPHs to validate with, or both"),
        ({"measured": Path("m")}, "or both --candidates DIR and --measured FILE"),
        ({"graphs": (Path("g"),), "measured": Path("m")}, "not both"),
        ({"graphs": (Path("g"),), "candidates": Path("c"), "plot": Path("p")}, "nothing is measured yet"),
        ({"again": Path("a"), "graphs": (Path("g"),)}, "--again FILE stands alone"),
        ({"candidates": Path("nowhere"), "measured": Path("m")}, r"nowhere.*cannot be read: No such file"),
    ],
)
def test_options_that_do_not_go_together(given: dict[str, object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        run(request(**given), silent)


def test_without_torch(graph_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RequirementError, match="torch is not installed"):
        run(request(graphs=(graph_file,)), silent)
