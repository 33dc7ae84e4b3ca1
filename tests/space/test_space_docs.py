"""The page of gains, made of figures by hand: each limit has an entry, nothing is said where it is nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from wsopt.errors import InputError
from wsopt.program.limit_records import RECORDS
from wsopt.program.limits import Limit
from wsopt.space import docs
from wsopt.space.figures import Figures, Gain, Row, load_figures, mean_ratio, to_json

GAINS = (
    Gain(Limit.BASE_REGISTERS, 45, 90.0, 90.0, decided=True, structure="192x256x64"),
    Gain(Limit.ONE_PROGRAM, 12, 100.0, 100.0, decided=True, ii=3216),
    Gain(Limit.OWN_OPERATIONS, 60, 80.0, 80.0, decided=True),
    Gain(Limit.TWO_ITERATIONS, 60, 100.0, 95.0, decided=False),
)
FIGURES = Figures(
    machine="h200",
    date="2026-11-22",
    versions={"wsopt": "0.1.0", "ortools": "9"},
    work=10.0,
    rows=(
        Row("first", 100.0, "128x256x64", 3296, GAINS),
        Row("second", 50.0, "128x256x64", 100, (replace(GAINS[0], best_us=50.0, least_us=50.0),)),
    ),
)


def entry(limit: Limit) -> str:
    """The entry of a limit, on one line."""
    text = docs.page("space/h200.json", FIGURES)
    head = f"## {limit.value[0].upper()}{limit.value[1:]}\n"
    assert text.count(head) == 1
    return " ".join(text.partition(head)[2].partition("## ")[0].split())


def test_every_limit_has_an_entry_with_what_it_forbids_and_why() -> None:
    for record in RECORDS:
        told = entry(record.limit)
        assert all(" ".join(text.split()) in told for text in (record.forbids, record.why, record.without))


def test_a_gain_has_its_graphs_the_most_and_the_geometric_mean() -> None:
    told = entry(Limit.BASE_REGISTERS)
    assert "10.00% on one graph, 5.13% the geometric mean of 2 graphs" in told
    assert "| first | 100.00 | 90.00 | 10.00% |" in told
    assert "Nothing on 1 other graph." in told
    assert mean_ratio(FIGURES.of(Limit.BASE_REGISTERS)) == pytest.approx((100 / 90) ** 0.5)


def test_nothing_is_said_where_it_is_nothing_and_what_it_costs_of_the_interval() -> None:
    told = entry(Limit.ONE_PROGRAM)
    assert "*Gain*: nothing on first." in told
    assert "The interval alone is shorter, in cycles: first 3,296 -> 3,216." in told


def test_a_ceiling_is_at_most_and_what_was_left_open_is_bounded() -> None:
    assert "at most 20.00% on one graph" in entry(Limit.OWN_OPERATIONS)
    assert "Not decided: first (at most 5.00%)." in entry(Limit.TWO_ITERATIONS)
    assert "no figure; it leaves nothing out for any of these graphs" in entry(Limit.STAGES)


def test_figures_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    path.write_text(json.dumps(to_json(FIGURES)), encoding="utf-8")
    assert load_figures(path) == FIGURES


@pytest.mark.parametrize(("key", "value"), [("kind", "other"), ("rows", [{"name": "first"}])])
def test_a_file_of_something_else_is_refused(tmp_path: Path, key: str, value: object) -> None:
    path = tmp_path / "figures.json"
    path.write_text(json.dumps(to_json(FIGURES) | {key: value}), encoding="utf-8")
    with pytest.raises(InputError):
        load_figures(path)
