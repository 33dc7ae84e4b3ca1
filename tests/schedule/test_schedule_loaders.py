"""The checker derives from a schedule alone that its loading warps divide the rings as the emitter can write it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from schedule_examples import MARGIN, Example, attention, region, structure

from wsopt.frontend.region import find_region
from wsopt.frontend.types import Region
from wsopt.graph.builder import GraphBuilder
from wsopt.machine import Machine
from wsopt.perf.price import lower
from wsopt.program.conditions import Conditions
from wsopt.schedule import budget, memory
from wsopt.schedule.types import EpilogueBuffers, Partition, PartitionRole, Schedule
from wsopt.solve.optimum import solve

K, V = "load:k", "load:v"


def solved(region: Region, machine: Machine, loaders: int, consumers: int) -> Example:
    """The best schedule with so many loading warps."""
    program = lower(region, replace(structure(64, 64, 64, consumers), group=1), machine)
    program = replace(program, conditions=Conditions(loaders=loaders))
    schedule = solve(program, machine, MARGIN).schedule
    assert schedule is not None
    return Example(schedule, program, machine)


def sums() -> Region:
    """y = x (a + b)', whose loop has three rings."""
    g = GraphBuilder("sums")
    x, a, b = (g.input(name, (512, 512), "bf16") for name in "xab")
    g.output(g.cast(g.matmul(x, g.cast(g.add(a, b), "bf16"), transpose_b=True), "bf16", name="y"))
    return find_region(g.build())


@pytest.fixture(scope="module")
def two(h200: Machine) -> Example:
    """Attention with a loading warp for keys and one for values."""
    return solved(attention(), h200, 2, 2)


def with_loaders(schedule: Schedule, *numbers: int) -> Schedule:
    kept = [p for p in schedule.partitions if p.role is not PartitionRole.LOADER]
    made = (Partition(PartitionRole.LOADER, number, 1, budget.HELPER_REGISTERS) for number in numbers)
    return replace(schedule, partitions=(*kept, *made))


def partition_of(example: Example, op: str) -> str:
    return example.schedule.place(example.program.named(op).id).partition


def together(schedule: Schedule) -> Schedule:
    """The same with one loading warp for all."""
    placed = tuple(replace(p, partition="loader0") if p.op == V else p for p in schedule.placed)
    return with_loaders(replace(schedule, placed=placed), 0)


def free(example: Example) -> Example:
    return replace(example, program=replace(example.program, conditions=Conditions()))


def test_two_are_accepted(two: Example) -> None:
    assert two.faults() == []
    assert [partition_of(two, op) for op in (K, V)] == ["loader0", "loader1"]
    assert free(two).faults() == []
    assert free(two).faults(together(two.schedule)) == []


def test_the_number_asked_for_is_there(two: Example) -> None:
    assert two.faults(together(two.schedule)) == ["2 loading warps are asked for, there are 1"]
    one = replace(two, program=replace(two.program, conditions=Conditions(loaders=1)))
    assert one.faults()[0] == f"emitter.v1: {V} is issued by loader1, not by loader0"


def test_the_first_ring_is_the_first_warps(two: Example) -> None:
    other = {"loader0": "loader1", "loader1": "loader0"}
    exchanged = two.each(lambda p: replace(p, partition=other.get(p.partition, p.partition)))
    assert two.faults(exchanged) == [f"emitter.v1: {K} is issued by loader1, not by loader0"]


def test_there_are_two_at_most(two: Example) -> None:
    third = two.moved(V, partition="loader2")
    assert two.faults(third) == [f"emitter.v1: {V} is issued by loader2, not by loader0 or loader1"]


def test_each_loading_warp_has_a_ring(two: Example) -> None:
    idle = with_loaders(together(two.schedule), 0, 1)
    found = free(two).faults(idle)
    assert "loading warps are loader0, loader1; copies are started by loader0" in found


def test_copies_that_share_a_barrier_share_a_warp(h200: Machine) -> None:
    three = solved(sums(), h200, 2, 1)
    apart = three.each(
        lambda p: replace(p, partition=f"loader{int(p.op == 'load:b')}") if "load" in p.op else p
    )
    assert three.faults(apart) == []
    x, a, b = three.program.rings
    joint = replace(three.program, rings=(x, replace(a, loads=(*a.loads, *b.loads)), b))
    told = "emitter.v1: copies into a_ring are started by loader0 and loader1; they share a barrier"
    assert told in replace(three, program=joint).faults(apart)


def test_one_warp_goes_from_k_block_to_k_block(two: Example) -> None:
    ii = two.schedule.ii
    late = two.moved(V, stage=1, cycle=ii - 1)
    told = (
        f"emitter.v1: the loads of K-block 0 of v_ring end with {2 * ii - 1}, "
        f"those of the next slot of k_ring begin at {ii}"
    )
    assert two.start(K) == 0
    assert told in free(two).faults(together(late))
    assert told not in two.faults(late)


def test_small_warps_fit_a_warpgroup(two: Example) -> None:
    warps = (Partition(PartitionRole.STORE_WARP, number, 1, budget.HELPER_REGISTERS) for number in range(3))
    crowded = replace(two.schedule, partitions=(*two.schedule.partitions, *warps))
    told = "emitter.v1: 5 warps that start copies, products or stores; they fit 4"
    assert told in two.faults(crowded)


@pytest.mark.parametrize("consumers", [1, 2, 3])
def test_three_store_warps_leave_room_for_one_loading_warp(consumers: int, h200: Machine) -> None:
    program = lower(sums(), structure(64, 64, 64, consumers), h200)
    for loaders in (0, 1, 2):
        asked = replace(program, conditions=Conditions(loaders=loaders))
        store_warps = {option.store_warp for option in budget.buffer_options(asked)}
        assert store_warps == ({False} if (consumers, loaders) == (3, 2) else {False, True})


def test_one_of_two_loading_warps_brings_no_inputs(h200: Machine) -> None:
    three = solved(sums(), h200, 2, 1)
    brought = replace(three.schedule, buffers=replace(three.schedule.buffers, inputs_by_loader=True))
    told = "emitter.v1: the epilogue's inputs are brought by one of 2 loading warps"
    assert told in three.faults(brought)


@pytest.mark.parametrize(
    ("changes", "fits"),
    [
        ({}, True),
        ({"inputs": 1}, False),
        ({"store_warp": False}, False),
        ({"staging": 2}, True),
    ],
)
def test_inputs_that_the_loading_warp_can_bring(changes: dict[str, Any], fits: bool, h200: Machine) -> None:
    """Those of products in a buffer for each subtile, of which a store warp tells where outputs are staged there."""
    s = structure(64, 128, 64, 2, subtiles=2)
    program = lower(region(2048, 2048, 256, residual=True), s, h200)
    one = replace(EpilogueBuffers(0, 2, store_warp=True, inputs_by_loader=True), **changes)
    assert (one in budget.buffer_options(program)) == fits
    own, brought = replace(one, inputs_by_loader=False), replace(one, inputs_by_loader=True)
    added = memory.barrier_bytes(program, [4], brought) - memory.barrier_bytes(program, [4], own)
    assert added == 2 * one.inputs * memory.BARRIER_BYTES
