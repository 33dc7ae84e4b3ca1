"""Who does what is chosen by costs alone: the same graph, machines whose figures differ."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fewer_structures import search_only
from solve_examples import MARGIN, attention, region, structure

from wsopt.checker import verify
from wsopt.frontend.region import find_region
from wsopt.frontend.types import Region
from wsopt.graph.builder import GraphBuilder
from wsopt.machine import Machine
from wsopt.perf.price import lower
from wsopt.program.conditions import Conditions
from wsopt.program.program import OpKind, TileProgram
from wsopt.program.types import Sharing, Structure
from wsopt.schedule import budget
from wsopt.schedule.types import PartitionRole
from wsopt.solve.bound import lower_bound_us
from wsopt.solve.optimum import Outcome, solve
from wsopt.solve.search import Search


def _weights() -> Region:
    """y = x w' with weights of i8 that are cast."""
    g = GraphBuilder("weights")
    x, w = g.input("x", (64, 4096), "bf16"), g.input("w", (8192, 4096), "i8", constant=True)
    g.output(g.cast(g.matmul(x, g.cast(w, "bf16"), transpose_b=True), "bf16", name="y"))
    return find_region(g.build())


def _roles(of: Region, machine: Machine, *among: Structure) -> set[PartitionRole]:
    """The roles of the best schedule among these structures."""
    with pytest.MonkeyPatch.context() as patch:
        search_only(patch, among)
        verified, _ = Search(of, machine, MARGIN).run()
    return {partition.role for partition in verified.schedule.partitions}


@pytest.mark.solver
def test_who_casts_weights_is_chosen_by_the_cost_of_the_trip(h200: Machine) -> None:
    own = structure(64, 64, 128, 1)
    among = (own, replace(own, transforms=1))
    assert PartitionRole.TRANSFORM not in _roles(_weights(), h200, *among)
    latency = replace(h200.latency, fence_behind_stores=0.0, mbarrier_arrive=0.0, mbarrier_wait=0.0)
    cheap = replace(h200, latency=latency, shared_memory_bytes_per_cycle=1024)
    assert PartitionRole.TRANSFORM in _roles(_weights(), cheap, *among)


def _copying(program: TileProgram, issue: int, **others: int) -> TileProgram:
    """The program with copies that hold their loading warp for so many cycles; those of `others` for their own."""
    costly = (
        replace(op, issue=others.get(op.id.subject, issue)) if op.kind is OpKind.TMA_LOAD else op
        for op in program.ops
    )
    return replace(program, ops=tuple(costly))


def _loaders(program: TileProgram, machine: Machine) -> dict[str, str]:
    """The loading warp of each tensor, in the best schedule of a program."""
    solved = solve(program, machine, MARGIN)
    assert solved.outcome is Outcome.OPTIMAL
    assert solved.schedule is not None
    schedule = verify(solved.schedule, program, machine, MARGIN).schedule
    assert lower_bound_us(program, machine) <= schedule.prediction.microseconds + 1e-9
    return {op.id.subject: schedule.place(op.id).partition for op in program.of(OpKind.TMA_LOAD)}


@pytest.mark.solver
@pytest.mark.parametrize("conditions", [Conditions(), Conditions(loaders=1)])
def test_who_loads_is_chosen_by_what_copies_cost_their_warp(conditions: Conditions, h200: Machine) -> None:
    program = lower(attention(), replace(structure(64, 64, 64, 2), group=1), h200)
    one, two = {"k": "loader0", "v": "loader0"}, {"k": "loader0", "v": "loader1"}
    for issue, free in ((49, one), (400, one), (600, two), (1200, two)):
        chosen = _loaders(replace(_copying(program, issue), conditions=conditions), h200)
        assert chosen == (one if conditions else free), issue


@pytest.mark.solver
@pytest.mark.parametrize("issue", [49, 700])
@pytest.mark.parametrize("consumers", [1, 2, 3])
def test_a_second_loading_warp_costs_nothing(consumers: int, issue: int, h200: Machine) -> None:
    """What one loading warp does two can do as fast, and what is found without a condition is the best of both."""
    program = _copying(lower(attention(), replace(structure(64, 64, 64, consumers), group=1), h200), issue)
    times = []
    for loaders in (1, 2, 0):
        solved = solve(replace(program, conditions=Conditions(loaders=loaders)), h200, MARGIN)
        assert solved.outcome is Outcome.OPTIMAL
        times.append(solved.objective)
    assert times[1] <= times[0]
    assert times[2] == min(times)


@pytest.mark.solver
def test_a_computed_operand_of_costly_copies_has_two_loading_warps(h200: Machine) -> None:
    program = lower(_weights(), replace(structure(64, 64, 128, 1), transforms=1), h200)
    assert set(_loaders(program, h200).values()) == {"loader0"}
    assert _loaders(_copying(program, 700), h200) == {"x": "loader0", "w": "loader1"}


