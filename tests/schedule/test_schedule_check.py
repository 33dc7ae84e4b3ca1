"""The checker: a good schedule with one field changed is refused, with the numbers that show it."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest
from schedule_examples import MARGIN, Example

from wsopt.checker import verify
from wsopt.errors import CheckError
from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder
from wsopt.lowering.structures import structures
from wsopt.machine import Machine
from wsopt.perf.effective_ii import effective_ii
from wsopt.perf.price import lower
from wsopt.program.program import OpKind, Unit
from wsopt.program.types import Sharing
from wsopt.schedule import budget, memory
from wsopt.schedule.types import EpilogueBuffers, Partition, PartitionRole, Schedule
from wsopt.schedule.verified import VerifiedSchedule


def refuse(example: Example, schedule: Schedule, *fragments: str) -> None:
    """Assert that one of the faults has all the fragments."""
    found = example.faults(schedule)
    assert any(all(fragment in fault for fragment in fragments) for fault in found), found


def test_good_schedules_are_verified(examples: dict[str, Example]) -> None:
    for name, e in examples.items():
        verified = verify(e.schedule, e.program, e.machine, MARGIN)
        assert verified.schedule is e.schedule, name


def test_only_the_checker_makes_verified_schedules(rows: Example) -> None:
    with pytest.raises(TypeError, match=r"made by checker\.verify alone"):
        VerifiedSchedule(rows.schedule, rows.program, rows.machine, object())  # type: ignore[arg-type]


def test_a_seal_is_not_passed_on(rows: Example) -> None:
    verified = verify(rows.schedule, rows.program, rows.machine, MARGIN)
    with pytest.raises((TypeError, ValueError), match="seal"):
        replace(verified, schedule=replace(rows.schedule, base_registers=8))
    assert not hasattr(verified, "seal")


def test_all_faults_are_told_at_once(rows: Example) -> None:
    bad = replace(rows.schedule, base_registers=8, shared_memory_bytes=1)
    with pytest.raises(CheckError, match=r"schedule of small rejected: .*shared memory .*; base registers 8"):
        verify(bad, rows.program, rows.machine, MARGIN)


# --- placement and partitions -------------------------------------------------------------------------


def test_every_operation_is_placed_once(rows: Example) -> None:
    placed = rows.schedule.placed
    refuse(rows, replace(rows.schedule, placed=placed[1:]), "operations placed [", placed[0].op)
    refuse(rows, replace(rows.schedule, placed=(*placed, placed[0])), "operations placed [")


def test_operations_are_inside_the_interval(rows: Example) -> None:
    op, ii = rows.name(OpKind.MMA), rows.schedule.ii
    refuse(rows, rows.moved(op, cycle=ii), f"{op} at stage", f"cycle {ii} is outside an II of {ii}")
    refuse(rows, rows.moved(op, cycle=-1), f"cycle -1 is outside an II of {ii}")
    refuse(rows, rows.moved(op, stage=-1), f"{op} at stage -1")


def test_operations_are_on_their_partition(rows: Example) -> None:
    op = rows.name(OpKind.MMA, 0)
    for other in ("helper0", "consumer1"):
        told = f"emitter.v1: {op} is issued by {other}, not by consumer0"
        refuse(rows, rows.moved(op, partition=other), told)


def test_partitions_are_those_of_the_structure(rows: Example) -> None:
    one, two, loader, *store_warps = rows.schedule.partitions
    assert [store_warp.name for store_warp in store_warps] == ["store_warp0", "store_warp1"]

    def dealt(*partitions: Partition) -> Schedule:
        return replace(rows.schedule, partitions=partitions)

    asked = "ask for consumer0 of 4 warps, consumer1 of 4 warps, loader0 of 1 warps, store_warp0 of 1 warps, store"
    wide, second = replace(one, warps=8), Partition(PartitionRole.LOADER, 1, 1, 24)
    refuse(
        rows, dealt(two, one, loader, *store_warps), "partitions are consumer1 of 4 warps, consumer0", asked
    )
    refuse(rows, dealt(wide, two, loader, *store_warps), "partitions are consumer0 of 8 warps", asked)
    refuse(rows, dealt(one, two, replace(loader, warps=4), *store_warps), "loader0 of 4 warps", asked)
    refuse(
        rows, dealt(one, loader, two, *store_warps), "loader0 of 1 warps, consumer1 of 4 warps, store", asked
    )
    refuse(
        rows, dealt(one, two, loader, second, *store_warps), "loader0 of 1 warps, loader1 of 1 warps", asked
    )
    refuse(rows, dealt(one, two, loader, store_warps[0]), "store_warp0 of 1 warps; the structure", asked)
    wide = replace(store_warps[1], warps=2)
    refuse(
        rows, dealt(one, two, loader, store_warps[0], wide), "store_warp1 of 2 warps; the structure", asked
    )
    kept = replace(rows.schedule.buffers, store_warp=False)
    without = asked.removesuffix(", store_warp0 of 1 warps, store")
    found = [one for one in rows.faults(replace(rows.schedule, buffers=kept)) if "partitions are" in one]
    assert [one.endswith(without) for one in found] == [True]


def test_the_structure_is_that_of_the_program(rows: Example) -> None:
    other = replace(rows.schedule.structure, group=8)
    refuse(rows, replace(rows.schedule, structure=other), "group=8", "the tile program was cut to")


# --- time ---------------------------------------------------------------------------------------------


def test_products_wait_for_their_tiles(rows: Example) -> None:
    load, mma, ii = rows.name(OpKind.TMA_LOAD), rows.name(OpKind.MMA, 0), rows.schedule.ii
    late = rows.moved(load, stage=9)
    wake = round(rows.machine.latency.mbarrier_wake)
    ready = 9 * ii + rows.schedule.place(load).cycle + rows.program.named(load).latency + wake
    refuse(rows, late, f"{mma} starts at {rows.start(mma)}, {load} is ready at {ready}")


def test_slots_are_released_after_the_product(rows: Example) -> None:
    mma, release = rows.name(OpKind.MMA, 1), rows.name(OpKind.RELEASE, 1)
    early = rows.moved(release, stage=0, cycle=rows.start(mma) % rows.schedule.ii)
    ready = rows.start(mma) + rows.program.named(mma).latency
    refuse(rows, early, f"{release} starts at", f"{mma} is ready at {ready}")


def test_partial_sums_are_added_before_the_next_product(examples: dict[str, Example]) -> None:
    f8 = examples["f8"]
    mma, add = f8.name(OpKind.MMA, 0), f8.name(OpKind.ACCUMULATE, 0)
    late = f8.moved(add, stage=f8.schedule.place(add).stage + 1)
    ready = f8.start(add) + f8.schedule.ii + f8.program.named(add).latency
    refuse(f8, late, f"{mma} starts at {f8.start(mma) + f8.schedule.ii}, {add} is ready at {ready}")
    refuse(f8, late, "emitter.v1", "consumer0 carries partial sums into the next pass")


def test_a_unit_does_one_thing_at_a_time(rows: Example) -> None:
    one, other = rows.name(OpKind.TMA_LOAD), rows.name(OpKind.TMA_LOAD, number=1)
    at = rows.schedule.place(one)
    clash = rows.moved(other, cycle=at.cycle, stage=at.stage)
    refuse(rows, clash, f"{one} at {at.cycle} for {rows.program.named(one).busy} and {other}", "share tma")


def test_a_unit_is_not_asked_for_more_than_there_is(rows: Example) -> None:
    tensor = sum(op.busy for op in rows.program.loop if op.unit is Unit.TENSOR)
    refuse(
        rows,
        replace(rows.schedule, ii=tensor - 1),
        f"tensor is asked for {tensor} cycles of an II of {tensor - 1}",
    )


def test_no_ring_is_faster_than_its_effective_ii(rows: Example) -> None:
    ii, (_, depth) = rows.schedule.ii, rows.schedule.rings[0]
    effective = effective_ii(rows.program, rows.machine, depth)
    tensor = sum(op.busy for op in rows.program.loop if op.unit is Unit.TENSOR)
    assert tensor < effective == ii
    told = f"II is {ii - 1}, ring with {depth} slots has an effective II of {effective}"
    refuse(rows, replace(rows.schedule, ii=ii - 1), told)
    # A shallower ring is slower, though each slot's life would fit it.
    slower = effective_ii(rows.program, rows.machine, depth - 1)
    shallow = replace(rows.schedule, rings=(("ring", depth - 1),))
    refuse(rows, shallow, f"II is {ii}, ring with {depth - 1} slots has an effective II of {slower}")


def test_a_partition_issues_one_thing_at_a_time(rows: Example) -> None:
    mma, release = rows.name(OpKind.MMA, 0), rows.name(OpKind.RELEASE, 0)
    at = rows.schedule.place(mma)
    clash = rows.moved(release, cycle=at.cycle, stage=at.stage)
    refuse(rows, clash, f"{mma} at {at.cycle} for", f"and {release} at {at.cycle} for", "share consumer0")


# --- budgets ------------------------------------------------------------------------------------------


def test_slots_live_no_longer_than_the_ring_allows(rows: Example) -> None:
    releases = [rows.name(OpKind.RELEASE, consumer) for consumer in (0, 1)]
    op = rows.program.named(releases[0])
    first = min(rows.start(p.op) for p in rows.schedule.placed)
    lives = max(rows.start(name) for name in releases) + op.issue + op.latency - first
    assert lives > rows.schedule.ii
    refuse(
        rows, replace(rows.schedule, rings=(("ring", 1),)), f"a slot of ring lives {lives} cycles, 1 slots"
    )
    refuse(rows, replace(rows.schedule, rings=(("ring", 0),)), "ring has 0 slots")


@pytest.mark.parametrize("name", ["f8 in pairs", "f8 in pairs, 3 slots"])
def test_slots_come_round_to_other_k_blocks(name: str, examples: dict[str, Example]) -> None:
    """Of K-blocks 0 and 1 of an iteration: with three slots the first goes to K-block 1 of the next iteration."""
    e = examples[name]
    (depth,) = (slots for _, slots in e.schedule.rings)
    assert depth % 2 == 1
    later, k_block = depth // 2, 1
    again = min(
        e.start(str(op.id)) for op in e.program.loop if op.kind is OpKind.TMA_LOAD and op.copy == k_block
    )
    release = e.program.named(e.name(OpKind.RELEASE))
    allowed = again + later * e.schedule.ii - release.issue - release.latency
    stage, cycle = divmod(allowed, e.schedule.ii)
    at_last, too_late = (e.moved(str(release.id), stage=stage, cycle=cycle + by) for by in (0, 1))
    assert not any("a slot of ring lives" in fault for fault in e.faults(at_last))
    refuse(e, too_late, "a slot of ring lives", f"{depth} slots allow")


def test_rings_are_those_of_the_program(rows: Example) -> None:
    refuse(rows, replace(rows.schedule, rings=(("belt", 4),)), "('belt', 4)", "the tile program has ['ring']")


def test_shared_memory_is_what_the_buffers_take(rows: Example) -> None:
    used = rows.schedule.shared_memory_bytes
    wrong = replace(rows.schedule, shared_memory_bytes=used - 8)
    refuse(rows, wrong, f"given as {used - 8} bytes, the buffers take {used}")


def test_shared_memory_fits_a_block(rows: Example) -> None:
    used = rows.schedule.shared_memory_bytes
    small = replace(rows, machine=replace(rows.machine, shared_memory_per_block_bytes=used - 1))
    refuse(small, rows.schedule, f"shared memory: {used} bytes, a block has {used - 1}")
    deep = replace(rows.schedule, rings=(("ring", 99),))
    need = memory.shared_memory(rows.program, 99, rows.schedule.buffers)
    refuse(
        rows, deep, f"shared memory: {need} bytes, a block has {rows.machine.shared_memory_per_block_bytes}"
    )


@pytest.mark.parametrize("buffers", [EpilogueBuffers(0, 0), EpilogueBuffers(2, 0), EpilogueBuffers(1, 1)])
def test_buffers_are_of_use_to_the_epilogue(rows: Example, buffers: EpilogueBuffers) -> None:
    refuse(rows, replace(rows.schedule, buffers=buffers), f"{buffers} for 1 stores")


@pytest.mark.parametrize("registers", [16, 25, 248])
def test_registers_are_what_setmaxnreg_takes(rows: Example, registers: int) -> None:
    one, *others = rows.schedule.partitions
    bad = replace(rows.schedule, partitions=(replace(one, registers=registers), *others))
    refuse(rows, bad, f"consumer0 has {registers} registers a thread")


def test_live_tiles_fit_the_registers(rows: Example) -> None:
    need = budget.needed_registers(rows.program, MARGIN)
    one, *others = rows.schedule.partitions
    bad = replace(rows.schedule, partitions=(replace(one, registers=64), *others))
    refuse(rows, bad, f"consumer0 has 64 registers a thread, its live tiles take {need}")


def test_registers_fit_the_launch(examples: dict[str, Example]) -> None:
    rows = examples["cooperative"]
    *consumers, loader, one, two = rows.schedule.partitions
    pool = rows.schedule.base_registers * 3 * 4 * 32
    # Registers that the SM has left over beside the launch are nobody's: setmaxnreg only moves them about.
    more = pool // 128 - sum(p.registers for p in consumers) + 8
    total = 128 * (sum(p.registers for p in consumers) + more)
    assert pool < total <= rows.machine.registers_per_sm
    for helpers in (
        (replace(loader, registers=more), one, two),
        (
            loader,
            one,
            replace(two, registers=more),
        ),  # the warpgroup of all three has the most that one asks for
    ):
        bad = replace(rows.schedule, partitions=(*consumers, *helpers))
        refuse(rows, bad, f"registers: {total}, the launch has {pool}")
    refuse(rows, replace(rows.schedule, base_registers=160), "base registers 160")
    large = replace(rows.schedule, base_registers=176)
    refuse(rows, large, f"registers: the launch takes {176 * 384}, an SM has 65536")


def test_what_is_dealt_out_is_what_was_launched(examples: dict[str, Example], h200: Machine) -> None:
    for cut in {s for e in examples.values() for s in structures(e.program.region, h200)}:
        warps = cut.consumers * cut.consumer_warps
        registers = budget.consumer_registers(cut, h200)
        dealt = registers * warps + budget.helper_registers(cut) * 4
        pool = budget.base_registers(cut, h200) * (warps + 4)
        assert dealt <= pool <= 65536 // 32, cut
        assert registers == 240 or dealt + 8 * warps > pool, cut


@pytest.mark.parametrize(("taps", "registers"), [(10, [240, 240, 24]), (11, [232, 232, 40])])
def test_a_warp_that_starts_many_copies_has_more_registers(
    taps: int, registers: list[int], h200: Machine
) -> None:
    g = GraphBuilder("taps")
    x, w = g.input("x", (256, 64), "bf16"), g.input("w", (taps, 64, 64), "bf16", constant=True)
    parts = [g.slice(w, axis=0, start=place, stop=place + 1) for place in range(taps)]
    products = [g.matmul(x, g.reshape(part, shape=(64, 64))) for part in parts]
    g.output(g.cast(functools.reduce(g.add, products), "bf16", name="y"))
    region = find_region(g.build())
    cut = next(
        s for s in structures(region, h200) if (s.consumers, s.consumer_warps, s.transforms) == (2, 4, 0)
    )
    program = lower(region, cut, h200)
    assert len(program.of(OpKind.TMA_LOAD)) == taps + cut.consumers
    found = budget.partitions(program, budget.least_buffers(program), h200)
    assert [one.registers for one in found] == registers
    assert budget.consumers_registers(program, h200) == registers[0]


def test_programs_of_one_loop_have_the_registers_of_their_own_structures(h200: Machine) -> None:
    """Flat rows whose blocks take tiles at run time count them; others of the same loop do not."""
    g = GraphBuilder("flat")
    g.output(g.cast(g.softmax(g.input("x", (4096, 5025), "bf16")), "bf16", name="y"))
    region = find_region(g.build())
    found = [one for one in structures(region, h200) if one.flat and not one.resident]
    assert {budget.helper_registers(one) for one in found} == {24, 40}
    for one in found:
        program = lower(region, one, h200)
        least = budget.least_buffers(program)
        (loader, *_) = (p for p in budget.partitions(program, least, h200) if p.role is PartitionRole.LOADER)
        assert loader.registers == budget.helper_registers(one)
        assert budget.consumers_registers(program, h200) == budget.consumer_registers(one, h200)


# --- the emitter and the prediction -------------------------------------------------------------------


def test_loads_of_a_slot_are_in_one_stage(rows: Example) -> None:
    load = rows.name(OpKind.TMA_LOAD)
    apart = rows.moved(load, stage=rows.schedule.place(load).stage + 1)
    refuse(rows, apart, "emitter.v1: the loads of", "are in stages")


def test_slots_are_filled_in_order(examples: dict[str, Example]) -> None:
    pairs = examples["f8 in pairs"]
    loads = [p for p in pairs.schedule.placed if p.partition == "loader0"]
    k_blocks = [{p.op for p in loads if pairs.program.named(p.op).copy == copy} for copy in (0, 1)]
    for k_block in (0, 1):
        late = pairs.each(
            lambda p, own=k_blocks[k_block]: replace(p, stage=p.stage + 2) if p.op in own else p
        )
        refuse(
            pairs,
            late,
            f"emitter.v1: the loads of K-block {k_block} of ring end with",
            "those of the next slot",
        )


def test_loads_are_issued_by_the_loader(rows: Example) -> None:
    load = rows.name(OpKind.TMA_LOAD)
    refuse(
        rows,
        rows.moved(load, partition="consumer0"),
        f"emitter.v1: {load} is issued by consumer0, not by loader0",
    )


def test_the_prediction_is_derived_again(rows: Example) -> None:
    given = rows.schedule.prediction
    better = replace(given, microseconds=given.microseconds - 1)
    refuse(
        rows,
        replace(rows.schedule, prediction=better),
        f"predicted {better.microseconds} us, the formula gives",
    )
    refuse(rows, replace(rows.schedule, prediction=replace(given, tail=0.0)), "or their parts differ")


def test_in_ping_pong_each_consumer_has_the_loop(examples: dict[str, Example], h200: Machine) -> None:
    ping_pong = examples["ping-pong"]
    assert ping_pong.program.structure.sharing is Sharing.PING_PONG
    assert {p.partition for p in ping_pong.schedule.placed} == {"consumer0", "loader0"}
    assert [p.name for p in ping_pong.schedule.partitions] == ["consumer0", "consumer1", "loader0"]
    refuse(
        ping_pong,
        replace(ping_pong.schedule, partitions=ping_pong.schedule.partitions[1:]),
        "partitions are consumer1 of 4 warps, loader0",
    )


def test_a_partition_is_read_on_its_own_clock(rows: Example) -> None:
    own = rows.schedule.of("consumer1")
    assert (own[0].stage, own[0].cycle) == (0, 0)
    starts = {p.op: p.stage * rows.schedule.ii + p.cycle for p in own}
    first = min(rows.start(op) for op in starts)
    assert starts == {op: rows.start(op) - first for op in starts}
