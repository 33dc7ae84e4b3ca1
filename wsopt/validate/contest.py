"""All candidates of one graph in this process: the same inputs for each, right numbers first, then times in turns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from wsopt.agreement.judge import Agreement, Expected
from wsopt.bench.baselines import build_baseline
from wsopt.bench.bench_options import BenchOptions, count_sets
from wsopt.bench.bench_worker import machine_facts
from wsopt.bench.cuda_clock import CudaClock, captured
from wsopt.bench.eager_source import Inapplicable
from wsopt.bench.timing import Contestant, Launch, calibrate, measure, summary
from wsopt.codegen.errors import HangError
from wsopt.runtime import hang
from wsopt.runtime.inputs import random_inputs
from wsopt.runtime.launch import Prepared, load_folder, prepare, reference
from wsopt.runtime.raw_graph import RawGraph, load_raw_graph
from wsopt.runtime.torch_reference import compulsory_bytes
from wsopt.validate.files import Measurement

_LONGEST_GRAPH = 500
Inputs = Mapping[str, Any]


@dataclass(slots=True)
class _NamingClock:
    """A clock that says which contestant did not end."""

    clock: CudaClock
    names: dict[int, str] = field(default_factory=dict)

    def add(self, contestant: Contestant) -> None:
        self.names[id(contestant.launches)] = contestant.name

    def sample(self, launches: Sequence[Launch], count: int) -> float:
        try:
            return self.clock.sample(launches, count)
        except HangError as error:
            raise HangError(str(error), self.names.get(id(launches), "")) from error


def hanging(error: HangError) -> str:
    """Which candidate hung, by the clock of a contest; empty if that is not known."""
    return str(error.args[1]) if len(error.args) > 1 else ""


class Contest:
    """The candidates of one graph on sets of inputs; `sets` of them, or as many as exceed the cache."""

    def __init__(self, folder: Path, options: BenchOptions, sets: int | None = None) -> None:
        first = sorted(path for path in folder.iterdir() if (path / "graph.json").is_file())[0]
        self.name = folder.name
        self._folder, self._options = folder, options
        self._graph: RawGraph = load_raw_graph(first / "graph.json")
        self._schedule = load_folder(first).schedule
        cache = int(machine_facts()["l2_bytes"])
        count = sets or count_sets(compulsory_bytes(self._graph), cache, options)
        self._inputs: list[Inputs] = [self._random(number) for number in range(count)]
        self._expected = reference(self._graph, self._inputs[0])
        self._entered: dict[str, list[Prepared]] = {}
        self._baseline: Contestant | None = None

    def _random(self, number: int) -> Inputs:
        return random_inputs(self._graph, self._options.seed + number, "cuda")

    def check(self, name: str) -> Measurement:
        """One launch of a candidate on the first inputs: whether its numbers are right."""
        bound = self._bound(name, self._inputs[:1])
        return self._judged(name, self._agreements(bound[0], self._expected, name), "")

    def _bound(self, name: str, inputs: Sequence[Inputs]) -> list[Prepared]:
        folder = load_folder(self._folder / name)
        return [prepare(folder, item, self._expected) for item in inputs]

    def _agreements(
        self, bound: Prepared, expected: Mapping[str, Expected], name: str
    ) -> tuple[tuple[str, Agreement], ...]:
        return bound.agreements(expected, name, self._options.hang_s, self._options.tolerance)

    def _judged(self, name: str, found: tuple[tuple[str, Agreement], ...], when: str) -> Measurement:
        wrong = [
            f"{key} is off by {one.error:.2g}{when}: {one.told}" for key, one in found if not one.accepted
        ]
        worst = max(one.error for _, one in found)
        status = "wrong" if wrong else "ok"
        # JSON has no infinity.
        return Measurement(self.name, name, status, "; ".join(wrong), worst if math.isfinite(worst) else None)

    def enter(self, name: str) -> None:
        """Take a candidate into the contest, with outputs of its own for every set."""
        self._entered[name] = self._bound(name, self._inputs)

    def enter_baseline(self) -> None:
        """Take in the first of the baselines that applies to the graph, if any."""
        for name in self._options.baselines:
            try:
                baseline = build_baseline(name, self._graph, self._schedule)
                calls = [baseline.bind(self._graph, item) for item in self._inputs]
                calls[0]()
            except (Inapplicable, RuntimeError):
                continue
            hang.wait(self._options.hang_s, name)
            self._baseline = Contestant(name, tuple(calls))
            return

    def measure(self) -> list[Measurement]:
        """Times of all, in turns; each candidate's numbers are compared once more at the end.

        Where the shortest would be bound by its launches, all are replayed out of CUDA graphs.
        """
        contestants = [
            Contestant(name, tuple(p.launch for p in bound)) for name, bound in self._entered.items()
        ]
        contestants += [self._baseline] if self._baseline else []
        clock = _NamingClock(CudaClock(self._options.hang_s))
        for item in contestants:
            clock.add(item)
        quick = replace(self._options.timing, sample_ms=2.0)
        counts = calibrate(contestants, clock, quick)
        lengths = {
            c.name: 1e3 * clock.sample(c.launches, counts[c.name]) / counts[c.name] for c in contestants
        }
        if min(lengths.values()) < self._options.graph_below_us:
            return self._replayed(contestants, lengths, clock)
        return self._rows(measure(contestants, clock, self._options.settled), in_graph=False)

    def _replayed(
        self, contestants: Sequence[Contestant], lengths: Mapping[str, float], clock: _NamingClock
    ) -> list[Measurement]:
        replays, launches = [], {}
        for item in contestants:
            wanted = math.ceil(1e3 * self._options.sample_ms / lengths[item.name])
            replay, launches[item.name] = captured(item, max(1, min(wanted, _LONGEST_GRAPH)))
            clock.add(replay)
            replays.append(replay)
        times = measure(replays, clock, self._options.settled)
        single = {name: [time / launches[name] for time in series] for name, series in times.items()}
        return self._rows(single, in_graph=True)

    def _rows(self, samples: Mapping[str, Sequence[float]], *, in_graph: bool) -> list[Measurement]:
        last = reference(self._graph, self._inputs[-1])
        found = []
        for name, series in samples.items():
            row = Measurement(self.name, name, "ok", baseline=name not in self._entered)
            if name in self._entered:
                found_now = self._agreements(self._entered[name][-1], last, name)
                row = self._judged(name, found_now, " after timing")
            time = summary(series)
            found.append(
                replace(
                    row,
                    median_us=time.median_us,
                    lower_us=time.lower_us,
                    upper_us=time.upper_us,
                    in_graph=in_graph,
                )
            )
        return found
