"""Kernels whose stores a storer starts, in every shape that stores have, asked for by the solver or not."""

from __future__ import annotations

import functools
from dataclasses import replace

import emit_builds as builds
import pytest
from emit_builds import MARGIN, Body, Emitted, build, graph_of, small_case, structure

from wsopt.checker import verify
from wsopt.codegen.aot import compile_kernel
from wsopt.emit.source import emit
from wsopt.perf import timing
from wsopt.program.types import Structure
from wsopt.schedule import budget
from wsopt.schedule.types import Partition, PartitionRole

SEEDS = 20

CASES: dict[str, tuple[Body, Structure]] = {
    "one store": (builds.plain, structure(consumers=2)),
    "through one buffer": (builds.plain, structure(128, consumers=2, pieces=4)),
    "in place": (builds.residual, structure(128, consumers=2, pieces=4)),
    "three consumers": (builds.residual, structure(consumers=3, pieces=2)),
    "in turns": (builds.residual, structure(consumers=2, turns=True, pieces=2)),
    "exchanged": (builds.plain, structure(swap=True, pieces=2)),
    "one tile a block": (builds.transposed, structure(persistent=False, pieces=2)),
    "batches": (builds.batched, structure(pieces=2)),
    "a tail": (builds.ragged, structure(tail=16)),
}


@functools.cache
def with_storers(name: str, *, storer: bool) -> Emitted:
    """The solver's schedule, its stores started by storers or by the consumers."""
    made = build(graph_of(CASES[name][0]), CASES[name][1])
    schedule, program, machine = made.verified.schedule, made.verified.program, made.verified.machine
    buffers = replace(schedule.buffers, storer=storer)
    kept = [p for p in schedule.partitions if p.role is not PartitionRole.STORER]
    added = [
        Partition(PartitionRole.STORER, i, budget.STORER_WARPS, budget.HELPER_REGISTERS)
        for i in range(program.structure.consumers if storer else 0)
    ]
    slots = [depth for _, depth in schedule.rings]
    changed = replace(
        schedule,
        buffers=buffers,
        partitions=(*kept, *added),
        shared_memory_bytes=budget.shared_memory(program, slots, buffers),
        prediction=timing.predict(program, machine, schedule.ii, buffers, slots),
    )
    verified = verify(changed, program, machine, MARGIN)
    return Emitted(made.graph, verified, emit(verified))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_computes(name: str) -> None:
    made = with_storers(name, storer=True)
    for trips in (None, 3):
        assert small_case(made, trips).fault(made.source, SEEDS) is None


@pytest.mark.parametrize("name", CASES)
def test_who_starts_stores(name: str) -> None:
    made, without = (with_storers(name, storer=storer) for storer in (True, False))
    head, _, storer = made.source.partition("def storer(")
    storer = storer.partition("@gluon.jit")[0]
    assert "tma_store(" in without.source.replace("tma_store = ", "")
    assert "tma_store(" in storer
    consumer = head[head.index("def epilogue(") :]
    assert "tma_store(" not in consumer
    assert "tma.store_wait" not in consumer
    assert "def storer(" not in without.source


@pytest.mark.compiler
@pytest.mark.parametrize("name", ["in place", "in turns"])
def test_compiles(name: str) -> None:
    made = with_storers(name, storer=True)
    found = compile_kernel(made.source, architecture="sm_90")
    assert (found.stack_bytes, found.spill_loads, found.spill_stores) == (0, 0, 0)
