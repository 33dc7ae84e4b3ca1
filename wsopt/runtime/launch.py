"""Runs a build folder on a GPU and compares what it computes with the reference."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from wsopt.agreement.judge import NO_DIFFERENCE, Agreement, Expected
from wsopt.codegen.kernel_file import load_kernel_file, load_sequence_file
from wsopt.errors import InputError, Problem, RequirementError
from wsopt.runtime import hang
from wsopt.runtime.agreement import agreement, expectations
from wsopt.runtime.inputs import poison, poisoned, random_inputs
from wsopt.runtime.json_file import read_json
from wsopt.runtime.raw_graph import RawGraph, load_raw_graph

TOLERANCE = 1e-2
HANG_S = 20.0


@dataclass(frozen=True, slots=True)
class BuildFolder:
    """A build folder as it lies on disk: its graph, its schedule (or how its kernels follow each other) as plain JSON
    data, its kernel.
    """

    path: Path
    graph: RawGraph
    schedule: Mapping[str, Any]
    module: ModuleType


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """How well each output of one launch agrees with the reference, on inputs of one seed."""

    name: str
    seed: int
    agreements: tuple[tuple[str, Agreement], ...]

    def accepted(self) -> bool:
        """True if every output is right, as a whole, in every row and in every element."""
        return all(found.accepted for _, found in self.agreements)

    @property
    def worst(self) -> Agreement:
        """The worst figures of all outputs."""
        return functools.reduce(operator.or_, (found for _, found in self.agreements), NO_DIFFERENCE)

    def __str__(self) -> str:
        shown = ", ".join(
            f"{name} {found.told or f'off by {found.error:.2g}'}" for name, found in self.agreements
        )
        return f"{self.name}, seed {self.seed}: {shown}"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A kernel bound to a set of inputs, with its outputs; `launch` starts it and does not wait."""

    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    launch: Callable[[], None]

    def agreements(
        self, expected: Mapping[str, Expected], name: str, limit_s: float, tolerance: float = TOLERANCE
    ) -> tuple[tuple[str, Agreement], ...]:
        """Poison the outputs, launch, wait, compare. Raises HangError past `limit_s` seconds."""
        for output in self.outputs.values():
            poison(output)
        self.launch()
        hang.wait(limit_s, name)
        return tuple((key, agreement(self.outputs[key], expected[key], tolerance)) for key in expected)


def require_gpu() -> None:
    """Raise RequirementError where torch sees no GPU."""
    if not torch.cuda.is_available():
        raise RequirementError("torch sees no GPU here; --device cpu executes the kernel in the interpreter")


def load_folder(path: Path) -> BuildFolder:
    """Read a build folder. Raises InputError if it is none, CompileError if its kernel does not load."""
    missing = [name for name in ("graph.json", "kernel.py") if not (path / name).is_file()]
    if missing:
        raise InputError(str(path), [Problem("", f"not a build folder: no {' and no '.join(missing)}")])
    several = (path / "cut.json").is_file()
    schedule_file = path / ("cut.json" if several else "schedule.json")
    schedule = read_json(schedule_file) if schedule_file.is_file() else {}
    schedule = schedule if isinstance(schedule, dict) else {}
    load = load_sequence_file if several else load_kernel_file
    return BuildFolder(path, load_raw_graph(path / "graph.json"), schedule, load(path / "kernel.py"))


def prepare(folder: BuildFolder, inputs: Mapping[str, Tensor], expected: Mapping[str, Expected]) -> Prepared:
    """Bind the kernel to inputs, with poisoned outputs of the expected shapes and dtypes."""
    outputs = poisoned({name: item.value for name, item in expected.items()})
    launch, returned = folder.module.prepare(outputs, **inputs)
    strange = [name for name in expected if returned.get(name) is not outputs[name]]
    if strange:
        raise ValueError(f"prepare() does not write to the given outputs {', '.join(strange)}")
    return Prepared(inputs, outputs, launch)


def run_folder(path: Path, *, seed: int = 0, device: str = "cuda", exact: bool = False) -> LaunchResult:
    """Run a build folder once on random inputs and compare, with f64 as the judge if `exact`.

    Raises HangError if the kernel does not end within `HANG_S` seconds: see there what that means for
    the process.
    """
    folder = load_folder(path)
    inputs = random_inputs(folder.graph, seed, device, ragged=True)
    expected = reference(folder.graph, inputs, exact=exact)
    prepared = prepare(folder, inputs, expected)
    return LaunchResult(folder.graph.name, seed, prepared.agreements(expected, folder.graph.name, HANG_S))


def reference(graph: RawGraph, inputs: Mapping[str, Tensor], *, exact: bool = False) -> dict[str, Expected]:
    """The outputs that the graph means, in its own dtypes, with the errors that a right kernel may have."""
    return expectations(graph, inputs, real=torch.float64 if exact else torch.float32)
