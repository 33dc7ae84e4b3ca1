"""A finished trace as a document: machine, versions, date, graph, schedule, both kernels' times, every operation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from wsopt.bench.timing import ratios, summary
from wsopt.trace.analysis import Cycles, Traced, TracedOp, analyse, median_difference
from wsopt.trace.files import Stamped
from wsopt.trace.options import PLAIN, TRACED

FORMAT = "wsopt.trace/2"


def document(
    stamped: Stamped,
    graph: Mapping[str, Any],
    facts: Mapping[str, Any],
    times: Mapping[str, Sequence[float]],
    launches: Sequence[Sequence[int]],
    date: str,
) -> dict[str, Any]:
    """The document of trace.json, in cycles of the SM and microseconds.

    `facts` has the card and the versions, `times` the rounds of both kernels in microseconds, `launches` the words of
    each. Raises CheckError for stamps out of order.
    """
    traced = analyse(launches, stamped)
    share, _ = ratios(times, TRACED, PLAIN)
    return {
        "format": FORMAT,
        "date": date,
        "card": facts["card"],
        "versions": facts["versions"],
        "name": stamped.name,
        "graph": graph,
        "schedule": {
            "machine": stamped.machine,
            "structure": stamped.structure,
            "ii_cycles": stamped.ii,
            "interval_cycles": stamped.interval,
            "as_it_runs_cycles": stamped.runs,
            "epilogue_cycles": stamped.epilogue,
        },
        "kernel": {
            "digest": stamped.digest,
            "registers": stamped.registers,
            "spills": stamped.spills,
        },
        "traced": {
            "blocks": stamped.blocks,
            "tiles": stamped.tiles,
            "k_blocks": stamped.k_blocks,
            "launches": len(launches),
        },
        "times_us": {name: dataclasses.asdict(summary(samples)) for name, samples in times.items()},
        "cost": share - 1,
        "start_difference": median_difference(traced, stamped.ii),
        "partitions": [_partition(one) for one in traced],
    }


def _partition(traced: Traced) -> dict[str, Any]:
    return {
        "name": traced.partition.name,
        "interval": _cycles(traced.interval),
        "ops": [_op(one) for one in traced.ops],
        "tile": {name: _cycles(cycles) for name, cycles in traced.parts},
    }


def _op(one: TracedOp) -> dict[str, Any]:
    op = one.predicted
    measured = {name: _cycles(getattr(one, name)) for name in ("start", "issue", "result", "waited")}
    predicted = {"scheduled": op.scheduled, "start": op.start, "issue": op.issue, "result": op.latency}
    return {
        "op": op.op,
        "words": op.words,
        "mixed": op.started is None,
        "predicted": predicted,
        "measured": measured,
    }


def _cycles(cycles: Cycles | None) -> dict[str, float] | None:
    return None if cycles is None else dataclasses.asdict(cycles)
