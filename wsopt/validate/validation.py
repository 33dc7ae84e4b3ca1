"""Predictions beside measurements by graph, their statistics, and the JSON file of a validation."""

from __future__ import annotations

import dataclasses
import math
import statistics as standard
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wsopt.errors import CheckError
from wsopt.validate.files import (
    VALIDATION_FORMAT,
    Candidate,
    CandidateSet,
    GraphCandidates,
    Measured,
    Measurement,
    candidates_from_json,
    load_json,
    timed_from_json,
)
from wsopt.validate.statistics import kendall_tau, mean_error, regret, relative_errors, tau_apart

LEAST_TAU, MOST_ERROR, MOST_REGRET = 0.8, 0.08, 0.02
APART = 0.05
"""Schedules whose times differ by more than this share are the ones whose order the gate asks for."""

"""What `--gate` asks of every graph, of all schedules together, and of every graph."""


@dataclass(frozen=True, slots=True)
class Point:
    """One schedule that was predicted and measured."""

    graph: str
    candidate: Candidate
    measured: Measurement

    @property
    def measured_us(self) -> float:
        """The median of its times."""
        assert self.measured.median_us is not None
        return self.measured.median_us

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return relative_errors([self.candidate.predicted_us], [self.measured_us])[0]


@dataclass(frozen=True, slots=True)
class GraphTruth:
    """One graph's candidates and their measurements."""

    made: GraphCandidates
    measured: tuple[Measurement, ...]

    @property
    def name(self) -> str:
        """The graph's name."""
        return self.made.name

    @property
    def points(self) -> tuple[Point, ...]:
        """The schedules that were right and have a time, in the order in which they were made."""
        rows = {row.candidate: row for row in self.measured if row.status == "ok" and not row.baseline}
        return tuple(Point(self.name, c, rows[c.name]) for c in self.made.candidates if c.name in rows)

    @property
    def failed(self) -> tuple[Measurement, ...]:
        """Candidates that were wrong, hung or could not be measured."""
        return tuple(row for row in self.measured if row.status != "ok")

    @property
    def baseline(self) -> Measurement | None:
        """The library that was measured beside the candidates, if any."""
        return next((row for row in self.measured if row.baseline and row.status == "ok"), None)

    @property
    def first(self) -> Point:
        """The model's choice among the schedules that have a time: the least prediction."""
        return min(self.points, key=lambda point: point.candidate.predicted_us)

    @property
    def tau(self) -> float:
        """Kendall's tau between predictions and times; nan for fewer than two."""
        return kendall_tau(
            [p.candidate.predicted_us for p in self.points], [p.measured_us for p in self.points]
        )

    @property
    def tau_apart(self) -> float:
        """Agreement on the order of schedules whose times are apart; nan if none are."""
        return tau_apart(
            [p.candidate.predicted_us for p in self.points], [p.measured_us for p in self.points], APART
        )

    @property
    def error(self) -> float:
        """The mean relative error of the predictions."""
        return mean_error(
            [p.candidate.predicted_us for p in self.points], [p.measured_us for p in self.points]
        )

    @property
    def regret(self) -> float:
        """How much longer the first choice takes than the best that was measured, as a share."""
        return regret(self.first.measured_us, [point.measured_us for point in self.points])


@dataclass(frozen=True, slots=True)
class Validation:
    """The predictions for a machine beside the measurements of one run on a card."""

    date: str
    machine: str
    card: Mapping[str, Any]
    versions: Mapping[str, str]
    graphs: tuple[GraphTruth, ...]

    @property
    def points(self) -> tuple[Point, ...]:
        """The schedules of all graphs that have a time."""
        return tuple(point for graph in self.graphs for point in graph.points)

    @property
    def error(self) -> float:
        """The mean relative error over all schedules."""
        return standard.fmean(abs(point.error) for point in self.points)


def validate(made: CandidateSet, measured: Measured) -> Validation:
    """Put measurements beside the predictions that they are of.

    Raises CheckError where a candidate has no measurement, a measurement no candidate, or a graph has fewer
    than two schedules with a time.
    """
    known = {(graph.name, one.name) for graph in made.graphs for one in graph.candidates}
    found = {(row.graph, row.candidate) for row in measured.rows if not row.baseline}
    for place, word in (
        (sorted(known - found), "was not measured"),
        (sorted(found - known), "is no candidate"),
    ):
        if place:
            raise CheckError(f"{'/'.join(place[0])} {word}; these are not measurements of these candidates")
    graphs = tuple(
        GraphTruth(graph, tuple(row for row in measured.rows if row.graph == graph.name))
        for graph in made.graphs
    )
    check_enough(graphs)
    return Validation(measured.date, made.machine, measured.card, measured.versions, graphs)


def check_enough(graphs: Sequence[GraphTruth]) -> None:
    """Raise CheckError for a graph of whose schedules fewer than two have a time."""
    for graph in graphs:
        if len(graph.points) < 2:
            why = f"; {graph.failed[0].status}: {graph.failed[0].message}" if graph.failed else ""
            raise CheckError(
                f"graph {graph.name}: {len(graph.points)} schedules have a time, two are needed{why}"
            )


def shortfalls(found: Validation) -> list[str]:
    """Reasons why the gate fails, a line each; none if the model is good enough."""
    lines = []
    for graph in found.graphs:
        if graph.tau_apart < LEAST_TAU:
            lines.append(
                f"graph {graph.name}: tau {graph.tau_apart:.2f} of schedules more than {APART:.0%} apart, at least "
                f"{LEAST_TAU} is asked"
            )
        if not graph.regret <= MOST_REGRET:
            lines.append(f"graph {graph.name}: regret {graph.regret:.1%}, at most {MOST_REGRET:.0%} is asked")
        lines += [f"graph {graph.name}, {row.candidate}: {row.status}: {row.message}" for row in graph.failed]
    if not found.error <= MOST_ERROR:
        lines.append(f"mean relative error {found.error:.1%}, at most {MOST_ERROR:.0%} is asked")
    return lines


# --- JSON -----------------------------------------------------------------------------------------------


def validation_to_json(found: Validation) -> dict[str, Any]:
    """A validation as JSON data, its figures beside what they were found from."""
    return {
        "format": VALIDATION_FORMAT,
        "date": found.date,
        "machine": found.machine,
        "card": dict(found.card),
        "versions": dict(found.versions),
        "schedules": len(found.points),
        "mean_relative_error": round(found.error, 4),
        "graphs": [_graph_to_json(graph) for graph in found.graphs],
    }


def _graph_to_json(graph: GraphTruth) -> dict[str, Any]:
    figures = {
        "kendall_tau": _figure(graph.tau),
        "tau_apart": _figure(graph.tau_apart),
        "mean_relative_error": round(graph.error, 4),
        "regret": round(graph.regret, 4),
    }
    measured = [dataclasses.asdict(row) for row in graph.measured]
    return {"name": graph.name, **figures, "made": dataclasses.asdict(graph.made), "measured": measured}


def _figure(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 4)


def load_validation(path: Path) -> Validation:
    """The validation of a file; its figures are found again. Raises InputError if it is none."""
    return load_json(path, VALIDATION_FORMAT, _validation)


def _validation(data: Mapping[str, Any]) -> Validation:
    graphs = []
    for item in data["graphs"]:
        (made,) = candidates_from_json([item["made"]])
        graphs.append(GraphTruth(made, tuple(timed_from_json(row) for row in item["measured"])))
    check_enough(graphs)
    return Validation(
        str(data["date"]), str(data["machine"]), dict(data["card"]), dict(data["versions"]), tuple(graphs)
    )
