"""Predictions are the same to the last digit whatever Python adds: `sum` of floats is another one since 3.12."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROBLEMS = Path(__file__).parents[2] / "problems"

SCRIPT = """
import builtins, itertools, json, math, sys

if sys.argv[1] == "exactly":
    plain = builtins.sum

    def exact(values, /, start=0):
        values = [*values]
        floats = any(isinstance(one, float) for one in values)
        return start + math.fsum(values) if floats else plain(values, start)

    builtins.sum = exact

from wsopt.frontend.region import find_region
from wsopt.graph.parse import load_graph
from wsopt.lowering.structures import structures
from wsopt.machine import load_machine
from wsopt.perf.price import lower
from wsopt.perf.timing import fixed_parts
from wsopt.solve.bound import lower_bound_us
from wsopt.solve.objective import floor_of_time

machine, found = load_machine("h200"), []
for path in sys.argv[2:]:
    region = find_region(load_graph(path))
    for s in itertools.islice(structures(region, machine), 0, None, 97):
        program = lower(region, s, machine)
        parts = [repr(fixed_parts(program, machine)), repr(floor_of_time(program, machine))]
        found.append([path, s.describe(), repr(program.epilogue), repr(lower_bound_us(program, machine)), *parts])
print(json.dumps(found))
"""


@pytest.mark.slow
def test_sums_of_floats_are_exact() -> None:
    names = (
        "attention_softcap",
        "gemm_bias_gelu",
        "gemm_f8",
        "softmax_rows",
        "rms_norm_matmul",
        "gemm_swiglu",
    )
    paths = [str(PROBLEMS / f"{name}.json") for name in names]

    def told(how: str) -> list[list[str]]:
        run = subprocess.run(
            [sys.executable, "-c", SCRIPT, how, *paths], capture_output=True, text=True, check=True
        )
        found: list[list[str]] = json.loads(run.stdout)
        return found

    as_it_adds, exactly = told("as it adds"), told("exactly")
    assert len(as_it_adds) > len(names)
    assert as_it_adds == exactly
