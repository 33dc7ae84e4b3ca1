"""Every single mistake in an emitted kernel is found, but for those that change nothing, with the reason."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import emit_builds as builds
import pytest
from emit_builds import SEEDS, Body, Emitted, build, graph_of, small_case, structure
from emit_mutants import survives, survivors

from wsopt.interpret import Mutant, mutants
from wsopt.program.types import Structure


@dataclass(frozen=True)
class Subject:
    """A kernel for mutation: little shared memory keeps its ring short, two or more lengths of loop go round it."""

    body: Body
    structure: Structure
    kib: int
    k_iterations: tuple[int, ...]


SUBJECTS = {
    "plain": Subject(builds.plain, structure(consumers=2, subtiles=2), 162, (7, 5)),
    "ping-pong": Subject(builds.residual, structure(consumers=2, ping_pong=True), 162, (5, 18)),
    "in_place": Subject(builds.residual, structure(depth=128, consumers=2, subtiles=2), 125, (11, 10, 4)),
    "promoted": Subject(builds.scaled, structure(copies=2), 92, (12, 11)),
    "transposed": Subject(builds.transposed, structure(persistent=False), 138, (9, 16)),
    "batched": Subject(builds.batched, structure(), 60, (4, 5)),
    "tail": Subject(builds.ragged, structure(tail=16), 60, (6, 5, 1)),
    "gated": Subject(builds.gated, structure(), 138, (6, 4)),
}

TWICE = "a wait that has passed passes again"
FEWER = "no more products than that are running"
MIRROR = "the two consumers' own buffers, or their numbers, are interchangeable"
ZERO = "the accumulator it starts from is zero"
NOT_FIRST = "the loop behind the copies never works on the first K-block"
THIS_TILE = "no store of the tile before is waited for, so that its number is no remainder"
ALIKE = "workers of as many warps and registers"
LAST = "nobody waits for the slots of the block's last tile"
FILLED = "a consumer's copies come behind a slot that was filled when the kernel before had ended"

FIRST_PHASE = "phase = (step // RING_DEPTH) & 1"
FIRST_ROUND = "a consumer's first K-block is in the ring's first round at any depth"
EMPTY = "mbarrier.wait(ring_empty.index(slot), phase ^ 1)"
FULL = "mbarrier.wait(ring_full.index(slot), phase)"
FULL_1 = "mbarrier.wait(ring_full.index(slot_after), phase_after)"
TURN = "mbarrier.wait(turn.index(index), (visit & 1) ^ (1 if index == 0 else 0))"
LATER_P = (
    "p = warpgroup_mma(x_ring.index(slot * 2 + index), w_ring.index(slot).permute((1, 0)), p, use_acc=k_block > 0, "
    "is_async=True)"
)
WAIT_P = "p = warpgroup_mma_wait(1, deps=(p,))"
WAIT_GATED = "gate, up = warpgroup_mma_wait(2, deps=(gate, up,))"
GIVEN_BACK_P = "p = warpgroup_mma_wait(3, deps=(p,))"
GIVEN_BACK_GATED = "gate, up = warpgroup_mma_wait(4, deps=(gate, up,))"
CONSUMER = (
    "(consumer, (x_ring, w_ring, ring_full, ring_empty, bf16_staging_0, y_desc, row_tiles, "
    "column_tiles, k_iterations, row_extent, column_extent, 0)),"
)
CONSUMER_TURNS = (
    "(consumer, (x_ring, w_ring, ring_full, ring_empty, turn, r_desc, b_ptr, b_prefetched_0, r_input_0, r_full_0, "
    "bf16_staging_0, h_desc, y_desc, row_tiles, column_tiles, k_iterations, row_extent, column_extent, 0)),"
)
CONSUMER_IN_PLACE = (
    "(consumer, (x_ring, w_ring, ring_full, ring_empty, r_desc, b_ptr, b_prefetched_0, r_input_0, r_full_0, "
    "bf16_staging_0, staged_0, freed_0, row_tiles, column_tiles, k_iterations, row_extent, column_extent, 0)),"
)
LOADER = "(loader, (x_desc, w_desc, x_ring, w_ring, ring_full, ring_empty, row_tiles, column_tiles, k_iterations)),"
FREED_H = (
    "mbarrier.wait(freed.index((subtile * 2 - 1 - h_pending) % STORES), "
    "(visit & 1) ^ (1 if subtile * 2 <= h_pending else 0))"
)
FREED_Y = (
    "mbarrier.wait(freed.index((subtile * 2 + 1 - 1 - y_pending) % STORES), "
    "(visit & 1) ^ (1 if subtile * 2 + 1 <= y_pending else 0))"
)
STAGED = tuple(f"mbarrier.wait(staged.index({number}), visit & 1)" for number in range(4))
FIRST_T = "p = warpgroup_mma(x_ring.index(slot).permute((1, 0)), w_ring.index(slot), p, use_acc=False, is_async=True)"

# Mutants that mean the same as the kernel: kind and line, how many of them, and why.
EQUIVALENT: dict[str, dict[tuple[str, str], tuple[int, str]]] = {
    "plain": {
        ("double-wait", EMPTY): (1, TWICE),
        ("double-wait", FULL): (2, TWICE),
        ("drop-mma-wait", WAIT_P): (1, FEWER),
        ("weaken-mma-wait", WAIT_P): (1, FEWER),
        ("drop-mma-wait", GIVEN_BACK_P): (1, FEWER),
        ("weaken-mma-wait", GIVEN_BACK_P): (1, FEWER),
        ("swap-argument", CONSUMER): (2, MIRROR),
    },
    "ping-pong": {
        ("double-wait", EMPTY): (1, TWICE),
        ("double-wait", FULL): (2, TWICE),
        ("double-wait", TURN): (1, TWICE),
        ("double-wait", "mbarrier.wait(r_full.index(subtile), visit & 1)"): (1, TWICE),
        ("drop-mma-wait", WAIT_P): (1, FEWER),
        ("weaken-mma-wait", WAIT_P): (1, FEWER),
        ("drop-mma-wait", GIVEN_BACK_P): (1, FEWER),
        ("weaken-mma-wait", GIVEN_BACK_P): (1, FEWER),
        ("swap-argument", CONSUMER_TURNS): (5, MIRROR),
        ("depth+1", FIRST_PHASE): (1, FIRST_ROUND),
        ("depth-1", FIRST_PHASE): (1, FIRST_ROUND),
    },
    "in_place": {
        ("drop-gdc_wait", "gdc_wait()"): (1, FILLED),
        ("double-wait", EMPTY): (1, TWICE),
        ("double-wait", FULL): (2, TWICE),
        ("keep-accumulator", LATER_P): (1, NOT_FIRST),
        ("double-wait", "mbarrier.wait(r_full.index(subtile), visit & 1)"): (1, TWICE),
        ("double-wait", FREED_H): (1, TWICE),
        ("double-wait", FREED_Y): (1, TWICE),
        ("double-wait", "mbarrier.wait(freed.index(2), (visit & 1) ^ 1)"): (1, TWICE),
        **{("double-wait", wait): (1, TWICE) for wait in STAGED},
        ("depth+1", FREED_Y): (1, THIS_TILE),
        ("depth-1", FREED_Y): (1, THIS_TILE),
        ("swap-roles", LOADER): (2, ALIKE),
        ("swap-argument", CONSUMER_IN_PLACE): (2, MIRROR),
    },
    "promoted": {
        ("double-wait", EMPTY): (1, TWICE),
        ("double-wait", FULL): (1, TWICE),
        ("double-wait", FULL_1): (1, TWICE),
    },
    "transposed": {
        ("double-wait", EMPTY): (1, TWICE),
        ("double-wait", FULL): (2, TWICE),
        ("drop-arrive", "mbarrier.arrive(ring_empty.index(slot_before), count=1)"): (1, LAST),
        ("early-arrive", "p = warpgroup_mma_wait(0, deps=(p,))"): (1, LAST),
        ("drop-mma-wait", WAIT_P): (1, FEWER),
        ("weaken-mma-wait", WAIT_P): (1, FEWER),
        ("drop-mma-wait", GIVEN_BACK_P): (1, FEWER),
        ("weaken-mma-wait", GIVEN_BACK_P): (1, FEWER),
        ("keep-accumulator", FIRST_T): (1, ZERO),
    },
    "batched": {
        ("double-wait", EMPTY): (1, TWICE),
        ("double-wait", FULL): (1, TWICE),
    },
    "tail": {
        ("double-wait", EMPTY): (1, TWICE),
        ("double-wait", FULL): (2, TWICE),
    },
    "gated": {
        ("double-wait", EMPTY): (1, TWICE),
        ("double-wait", FULL): (2, TWICE),
        ("drop-mma-wait", WAIT_GATED): (1, FEWER),
        ("weaken-mma-wait", WAIT_GATED): (1, FEWER),
        ("drop-mma-wait", GIVEN_BACK_GATED): (1, FEWER),
        ("weaken-mma-wait", GIVEN_BACK_GATED): (1, FEWER),
    },
}


@functools.cache
def emitted(name: str) -> Emitted:
    subject = SUBJECTS[name]
    return build(graph_of(subject.body), subject.structure, subject.kib)


def key(source: str, mutant: Mutant) -> tuple[str, str]:
    return mutant.name.partition("@")[0], source.splitlines()[mutant.line - 1].strip()


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
def test_every_mutant_is_found(name: str) -> None:
    source = emitted(name).source
    cases = [small_case(emitted(name), k_iterations) for k_iterations in SUBJECTS[name].k_iterations]
    assert survives(cases, source, SEEDS)
    table = EQUIVALENT[name]
    assert survivors(cases, source, key, table) == {where: count for where, (count, _) in table.items()}


def test_every_kind_is_made() -> None:
    kinds = {mutant.name.partition("@")[0] for name in SUBJECTS for mutant in mutants(emitted(name).source)}
    assert kinds >= {
        "drop-wait", "drop-arrive", "drop-expect", "drop-fence", "drop-store_wait", "drop-load", "drop-store",
        "drop-gdc_wait",
        "drop-mma-wait", "double-wait", "double-arrive", "double-expect", "flip-phase", "count+1", "count-1",
        "bytes+16", "bytes-16", "arrivals+1", "arrivals-1", "depth+1", "depth-1", "shrink-allocation",
        "weaken-mma-wait", "weaken-store-wait", "early-arrive", "late-wait", "early-release",
        "shift-slot-wait", "shift-slot-load", "shift-slot-mma", "shift-slot-epilogue",
        "swap-roles", "same-argument", "swap-argument", "keep-accumulator",
    }  # fmt: skip
