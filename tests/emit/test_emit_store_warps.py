"""Kernels whose stores a store warp starts, in every shape that stores have, asked for by the solver or not."""

from __future__ import annotations

import functools
from dataclasses import replace

import emit_builds as builds
import pytest
from emit_builds import MARGIN, SEEDS, Body, Emitted, build, graph_of, small_case, structure

from wsopt.checker import verify
from wsopt.codegen.aot import compile_kernel
from wsopt.emit.source import emit
from wsopt.perf import timing
from wsopt.program.types import Structure
from wsopt.schedule import budget, memory
from wsopt.schedule.types import Partition, PartitionRole

CASES: dict[str, tuple[Body, Structure]] = {
    "one store": (builds.plain, structure(consumers=2)),
    "through one buffer": (builds.plain, structure(128, consumers=2, subtiles=4)),
    "in place": (builds.residual, structure(128, consumers=2, subtiles=4)),
    "three consumers": (builds.residual, structure(consumers=3, subtiles=2)),
    "ping-pong": (builds.residual, structure(consumers=2, ping_pong=True, subtiles=2)),
    "exchanged": (builds.plain, structure(swap=True, subtiles=2)),
    "one tile a block": (builds.transposed, structure(persistent=False, subtiles=2)),
    "batches": (builds.batched, structure(subtiles=2)),
    "a tail": (builds.ragged, structure(tail=16)),
}


@functools.cache
def with_store_warps(name: str, *, store_warp: bool) -> Emitted:
    """The solver's schedule, its stores started by store warps or by the consumers."""
    made = build(graph_of(CASES[name][0]), CASES[name][1])
    schedule, program, machine = made.verified.schedule, made.verified.program, made.verified.machine
    buffers = replace(schedule.buffers, store_warp=store_warp)
    kept = [p for p in schedule.partitions if p.role is not PartitionRole.STORE_WARP]
    added = [
        Partition(PartitionRole.STORE_WARP, i, budget.HELPER_WARPS, budget.HELPER_REGISTERS)
        for i in range(program.structure.consumers if store_warp else 0)
    ]
    slots = [depth for _, depth in schedule.rings]
    changed = replace(
        schedule,
        buffers=buffers,
        partitions=(*kept, *added),
        shared_memory_bytes=memory.shared_memory(program, slots, buffers),
        prediction=timing.predict(program, machine, schedule.ii, buffers, slots),
    )
    verified = verify(changed, program, machine, MARGIN)
    return Emitted(made.graph, verified, emit(verified))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_computes(name: str) -> None:
    made = with_store_warps(name, store_warp=True)
    for k_iterations in (None, 3):
        assert small_case(made, k_iterations).fault(made.source, SEEDS) is None


@pytest.mark.parametrize("name", CASES)
def test_who_starts_stores(name: str) -> None:
    made, without = (with_store_warps(name, store_warp=store_warp) for store_warp in (True, False))
    head, _, store_warp = made.source.partition("def store_warp(")
    store_warp = store_warp.partition("@gluon.jit")[0]
    assert "tma_store(" in without.source.replace("tma_store = ", "")
    assert "tma_store(" in store_warp
    consumer = head[head.index("def epilogue(") :]
    assert "tma_store(" not in consumer
    assert "tma.store_wait" not in consumer
    assert "def store_warp(" not in without.source


@pytest.mark.compiler
@pytest.mark.parametrize("name", ["in place", "ping-pong"])
def test_compiles(name: str) -> None:
    made = with_store_warps(name, store_warp=True)
    found = compile_kernel(made.source, architecture="sm_90")
    assert (found.stack_bytes, found.spill_loads, found.spill_stores) == (0, 0, 0)
