"""Made-up predictions and measurements, whose figures are known by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wsopt.validate.files import FIRST, Candidate, CandidateSet, GraphCandidates, Measured, Measurement
from wsopt.validate.validation import Validation, validate

PREDICTED = {"one": (10.0, 12.0, 20.0, 30.0), "two": (100.0, 110.0, 150.0)}
MEASURED = {"one": (10.0, 12.5, 25.0, 24.0), "two": (100.0, 104.0, 160.0)}


def candidate(number: int, predicted: float) -> Candidate:
    parts = {"start": 1.0, "fill": 1.0, "main": 6.0, "epilogue": 1.0 + number, "tail": 0.5, "power": 0.5}
    cycles = sum(parts.values())
    floors = {"sm_us": predicted - 1, "dram_us": 1.0, "l2_us": 2.0, "bound_by": "the SMs"}
    return Candidate(
        name=f"{number:02}",
        why=FIRST if number == 0 else "spread",
        what=f"structure {number}",
        structure={"columns": 64 * (number + 1)},
        slots=0,
        depth=4 - number,
        ii=512,
        predicted_us=predicted,
        parts={**parts, "cycles": cycles, **floors},
    )


def candidate_set(predicted: Mapping[str, Sequence[float]] = PREDICTED) -> CandidateSet:
    graphs = [
        GraphCandidates(
            name,
            {"name": name},
            99,
            (("too large", "compiler: spills"),),
            tuple(map(candidate, range(9), times)),
        )
        for name, times in predicted.items()
    ]
    return CandidateSet("h200", 132, tuple(graphs))


def measured(times: Mapping[str, Sequence[float]] = MEASURED, *extra: Measurement) -> Measured:
    rows = [
        Measurement(name, f"{number:02}", "ok", "", 1e-4, time, 0.99 * time, 1.01 * time)
        for name, series in times.items()
        for number, time in enumerate(series)
    ]
    card = {"device": "Fake 9000", "driver": "1.0", "multiprocessors": 132}
    return Measured("2026-11-21T00:00:00Z", card, {"torch": "0.0"}, (*rows, *extra))


def validation(times: Mapping[str, Sequence[float]] = MEASURED, *extra: Measurement) -> Validation:
    return validate(candidate_set(), measured(times, *extra))
