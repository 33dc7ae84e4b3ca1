"""What a validation comes to, what the gate lets pass, and its file, page and plot."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from validate_examples import MEASURED, PREDICTED, candidate_set, measured, validation

from wsopt.errors import CheckError, InputError, RequirementError
from wsopt.validate import docs
from wsopt.validate.files import Measurement, measured_to_json, write_json
from wsopt.validate.plot import plot_svg
from wsopt.validate.report import report_text, suspects
from wsopt.validate.validation import load_validation, shortfalls, validate, validation_to_json


def test_figures() -> None:
    one, two = validation().graphs
    assert one.tau == pytest.approx(4 / 6)
    assert one.tau_apart == 1.0  # the two in the wrong order are 4 % apart
    assert two.tau == two.tau_apart == 1.0
    assert one.error == pytest.approx((0 + 0.04 + 0.2 + 0.25) / 4)
    assert one.regret == 0
    assert validation({**MEASURED, "two": (103.0, 100.0, 160.0)}).graphs[1].regret == pytest.approx(0.03)


def test_gate() -> None:
    assert shortfalls(validation({**MEASURED, "one": PREDICTED["one"]})) == []
    assert shortfalls(validation({**PREDICTED, "one": (11.0, 10.4, 20.0, 30.0)})) == [
        "graph one: tau 0.67 of schedules more than 5% apart, at least 0.8 is asked",
        "graph one: regret 5.8%, at most 2% is asked",
    ]
    slow = {"one": (20.0, 24.0, 40.0, 60.0), "two": (110.0, 100.0, 160.0)}
    assert shortfalls(validation(slow)) == [
        "graph two: tau 0.33 of schedules more than 5% apart, at least 0.8 is asked",
        "graph two: regret 10.0%, at most 2% is asked",
        "mean relative error 32.2%, at most 8% is asked",
    ]


def test_a_failed_candidate_does_not_pass_the_gate() -> None:
    times = {"one": PREDICTED["one"][:3], "two": PREDICTED["two"]}
    found = validation(times, Measurement("one", "03", "hang", "no result within 10 s"))
    assert len(found.points) == 6
    assert shortfalls(found) == ["graph one, 03: hang: no result within 10 s"]
    assert "one/03: hang: no result within 10 s" in report_text(found)


def test_measurements_of_other_candidates() -> None:
    with pytest.raises(CheckError, match="one/03 was not measured"):
        validate(candidate_set(), measured({**MEASURED, "one": MEASURED["one"][:3]}))
    with pytest.raises(CheckError, match="one/04 is no candidate"):
        validate(candidate_set(), measured({**MEASURED, "one": (*MEASURED["one"], 1.0)}))


def test_too_few_times() -> None:
    failed = [Measurement("two", f"{n:02}", "wrong", "y is off by 0.5") for n in (1, 2)]
    with pytest.raises(
        CheckError, match="graph two: 1 schedules have a time, two are needed; wrong: y is off"
    ):
        validate(candidate_set(), measured({**MEASURED, "two": (100.0,)}, *failed))


def test_suspects() -> None:
    # Epilogues weigh more with every candidate, and so do the errors of graph one.
    times = {"one": (12.0, 13.0, 20.0, 25.0), "two": (120.0, 120.0, 150.0)}
    found = dict(suspects(validation(times).points))
    assert found["epilogue"] > 0.5
    assert found["slots of the ring"] < -0.5


def test_file_of_a_validation(tmp_path: Path) -> None:
    path = tmp_path / "truth.json"
    baseline = Measurement("one", "cublas", "ok", median_us=9.0, baseline=True)
    found = validation(MEASURED, baseline)
    write_json(path, validation_to_json(found))
    again = load_validation(path)
    assert validation_to_json(again) == validation_to_json(found)
    assert "9.00 (cublas)" in report_text(again)
    data = json.loads(path.read_text())
    assert data["schedules"] == 7
    assert (data["graphs"][0]["kendall_tau"], data["graphs"][0]["tau_apart"]) == (0.6667, 1.0)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"format": "wsopt.bench/1"}, "not of the format 'wsopt.truth/1'"),
        ({"graphs": [{}]}, "KeyError: 'made'"),
        ({"graphs": 3}, "TypeError"),
    ],
)
def test_no_validation(tmp_path: Path, change: dict[str, object], told: str) -> None:
    path = tmp_path / "truth.json"
    write_json(path, {**validation_to_json(validation()), **change})
    with pytest.raises(InputError, match=told):
        load_validation(path)


def test_plot_has_the_same_bytes_every_time() -> None:
    pytest.importorskip("matplotlib")
    drawn = plot_svg(validation())
    assert plot_svg(validation()) == drawn
    assert "one: tau 0.67" in drawn
    assert "7 schedules on Fake 9000" in drawn


def test_plot_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(RequirementError, match="pip install 'matplotlib>="):
        plot_svg(validation())


def test_the_page_shows_published_schedules_beside_the_first_choice() -> None:
    found = validation()
    assert "Published" not in docs.page([("model/fake.json", found)])
    graph = found.graphs[0]
    first, other, *rest = graph.made.candidates
    asked = replace(other, overlap="K-block by K-block", structure={"columns": 128, "consumers": 3})
    made = replace(graph.made, candidates=(first, asked, *rest))
    shown = replace(found, graphs=(replace(graph, made=made), *found.graphs[1:]))
    line = "- one: first choice 10.0 (10.0), K-block by K-block, 3 consumers 12.5 (12.0)"
    assert line in docs.page([("model/fake.json", shown)]).splitlines()


def test_page(tmp_path: Path) -> None:
    write_json(tmp_path / "model" / "fake.json", validation_to_json(validation()))
    page = tmp_path / "model.md"
    assert docs.main([str(tmp_path / "model" / "fake.json"), "-o", str(page)]) == 0
    text = page.read_text()
    assert "![measured against predicted times](model/fake.svg)" in text
    assert "| two | 3 | 100.0 - 160.0 | 1.00 |" in text
    write_json(tmp_path / "other.json", measured_to_json(measured()))
    assert docs.main([str(tmp_path / "other.json"), "-o", str(page)]) == InputError.exit_status