@pytest.mark.solver
def test_which_warp_fills_which_ring_follows_from_the_costs(h200: Machine) -> None:
    g = GraphBuilder("sums")
    x, a, b = (g.input(name, (2048, 2048), "bf16") for name in "xab")
    g.output(g.cast(g.matmul(x, g.cast(g.add(a, b), "bf16"), transpose_b=True), "bf16", name="y"))
    program = lower(find_region(g.build()), structure(64, 64, 64, 1), h200)
    for costs, second in (
        ({"x": 2000, "a": 1000, "b": 1000}, {"a", "b"}),
        ({"x": 1000, "a": 2000, "b": 1000}, {"a"}),
        ({"x": 1000, "a": 1000, "b": 2000}, {"b"}),
    ):
        found = _loaders(_copying(program, 0, **costs), h200)
        assert {tensor for tensor, warp in found.items() if warp == "loader1"} == second


@pytest.mark.solver
def test_on_one_warp_a_ring_that_waits_holds_up_the_other(h200: Machine) -> None:
    program, intervals = lower(attention(128), replace(structure(64, 128, 128, 2), group=1), h200), []
    for loaders in (1, 2):
        asked = Conditions(slots=(("k_ring", 2), ("v_ring", 1)), loaders=loaders)
        solved = solve(replace(program, conditions=asked), h200, MARGIN)
        assert solved.schedule is not None
        intervals.append(solved.schedule.ii)
    assert intervals[1] < 0.9 * intervals[0]


@pytest.mark.solver
def test_a_ring_has_one_loading_warp(h200: Machine) -> None:
    product = lower(region(1024, 1024, 512), structure(64, 128, 64, 2), h200)
    assert set(_loaders(_copying(product, 600), h200).values()) == {"loader0"}
    asked = replace(product, conditions=Conditions(loaders=2))
    told = "emitter.v1: 2 loading warps, a block of this loop has 1 at most"
    assert solve(asked, h200, MARGIN).reason == told


def _brought(program: TileProgram, machine: Machine) -> bool:
    """Whether the loading warp brings the epilogue's inputs, in the best schedule of a program."""
    solved = solve(program, machine, MARGIN)
    assert solved.outcome is Outcome.OPTIMAL
    assert solved.schedule is not None
    prediction = verify(solved.schedule, program, machine, MARGIN).schedule.prediction
    assert lower_bound_us(program, machine) <= prediction.microseconds + 1e-9
    return solved.schedule.buffers.inputs_by_loader


def _busy(program: TileProgram, kind: OpKind, issue: int) -> TileProgram:
    """The program with operations of a kind that hold their thread for so many cycles."""
    ops = (replace(op, issue=issue) if op.kind is kind else op for op in program.ops)
    return replace(program, ops=tuple(ops))


@pytest.mark.solver
@pytest.mark.parametrize("sharing", Sharing)
def test_who_brings_a_residual_is_chosen_by_whose_thread_has_time(sharing: Sharing, h200: Machine) -> None:
    s = replace(structure(64, 128, 64, 2, sharing), subtiles=2)
    program = lower(region(2048, 2048, 512, residual=True), s, h200)
    assert not _brought(program, h200)
    loads = len(program.of(OpKind.TMA_LOAD))
    # A thread that takes as long for a K-block as anything does has no time left for the copies.
    consumers, loader = _busy(program, OpKind.MMA, 2000), _busy(program, OpKind.TMA_LOAD, 2000 // loads)
    assert _brought(consumers, h200) == (sharing is Sharing.COOPERATIVE)
    assert not _brought(loader, h200)
    assert not _brought(_busy(consumers, OpKind.TMA_LOAD, 2100 // loads), h200)


@pytest.mark.solver
def test_a_loading_warp_waits_for_stores_in_a_consumers_stead(h200: Machine) -> None:
    """With stores that are read slowly a consumer would stand still before it may copy the next tile's inputs.

    Staging buffers besides those of inputs would do as well: there are none here.
    """
    s, staged = replace(structure(64, 256, 64, 2), subtiles=4), Conditions(buffers=(("staging", 0),))
    slow = replace(h200, tma_store_bytes_per_cycle=h200.tma_store_bytes_per_cycle / 4)
    for machine, brought in ((h200, False), (slow, True)):
        program = lower(region(4096, 4096, 512, residual=True), s, machine)
        assert _brought(replace(program, conditions=staged), machine) == brought


@pytest.mark.solver
def test_what_the_loading_warp_cannot_bring_is_no_choice(h200: Machine) -> None:
    product = lower(region(2048, 2048, 512), replace(structure(64, 128, 64, 2), subtiles=2), h200)
    options = budget.buffer_options
    assert not any(one.inputs_by_loader for one in options(product))
    added = lower(region(2048, 2048, 512, residual=True), product.structure, h200)
    brought = [one for one in options(added) if one.inputs_by_loader]
    assert {(one.inputs, one.store_warp) for one in brought} == {(2, True)}  # y is staged where r was read
    asked = replace(added, conditions=Conditions(buffers=(("inputs_by_loader", True), ("inputs", 1))))
    told = "epilogue buffers: no choice of them has inputs_by_loader=yes,inputs=1"
    assert solve(asked, h200, MARGIN).reason == told


@pytest.mark.solver
def test_who_starts_stores_is_chosen_by_the_cost_of_starting_them(h200: Machine) -> None:
    product, s = region(4096, 4096, 512), replace(structure(64, 256, 64, 2), subtiles=4)
    assert PartitionRole.STORE_WARP in _roles(product, h200, s)
    free = replace(h200, tma_store_box_cycles=0.0, tma_store_bytes_per_cycle=1e4)
    assert PartitionRole.STORE_WARP not in _roles(product, free, s)
