"""Benchmarks one build folder in this process: numbers first, then times beside the baselines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from wsopt.agreement.judge import Agreement, Expected
from wsopt.bench.baselines import build_baseline, check_computes
from wsopt.bench.bench_options import AGAINST, BenchOptions, count_sets
from wsopt.bench.cuda_clock import CudaClock, captured
from wsopt.bench.eager_source import Inapplicable, Missing
from wsopt.bench.rows import BaselineRow, Row
from wsopt.bench.timing import Contestant, Launch, TimingOptions, measure, ratios, summary
from wsopt.codegen.errors import first_line
from wsopt.runtime import hang
from wsopt.runtime.inputs import random_inputs
from wsopt.runtime.launch import BuildFolder, Prepared, load_folder, prepare, reference
from wsopt.runtime.torch_reference import compulsory_bytes, flops, relative_error

KERNEL = "kernel"
# What torch, Dynamo and Inductor raise for a graph they cannot run; all their own errors are RuntimeErrors.
_BASELINE_ERRORS = (RuntimeError, TypeError, ValueError, AttributeError, ImportError)

Samples = Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class _Entry:
    """A baseline before timing: its row so far, and what to launch unless it is out."""

    row: BaselineRow
    contestant: Contestant | None


def bench_folder(path: Path, options: BenchOptions, *, device: str = "cuda") -> Row:
    """The row of one build folder, `ok` or `wrong`.

    Raises HangError if a kernel does not end; whatever else goes wrong comes as it is.
    """
    folder = load_folder(path)
    sets, expected = _sets(folder, options, device)
    row = _row(folder, path)
    row = _checked(row, _agreements(sets[0], expected, row.name, options), "")
    if row.status != "ok":
        return row
    entries = [_entry(name, folder, sets, expected, options) for name in options.baselines]
    if options.against:
        entries.append(_against(load_folder(Path(options.against)), sets, expected, options))
    expected.clear()
    kernel = Contestant(KERNEL, tuple(item.launch for item in sets))
    contestants = [kernel, *(entry.contestant for entry in entries if entry.contestant)]
    clock = CudaClock(options.hang_s)
    samples = measure(contestants, clock, options.timing)
    short = summary(samples[KERNEL]).median_us < options.graph_below_us
    replayed = _in_graphs(contestants, samples, options) if short else _Replayed((), {})
    in_graph = replayed.measure(clock, options.timing)
    settled: Samples = {}
    if options.settled_rounds:
        settled = replayed.measure(clock, options.settled) or measure(contestants, clock, options.settled)
    row = _with_times(row, entries, Times(samples, in_graph, settled))
    # Once more after all those launches, on inputs not yet checked: a race may need the speed.
    last = reference(folder.graph, sets[-1].inputs)
    return _checked(row, _agreements(sets[-1], last, row.name, options), " after timing")


# --- the kernel and its numbers -------------------------------------------------------------------------


def _sets(
    folder: BuildFolder, options: BenchOptions, device: str
) -> tuple[list[Prepared], dict[str, Expected]]:
    """Sets of inputs bound to the kernel, and the expected outputs of the first."""
    graph = folder.graph
    first = random_inputs(graph, options.seed, device)
    expected = reference(graph, first)
    cache = torch.cuda.get_device_properties(device).L2_cache_size
    count = count_sets(compulsory_bytes(graph), cache, options)
    inputs = [first, *(random_inputs(graph, options.seed + number, device) for number in range(1, count))]
    return [prepare(folder, item, expected) for item in inputs], expected


def _row(folder: BuildFolder, path: Path) -> Row:
    work = folder.schedule.get("work", {})  # what masks leave of it; older builds do not say
    return Row(
        name=folder.graph.name,
        folder=path.name,
        status="ok",
        flops=work.get("flops") or flops(folder.graph),
        bytes=work.get("bytes") or compulsory_bytes(folder.graph),
        predicted_us=find_number(folder.schedule, "predicted_us"),
        bound_us=find_number(folder.schedule, "bound_us"),
        roofline_us=find_number(folder.schedule, "roofline_us"),
    )


def _agreements(
    item: Prepared, expected: Mapping[str, Expected], name: str, options: BenchOptions
) -> tuple[tuple[str, Agreement], ...]:
    return item.agreements(expected, name, options.hang_s, options.tolerance)


def _checked(row: Row, agreements: tuple[tuple[str, Agreement], ...], when: str) -> Row:
    errors, rows = dict(row.errors), dict(row.row_errors)
    for name, found in agreements:
        errors[name] = max(found.error, errors.get(name, 0.0))
        rows[name] = max(found.row_error, rows.get(name, 0.0))
    wrong = [
        f"{name} is off by {found.error:.2g}{when}: {found.told}"
        for name, found in agreements
        if not found.accepted
    ]
    status, message = ("wrong", "; ".join(wrong)) if wrong else (row.status, row.message)
    return replace(
        row,
        errors=tuple(errors.items()),
        row_errors=tuple(rows.items()),
        status=status,
        message=message,
    )


def find_number(data: Any, key: str) -> float | None:
    """The first number under this key anywhere in JSON data, or None."""
    if not isinstance(data, Mapping):
        return None
    value = data.get(key)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    found = (find_number(item, key) for item in data.values())
    return next((number for number in found if number is not None), None)


# --- the baselines --------------------------------------------------------------------------------------


def _entry(
    name: str,
    folder: BuildFolder,
    sets: Sequence[Prepared],
    expected: Mapping[str, Expected],
    options: BenchOptions,
) -> _Entry:
    graph = folder.graph
    try:
        baseline = build_baseline(name, graph, folder.schedule)
        calls = [baseline.bind(graph, item.inputs) for item in sets]
        outputs = calls[0]()
        hang.wait(options.hang_s, name)
        check_computes(outputs, sets[0].inputs.values())
    except Inapplicable as reason:
        status = "missing" if isinstance(reason, Missing) else "inapplicable"
        return _Entry(BaselineRow(name, status, str(reason)), None)
    except _BASELINE_ERRORS as error:
        return _Entry(BaselineRow(name, "error", first_line(error)), None)
    contestant = Contestant(name, tuple(_keeping(call) for call in calls))
    if not baseline.complete:
        return _Entry(BaselineRow(name, "ok"), contestant)
    pairs = zip(outputs, graph.outputs, strict=True)
    worst = max(relative_error(output, expected[key].value) for output, key in pairs)
    if not worst <= options.baseline_tolerance:
        return _Entry(BaselineRow(name, "wrong", f"off by {worst:.2g}", worst), None)
    return _Entry(BaselineRow(name, "ok", error=worst), contestant)


def _against(
    folder: BuildFolder, sets: Sequence[Prepared], expected: Mapping[str, Expected], options: BenchOptions
) -> _Entry:
    """Another build of the same graph, on the same inputs."""
    bound = [prepare(folder, item.inputs, expected) for item in sets]
    found = [item for _, item in _agreements(bound[0], expected, AGAINST, options)]
    worst = max(item.error for item in found)
    if not all(item.accepted for item in found):
        told = f"off by {worst:.2g}: {'; '.join(item.told for item in found if not item.accepted)}"
        return _Entry(BaselineRow(AGAINST, "wrong", told, worst), None)
    contestant = Contestant(AGAINST, tuple(item.launch for item in bound))
    return _Entry(BaselineRow(AGAINST, "ok", error=worst), contestant)


def _keeping(call: Callable[[], object]) -> Launch:
    """The call with its last result kept, so that the results of all sets are buffers of their own."""
    kept: list[object] = [None]

    def launch() -> None:
        kept[0] = call()

    return launch


# --- the times ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Times:
    """Microseconds a launch by contestant, round by round: plain, out of CUDA graphs, and settled."""

    plain: Samples
    in_graph: Samples
    settled: Samples


@dataclass(frozen=True, slots=True)
class _Replayed:
    """Contestants whose launches are replayed out of CUDA graphs, and how many launches a graph has."""

    contestants: tuple[Contestant, ...]
    launches: Mapping[str, int]

    def measure(self, clock: CudaClock, options: TimingOptions) -> dict[str, tuple[float, ...]]:
        """Microseconds a launch; nothing if the kernel is not among them."""
        if KERNEL not in self.launches:
            return {}
        times = measure(self.contestants, clock, options)
        return {name: tuple(time / self.launches[name] for time in series) for name, series in times.items()}


def _in_graphs(contestants: Sequence[Contestant], samples: Samples, options: BenchOptions) -> _Replayed:
    replayed, counts = [], {}
    for item in contestants:
        count = int(1e3 * options.sample_ms / summary(samples[item.name]).median_us)
        try:
            contestant, counts[item.name] = captured(item, max(1, min(count, 500)))
        except RuntimeError:
            # Not all that torch runs can be captured; the plain times stand alone then.
            continue
        replayed.append(contestant)
    return _Replayed(tuple(replayed), counts)


def _with_times(row: Row, entries: Sequence[_Entry], times: Times) -> Row:
    row = replace(
        row,
        kernel=summary(times.plain[KERNEL]),
        kernel_graph=summary(times.in_graph[KERNEL]) if times.in_graph else None,
        kernel_settled=summary(times.settled[KERNEL]) if times.settled else None,
        baselines=tuple(_timed(entry, times) for entry in entries),
    )
    best = row.best_us
    assert best is not None
    assert row.flops is not None
    assert row.bytes is not None
    return replace(
        row,
        tflops=row.flops / best / 1e6,
        gbs=row.bytes / best / 1e3,
        roofline=row.roofline_us / best if row.roofline_us else None,
    )


def _timed(entry: _Entry, times: Times) -> BaselineRow:
    name = entry.row.name
    if entry.contestant is None:
        return entry.row
    ratio, spread = ratios(times.plain, name, KERNEL)
    result = replace(entry.row, time=summary(times.plain[name]), ratio=ratio, spread=spread)
    if name in times.settled:
        result = replace(result, settled_ratio=ratios(times.settled, name, KERNEL)[0])
    if name not in times.in_graph:
        return result
    ratio, spread = ratios(times.in_graph, name, KERNEL)
    return replace(result, graph_time=summary(times.in_graph[name]), graph_ratio=ratio, graph_spread=spread)
