"""Kernels whose sums are in tensor memory: those of problems, and small ones for mutation."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass, replace
from pathlib import Path

import emit_builds as builds
import pytest
from emit_builds import MARGIN, Body, Emitted, graph_of, structure

from wsopt.candidates import Candidate, Contest
from wsopt.checker import verify
from wsopt.emit.source import emit
from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.parse import load_graph
from wsopt.graph.types import Graph
from wsopt.lowering import product_structures
from wsopt.machine import load_machine
from wsopt.perf.price import lower
from wsopt.program.types import Structure
from wsopt.solve.optimum import solve
from wsopt.solve.search import Search

ROOT = Path(__file__).parents[2]
_GOLDENS = Path(__file__).parent / "goldens"
CARD = "b200"
PROBLEMS = ("gemm_bf16", "gemm_bias_gelu", "gemm_ragged")
OTHERS = ("gemm_batched", "gemm_residual", "gemm_swiglu", "gemm_tn")


def hold_to_golden(name: str, source: str) -> None:
    """Assert that a kernel's text is the golden one. WSOPT_RENEW_GOLDENS writes that anew."""
    golden = _GOLDENS / f"{name}.txt"
    if os.environ.get("WSOPT_RENEW_GOLDENS"):
        golden.write_text(source, encoding="utf-8")
    assert source == golden.read_text(encoding="utf-8"), "WSOPT_RENEW_GOLDENS=1 renews it"


@dataclass(frozen=True)
class Small:
    """A kernel for mutation: little shared memory keeps its ring short, two lengths of loop go round it."""

    body: Body
    structure: Structure
    kib: int
    k_iterations: tuple[int, ...]


def normed(g: GraphBuilder) -> Symbol:
    """y = (x / sqrt(mean(x^2) + 1e-6)) w'."""
    x, w = g.input("x", (1024, 512), "bf16"), g.input("w", (1024, 512), "bf16", constant=True)
    factor = g.rsqrt(g.reduce_mean(x * x, axis=1, keepdims=True) + 1e-6)
    h = g.cast(x * factor, dtype="bf16")
    return g.cast(g.matmul(h, w, transpose_b=True, name="p"), dtype="bf16", name="y")


def softmax_of_products(g: GraphBuilder) -> Symbol:
    """y = softmax(x w') over all columns."""
    x, w = g.input("x", (1024, 512), "bf16"), g.input("w", (64, 512), "bf16", constant=True)
    scores = g.matmul(x, w, transpose_b=True, name="p")
    return g.cast(g.softmax(scores, axis=-1), dtype="bf16", name="y")


TILE = structure(rows=128, subtiles=2)
SMALL = {
    "plain": Small(builds.plain, TILE, 92, (7, 5)),
    "residual": Small(builds.residual, TILE, 120, (5, 8)),
    "pair": Small(builds.plain, structure(consumers=2, rows=128, subtiles=2), 160, (7, 5)),
}
BESIDES = {
    "beside": Small(normed, structure(rows=128), 92, (5, 2)),
    "split": Small(builds.plain, structure(rows=128, subtiles=2, splits=2), 92, (5,)),
    "tail": Small(builds.ragged, structure(rows=128, tail=16), 92, (5, 1)),
    "swapped": Small(builds.plain, structure(16, rows=128, swap=True), 92, (5,)),
    "one_tile": Small(builds.plain, structure(rows=128, persistent=False), 92, (5,)),
    "whole_rows": Small(softmax_of_products, structure(rows=128), 92, (5,)),
    "paired": Small(builds.plain, structure(128, rows=128, subtiles=2, paired=True), 92, (5, 2)),
    "paired_two": Small(
        builds.residual, structure(128, consumers=2, rows=128, subtiles=2, paired=True), 160, (5,)
    ),
    "f8": Small(builds.scaled, structure(rows=128, depth=128), 92, (3,)),
}
"""Of these what the others have not is mutated: rows beside products, parts of tiles, a short last K-block."""


@functools.cache
def graph(problem: str) -> Graph:
    return load_graph(ROOT / "problems" / f"{problem}.json")


@functools.cache
def found(problem: str) -> Emitted:
    """The solver's kernel of a problem, which no compiler has seen."""
    verified, _ = Search(find_region(graph(problem)), load_machine(CARD)).run()
    return Emitted(graph(problem), verified, emit(verified))


@functools.cache
def candidate(problem: str, release: tuple[int, int] | None = None) -> Candidate:
    """The kernel that the compiler leaves whole, of those that a release of Triton can write."""
    with pytest.MonkeyPatch.context() as patch:
        if release is not None:
            patch.setattr(product_structures, "triton_release", lambda: release)
        return Contest(find_region(graph(problem)), load_machine(CARD)).run()[0]


def written_by(problem: str, release: tuple[int, int]) -> Candidate:
    """The kernel that a release of Triton gets: another one than the newest where that takes what it cannot write."""
    newest = candidate(problem)
    return candidate(problem, release) if newest.verified.program.structure.paired else newest


@functools.cache
def small(name: str) -> Emitted:
    """One with two sets of sums, though its ring may hide what one would cost."""
    one = (SMALL | BESIDES)[name]
    made, machine = (
        graph_of(one.body, name),
        replace(load_machine(CARD), shared_memory_per_block_bytes=one.kib * 1024),
    )
    program = lower(find_region(made), one.structure, machine)
    program = replace(program, sum_sets=(max(program.sum_sets),))
    solved = solve(program, machine, MARGIN)
    assert solved.schedule is not None, solved.reason
    verified = verify(solved.schedule, program, machine, MARGIN)
    return Emitted(made, verified, emit(verified))
