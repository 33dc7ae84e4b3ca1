"""Host time of warm calls: `run()`, a prepared launch, and torch's own calls beside them in one process.

`python -m wsopt.bench.host_cost DIR... --json FILE` needs torch and triton only. A call is timed from its beginning
to its return, without waiting for the device; contestants take turns.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from keyword import iskeyword
from pathlib import Path
from typing import Any

import torch

from wsopt.bench.baselines import build_baseline
from wsopt.bench.bench_worker import machine_facts, version_facts
from wsopt.bench.eager_source import Inapplicable
from wsopt.runtime.inputs import random_inputs
from wsopt.runtime.launch import load_folder

ROUNDS, CALLS, WARM_UP = 5, 300, 20
EXTENT = 2048
"""Rows, columns and contracted elements of the product that torch is timed with."""

Calls = dict[str, Callable[[], object]]


def host_us(call: Callable[[], object], calls: int = CALLS) -> float:
    """Microseconds of the host for one of so many calls in a row."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(calls):
        call()
    spent = time.perf_counter() - began
    torch.cuda.synchronize()
    return spent / calls * 1e6


def contestants(path: Path) -> Calls:
    """The calls of a build folder: `run`, `launch`, and `sdpa` where the graph is an attention."""
    folder = load_folder(path)
    inputs = random_inputs(folder.graph, 0, "cuda")
    launch, _ = folder.module.prepare(**inputs)
    found: Calls = {"run": as_written(folder.module.run, inputs), "launch": launch}
    with contextlib.suppress(Inapplicable):
        found["sdpa"] = build_baseline("sdpa", folder.graph, folder.schedule).bind(folder.graph, inputs)
    return found


def as_written(run: Callable[..., object], inputs: Mapping[str, object]) -> Callable[[], object]:
    """The call of `run` with inputs by name, as one would write it: no dictionary is unpacked at each call."""
    if not all(name.isidentifier() and not iskeyword(name) for name in inputs):
        return lambda: run(**inputs)
    places = {f"_{place}": value for place, value in enumerate(inputs.values())}
    arguments = ", ".join(f"{name}={place}" for name, place in zip(inputs, places, strict=True))
    call: Callable[[], object] = eval(f"lambda: _run({arguments})", {"_run": run, **places})
    return call


def torch_product() -> Callable[[], object]:
    """`torch.mm` of two bf16 matrices."""
    x, w = (torch.randn(EXTENT, EXTENT, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return lambda: torch.mm(x, w)


def measure(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """For each folder the median microseconds of each call, over rounds in which all take turns."""
    rows = []
    for path in paths:
        calls = contestants(path) | {"torch_mm": torch_product()}
        for call in calls.values():
            host_us(call, WARM_UP)
        times = {name: [] for name in calls}  # type: dict[str, list[float]]
        for _ in range(ROUNDS):
            for name, call in calls.items():
                times[name].append(host_us(call))
        rows.append({"build": path.name.removesuffix(".wsopt"), **_figures(times)})
    return rows


def _figures(times: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    medians = {name: statistics.median(found) for name, found in times.items()}
    ratios = {
        f"{ours}/{theirs}": round(medians[ours] / medians[theirs], 3)
        for ours in ("run", "launch")
        for theirs in ("torch_mm", "sdpa")
        if theirs in medians
    }
    return {"us": {name: round(median, 2) for name, median in medians.items()}, "ratios": ratios}


def main(arguments: Sequence[str]) -> None:
    """Measure build folders, print a line for each, and write a JSON document."""
    parser = argparse.ArgumentParser(prog="python -m wsopt.bench.host_cost", description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    rows = measure(chosen.folders)
    for row in rows:
        print(row["build"], row["us"], row["ratios"])
    if chosen.json:
        document = {
            "kind": "host_cost",
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "rounds": ROUNDS,
            "calls": CALLS,
            "machine": machine_facts(),
            "versions": version_facts(),
            "rows": rows,
        }
        chosen.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
