"""Kernels whose sums are in tensor memory: those of problems, and small ones for mutation."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from pathlib import Path

import emit_builds as builds
from emit_builds import MARGIN, Body, Emitted, graph_of, structure

from wsopt.candidates import Candidate, Contest
from wsopt.checker import verify
from wsopt.emit.source import emit
from wsopt.frontend.region import find_region
from wsopt.graph.parse import load_graph
from wsopt.graph.types import Graph
from wsopt.machine import load_machine
from wsopt.perf.price import lower
from wsopt.program.types import Structure
from wsopt.solve.optimum import solve
from wsopt.solve.search import Search

ROOT = Path(__file__).parents[2]
CARD = "b200"
PROBLEMS = ("gemm_bf16", "gemm_bias_gelu", "gemm_ragged")
OTHERS = ("gemm_batched", "gemm_residual", "gemm_swiglu", "gemm_tn")


@dataclass(frozen=True)
class Small:
    """A kernel for mutation: little shared memory keeps its ring short, two lengths of loop go round it."""

    body: Body
    structure: Structure
    kib: int
    k_iterations: tuple[int, ...]


TILE = structure(rows=128, subtiles=2)
SMALL = {
    "plain": Small(builds.plain, TILE, 92, (7, 5)),
    "residual": Small(builds.residual, TILE, 120, (5, 8)),
    "pair": Small(builds.plain, structure(consumers=2, rows=128, subtiles=2), 160, (7, 5)),
}


@functools.cache
def graph(problem: str) -> Graph:
    return load_graph(ROOT / "problems" / f"{problem}.json")


@functools.cache
def found(problem: str) -> Emitted:
    """The solver's kernel of a problem, which no compiler has seen."""
    verified, _ = Search(find_region(graph(problem)), load_machine(CARD)).run()
    return Emitted(graph(problem), verified, emit(verified))


@functools.cache
def candidate(problem: str) -> Candidate:
    """The kernel that the compiler leaves whole."""
    return Contest(find_region(graph(problem)), load_machine(CARD)).run()[0]


@functools.cache
def small(name: str) -> Emitted:
    """One with two sets of sums, though its ring may hide what one would cost."""
    one = SMALL[name]
    made, machine = (
        graph_of(one.body, name),
        replace(load_machine(CARD), shared_memory_per_block_bytes=one.kib * 1024),
    )
    program = replace(lower(find_region(made), one.structure, machine), sum_sets=(2,))
    solved = solve(program, machine, MARGIN)
    assert solved.schedule is not None, solved.reason
    verified = verify(solved.schedule, program, machine, MARGIN)
    return Emitted(made, verified, emit(verified))
