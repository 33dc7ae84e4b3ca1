"""The predicted time and the budgets against numbers worked out by hand, on a card of round figures."""

from __future__ import annotations

import itertools
import math
from dataclasses import fields, replace

import pytest
from schedule_examples import Example, attention, region, structure

from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder
from wsopt.lowering.structures import structures
from wsopt.machine import Machine
from wsopt.perf import paths, timing
from wsopt.perf.copies import load_cycles
from wsopt.perf.costs import mma_cycles
from wsopt.perf.demand import k_block_demand
from wsopt.perf.epilogue import Epilogues, Refill, epilogue_cycles, epilogues, refill
from wsopt.perf.gpcs import asked_again_bytes
from wsopt.perf.price import lower
from wsopt.perf.stores import tile_stores
from wsopt.program.epilogue import EpilogueCost
from wsopt.program.facts import Copy, Product
from wsopt.program.ids import ValueId, ValueKind
from wsopt.program.program import OpKind, TileProgram
from wsopt.program.types import Sharing
from wsopt.schedule import budget, memory
from wsopt.schedule.types import EpilogueBuffers

ONE = EpilogueBuffers(1, 0)
COST = EpilogueCost(alone=500, together=700, staged_bytes=1024, input_bytes=0, registers=16, stores=1)


@pytest.fixture(scope="module")
def card(h200: Machine) -> Machine:
    """100 SMs at 1000 MHz, so that a cycle is a nanosecond, and power for that clock whatever they do."""
    # The first bytes of a copy out of device memory take 900 cycles, the box that was timed 256 more.
    latency = replace(h200.latency, tma_load_dram=1156.0, tma_store=700.0, mbarrier_wake=60.0)
    latency = replace(latency, mbarrier_wait=20.0, barrier=30.0)
    free = {item.name: 0.0 for item in fields(h200) if item.name.startswith("power_cycles")}
    free |= {"power_idle": 0.0, "power_clock_mhz": 10_000.0}
    return replace(
        h200,
        sm_count=100,
        clock_mhz=1000.0,
        sustained_clock_mhz=1000.0,
        block_start_cycles=1000.0,
        block_turnover_cycles=3000.0,
        kernel_launch_us=1.5,
        tma_bytes_per_cycle=64.0,
        tma_store_bytes_per_cycle=8192.0,
        power_tensor={},
        latency=latency,
        **free,
    )


def toy(card: Machine, sharing: Sharing = Sharing.COOPERATIVE, *, persistent: bool = True) -> TileProgram:
    """250 tiles of 10 K-blocks each, whose two loads hold the path for 100 cycles together."""
    cut = replace(structure(64, 128, 64, 2, sharing), persistent=persistent)
    program = lower(region(2048, 2048, 512), cut, card)
    loads = iter((60, 40) if sharing is Sharing.PING_PONG else (30, 30, 40))
    ops = tuple(replace(op, busy=next(loads)) if op.kind is OpKind.TMA_LOAD else op for op in program.ops)
    return replace(program, ops=ops, tiles=250, k_iterations=10, epilogue=COST)


def test_persistent_blocks_start_once(card: Machine) -> None:
    found = timing.predict(toy(card), card, 512, ONE, (1,))
    # 250 tiles on 100 SMs are three waves; start, fill, waves of loop and epilogue, last store. Before a further
    # tile the last of two consumers waits for the other's store of 16 KiB, of 8 KiB a cycle.
    assert found.waves == 3
    assert found.cycles == 1000 + (900 + 100) + 3 * (10 * 512 + 700) + 2 * 2 + 700
    assert (found.start, found.fill, found.tail, found.power) == (1000, 1000, 700, 0)
    assert (found.main, found.epilogue) == (3 * 5120, 3 * 700 + 2 * 2)
    assert found.sm_us == pytest.approx(20.164)
    # Both memories' bytes take little beside: the norm of all three, behind what device memory has nothing to do in.
    idle = timing.fixed_parts(toy(card), card).idle
    parts = (20.164 - idle, found.dram_us - idle, found.l2_us)
    assert idle == pytest.approx(card.seconds(1000 + card.latency.tma_load_dram + 700) * 1e6)
    assert found.microseconds == pytest.approx(idle + sum(part**4 for part in parts) ** 0.25 + 1.5)
    assert found.microseconds < 20.3 + 1.5
    assert found.bound_by == "the SMs"


def test_one_tile_a_block_turns_over_every_wave(card: Machine) -> None:
    found = timing.predict(toy(card, persistent=False), card, 512, ONE, (1,))
    assert found.cycles == 3 * (1000 + 1000 + 5120 + 700 + 3000)


def test_consumers_in_ping_pong_hide_the_epilogue_under_the_loop(card: Machine) -> None:
    found = timing.predict(toy(card, Sharing.PING_PONG), card, 512, ONE, (1,))
    # A turn is the loop and the hand-over (60 + 20 + 30); only the last epilogue is seen. Of the first iteration,
    # whose copies are in the fill, it is the product alone that counts: one consumer's 256.
    assert found.cycles == 1000 + 1000 + 3 * (5120 + 110) - (512 - 256) + 500 + 700


def test_consumers_in_ping_pong_wait_for_an_epilogue_that_is_longer_than_the_loop(card: Machine) -> None:
    program = replace(toy(card, Sharing.PING_PONG), epilogue=replace(COST, alone=9000))
    found = timing.predict(program, card, 512, ONE, (1,))
    # Two consumers share a loop and an epilogue each: (5230 + 9000) / 2 a tile.
    assert found.cycles == 1000 + 1000 + 3 * 7115 - (512 - 256) + 9000 + 700


@pytest.mark.parametrize("sharing", list(Sharing))
def test_time_grows_with_the_interval_and_the_k_iterations(card: Machine, sharing: Sharing) -> None:
    program = toy(card, sharing)
    times = [timing.predict(program, card, ii, ONE, (1,)).microseconds for ii in range(300, 900, 50)]
    assert all(a < b for a, b in itertools.pairwise(times))
    times = [
        timing.predict(replace(program, k_iterations=t), card, 512, ONE, (1,)).microseconds
        for t in range(1, 20)
    ]
    assert all(a < b for a, b in itertools.pairwise(times))
    tiles = [
        timing.predict(replace(program, tiles=t), card, 512, ONE, (1,)).cycles
        for t in (1, 100, 101, 200, 201)
    ]
    assert tiles[0] == tiles[1] < tiles[2] == tiles[3] < tiles[4]


def test_energy_of_an_average_sm(card: Machine) -> None:
    program = toy(card)
    # 250 tiles of 10 K-blocks are 25 K-blocks an SM, though the busiest has 30: two products of 256 cycles each.
    assert timing.fixed_parts(program, card).energy == pytest.approx(25 * 512)
    assert timing.fixed_parts(replace(program, tiles=300), card).energy == pytest.approx(30 * 512)
    # In ping-pong a K-block is one consumer's.
    assert timing.fixed_parts(toy(card, Sharing.PING_PONG), card).energy == pytest.approx(25 * 256)


def on(program: TileProgram, card: Machine) -> TileProgram:
    """The program with what its K-blocks ask of another card."""
    return replace(program, demand=k_block_demand(program, card))


def test_energy_counts_every_k_block_of_an_iteration(card: Machine) -> None:
    cut = structure(64, 64, 64, 1)
    one, two = (lower(region(2048, 2048, 512, "f8e4m3"), replace(cut, copies=n), card) for n in (1, 2))
    assert (one.passes, two.passes) == (8, 4)
    # 1024 tiles of eight K-blocks on 100 SMs, 64 * 64 * 64 multiply-adds at 4096 a cycle each.
    energies = [timing.fixed_parts(program, card).energy for program in (one, two)]
    assert energies == [pytest.approx(10.24 * 8 * 64)] * 2
    # With products that take half as much again, and a quarter for each cycle of adding up 64 x 64 sums.
    hot = replace(card, power_tensor={"f8e4m3": 1.5}, power_cycles_per_alu_cycle=0.25)
    adds = 64 * 64 / hot.scalar["add"]
    energies = [timing.fixed_parts(on(program, hot), hot).energy for program in (one, two)]
    assert energies == [pytest.approx(10.24 * 8 * (96 + 0.25 * adds), rel=1e-3)] * 2


def test_blocks_of_a_loop_that_computes_values_fill_and_turn_over(card: Machine) -> None:
    program = lower(attention(), replace(structure(64, 64, 64, 2), persistent=False, group=1), card)
    assert program.work is not None
    fixed = replace(timing.fixed_parts(program, card), contended=500)
    tiles, k_iterations = program.work.tiles, program.work.k_iterations
    # A tile's first K-block is in its fill; start, turnover, fill and epilogue come once a tile.
    wanted = tiles * (1000 + 3000 + fixed.fill + 700) + (k_iterations - tiles) * 512 + fixed.code
    assert timing.time_of(program, fixed, card, Epilogues(700, 700)).at(512) == pytest.approx(wanted)
    # Where units and threads wait for one another for longer than the interval, that is what counts.
    waiting = replace(fixed, contended=600)
    later = timing.time_of(program, waiting, card, Epilogues(700, 700)).at(512) - wanted
    assert later == pytest.approx((k_iterations - tiles) * (600 - 512))


def test_energy_of_every_byte(card: Machine) -> None:
    program = toy(card)
    k_block = (128 + 128) * 64 * 2
    # A product of 64x128 reads 192 rows of a K-block of 128 bytes; two consumers have one each. Four tiles of
    # rows and four of columns, of 16 KiB each, are what 16 SMs of a GPC read of a K-block.
    bytes_of = {"shared_byte": 25 * 2 * 192 * 128, "l2_byte": 25 * k_block, "gpc_byte": 25 * 8 * 16384 / 16}
    bytes_of["dram_byte"] = program.dram_bytes / 100
    for name, nbytes in bytes_of.items():
        hot = replace(card, sms_per_gpc=16, **{f"power_cycles_per_{name}": 0.001})
        assert timing.fixed_parts(on(program, hot), hot).energy == pytest.approx(25 * 512 + 0.001 * nbytes), (
            name
        )


def test_energy_of_rows_that_begin_within_a_line(card: Machine) -> None:
    cut = structure(64, 128, 64, 2)
    hot = replace(card, power_cycles_per_l2_byte=0.001, sector_split_factor=1.5)
    energies = []
    for k in (512, 520):
        program = replace(lower(region(2048, 2048, k), cut, hot), tiles=250, k_iterations=10, dram_bytes=0)
        energies.append(timing.fixed_parts(program, hot).energy)
    # Rows 1040 bytes apart: 1.875 lines for one. That L2 splits sectors takes time, and no energy.
    assert energies[1] - energies[0] == pytest.approx(25 * 0.001 * 32768 * (1.875 - 1))


def test_energy_of_a_loop_that_computes_values(card: Machine) -> None:
    hot = replace(card, power_cycles_per_l2_byte=0.001, power_cycles_per_dram_byte=0.002)
    cut = replace(structure(64, 64, 64, 2), persistent=False, group=1)
    program = lower(attention(), cut, hot)
    assert program.work is not None
    # The products of a K-block: 64 x 64 scores of 64, and 64 x 64 sums of 64, two consumers; k and v of 8 KiB.
    per_k_block = 2 * 2 * 64 * 64 * 64 / 2048 + 0.001 * 2 * 8192
    wanted = program.work.k_iterations * per_k_block + 0.002 * program.dram_bytes / 100
    assert timing.fixed_parts(program, hot).energy == pytest.approx(wanted)


def test_the_power_limit_holds_the_clock(card: Machine) -> None:
    program = toy(card)
    cool = timing.predict(program, card, 512, ONE, (1,))
    assert (cool.cycles, cool.power) == (20164, 0)
    # 20164 cycles with 25 * 512 of energy: the clock of 800 MHz goes with the root of their ratio.
    hot = replace(card, power_clock_mhz=600.0)
    clock = 600 * (20164 / 12800) ** 0.5
    found = timing.predict(program, hot, 512, ONE, (1,))
    assert 700 < clock < 1000
    assert found.sm_us == pytest.approx(20164 / clock)
    assert found.power == pytest.approx(20164 * (1000 / clock - 1))
    assert found.cycles == pytest.approx(20164 + found.power)
    # The parts that are not the clock's stay what they were.
    parts = ("start", "fill", "main", "epilogue", "tail")
    assert [getattr(found, part) for part in parts] == [getattr(cool, part) for part in parts]
    # Beside an SM that takes three quarters of it by itself: 600 / sqrt(12800 / 20164 + 3 / 4).
    idle = timing.predict(program, replace(hot, power_idle=0.75), 512, ONE, (1,))
    assert idle.sm_us == pytest.approx(20164 / (600 / (12800 / 20164 + 0.75) ** 0.5))


def test_waiting_leaves_power_for_a_higher_clock(card: Machine) -> None:
    program, hot = toy(card), replace(card, power_clock_mhz=600.0)
    short, long = (timing.predict(program, hot, ii, ONE, (1,)) for ii in (512, 600))
    # 3 * 9 * 88 cycles more, for in each tile an iteration has its slot from before, and is as long as its
    # products; but at a higher clock: time goes with the root of cycles.
    assert long.sm_us / short.sm_us == pytest.approx((22540 / 20164) ** 0.5)
    # But never less of it, and at last the sustained clock is reached.
    times = [timing.predict(program, hot, ii, ONE, (1,)).sm_us for ii in range(512, 3000, 64)]
    assert all(one < other for one, other in itertools.pairwise(times))
    assert timing.predict(program, hot, 3000, ONE, (1,)).power == 0


def test_staging_buffers_hide_the_drain(card: Machine) -> None:
    cut = structure(64, 128, 64, 2, subtiles=4)
    program = lower(region(2048, 2048, 512), cut, card)
    program = replace(program, epilogue=replace(program.epilogue, together=2000))

    def cycles(rate: float, staging: int, *, store_warp: bool = True) -> int:
        told = replace(card.latency, mbarrier_arrive=0.0, mbarrier_wake=0.0, mbarrier_wait=0.0)
        machine = replace(card, tma_store_bytes_per_cycle=rate, tma_store_box_cycles=0.0, latency=told)
        return epilogue_cycles(program, machine, EpilogueBuffers(staging, 0, store_warp))

    # Two consumers' subtiles of 64 x 32 bf16 are 8192 bytes: 128 cycles of the stores' path, or 1024 of a slow one.
    assert [cycles(64.0, staging) for staging in (1, 2, 3, 4)] == [2000] * 4
    # A store starts after 500 cycles of work, and when the last one from its buffer has been read.
    assert cycles(8.0, 1) == 500 + 3 * 1024
    assert cycles(8.0, 2) == 500 + 2 * 1024
    assert cycles(8.0, 3) == 2000
    assert cycles(8.0, 4) == 2000
    # A consumer that starts them itself waits for those before, and at the end for the other's last one.
    assert [cycles(64.0, staging, store_warp=False) for staging in (1, 4)] == [2000 + 64] * 2
    assert [cycles(8.0, staging, store_warp=False) for staging in (1, 4)] == [500 + 3 * 1024 + 512] * 2


def test_a_store_warp_starts_what_a_consumer_has_staged(card: Machine) -> None:
    told = replace(card.latency, mbarrier_arrive=20.0, mbarrier_wake=30.0, mbarrier_wait=10.0)
    machine = replace(card, latency=told, tma_store_box_cycles=150.0, tma_store_bytes_per_cycle=8.0)
    program = lower(region(2048, 2048, 512), structure(64, 128, 64, 2, subtiles=2), machine)
    program = replace(program, epilogue=replace(program.epilogue, together=2000))
    # Two stores whose start, of 150 cycles, is no longer the consumer's: it arrives at a barrier.
    assert epilogues(program, machine, EpilogueBuffers(2, 0, store_warp=True)) == Epilogues(
        1740, 1740 + 40 + 150
    )
    # The one buffer is free when the store warp has heard, started, seen 16384 bytes read, and told.
    alone = 1740 // 2 + 40 + 150 + 2048 + 40
    assert epilogues(program, machine, EpilogueBuffers(1, 0, store_warp=True)) == Epilogues(
        alone, alone + 190
    )
    # Without it the last tile of a block waits for no store of another consumer.
    held = 2000 // 2 + 2048
    assert epilogues(program, machine, EpilogueBuffers(1, 0)) == Epilogues(held + 1024, held)
    single = replace(program, structure=replace(program.structure, persistent=False))
    assert epilogues(single, machine, EpilogueBuffers(1, 0)) == Epilogues(held, held)


def test_store_warps_are_a_choice_where_they_serve(h200: Machine) -> None:
    def starts(program: TileProgram) -> set[bool]:
        return {buffers.store_warp for buffers in budget.buffer_options(program)}

    cut = structure(64, 128, 64, 2)
    assert starts(lower(region(2048, 2048, 512), cut, h200)) == {False, True}
    # Partial sums keep consumers in step, and a loop that computes values has no stores worth a warp.
    added = lower(region(2048, 2048, 512, "f8e4m3"), structure(64, 64, 64, 1), h200)
    assert added.region.promote
    assert starts(added) == {False}
    values = lower(attention(), replace(structure(64, 64, 64, 2), persistent=False, group=1), h200)
    assert starts(values) == {False}
    # Two barriers for each store of each consumer.
    program = lower(region(2048, 2048, 512), structure(64, 128, 64, 2, subtiles=4), h200)
    with_one, without = (memory.barrier_bytes(program, [3], EpilogueBuffers(1, 0, s)) for s in (True, False))
    assert with_one - without == 2 * 2 * 4 * 8


def test_what_a_store_warp_tells(h200: Machine) -> None:
    mixed = tile_stores(in_place(4, h200), EpilogueBuffers(1, 4))
    assert [mixed.awaited(number) for number in range(4)] == [None] * 4
    assert mixed.left == ((3, 0),)  # what is copied into next has been read with the last one
    one = tile_stores(lower(region(2048, 2048, 512), structure(64, 128, 64, 2, subtiles=4), h200), ONE)
    assert [one.awaited(number) for number in range(4)] == [(-1, 0), (0, 0), (1, 0), (2, 0)]
    assert one.left == ((3, 0),)
    two = tile_stores(
        lower(region(2048, 2048, 512), structure(64, 128, 64, 2, subtiles=4), h200), EpilogueBuffers(2, 0)
    )
    assert [two.awaited(number) for number in range(4)] == [(-2, 1), (-1, 1), (0, 1), (1, 1)]
    assert two.left == ((2, 1), (3, 0))


def in_place(subtiles: int, machine: Machine, *, persistent: bool = True, deep: int = 256) -> TileProgram:
    """A product with a full tensor added to it, which has the output's type."""
    cut = replace(structure(64, 128, 64, 2, subtiles=subtiles), persistent=persistent)
    return lower(region(2048, 2048, deep, residual=True), cut, machine)


def test_outputs_are_staged_where_inputs_were_read(h200: Machine) -> None:
    program = in_place(2, h200)
    both = tile_stores(program, EpilogueBuffers(0, 2))
    (read,) = (source.name for source in program.region.full_sources)
    places = [(one.buffer.source, one.buffer.number, one.pending) for one in both.stores]
    assert places == [(read, 0, None), (read, 1, None)]
    assert both.refill == 0
    assert tile_stores(in_place(2, h200, persistent=False), EpilogueBuffers(0, 2)).refill is None
    # With fewer buffers than subtiles they are filled again while the epilogue runs, and nothing is staged there.
    apart = tile_stores(program, EpilogueBuffers(1, 1))
    assert [(one.buffer.source, one.buffer.number, one.pending) for one in apart.stores] == [("", 0, 0)] * 2
    assert apart.refill is None
    # A staging buffer comes first, so that the last store is from where nothing is copied to.
    mixed = tile_stores(program, EpilogueBuffers(1, 2))
    assert [one.buffer.source for one in mixed.stores] == ["", read]


def later(machine: Machine) -> float:
    """Cycles until a store warp has heard of a tile and begun to store it, less its bytes."""
    return machine.latency.mbarrier_wake + machine.latency.mbarrier_wait + machine.tma_store_box_cycles


def test_what_a_tile_leaves_is_waited_for_under_the_next_product(h200: Machine) -> None:
    program = in_place(1, h200)
    cost, cut = program.epilogue, program.structure
    alone, lent = (epilogue_cycles(program, h200, EpilogueBuffers(n, 1, store_warp=True)) for n in (1, 0))
    left = later(h200) + 2 * 64 * 128 * 2 / h200.tma_store_bytes_per_cycle
    assert alone == cost.together - math.floor(h200.tma_store_box_cycles - h200.latency.mbarrier_arrive)
    product = Product(cut.rows, cut.columns, cut.depth, program.whole.dtype, cut.consumer_warps)
    assert lent == math.ceil(alone + left - 2 * mma_cycles(product, h200))
    # With four passes inputs that were asked for any later would be late; with many all stores are read before.
    assert refill(program, h200, EpilogueBuffers(0, 1)) == Refill(0, 0)
    program = in_place(1, h200, deep=2048)
    read = 2 * (h200.tma_store_box_cycles + 64 * 128 * 2 / h200.tma_store_bytes_per_cycle)
    pair = 2 * mma_cycles(product, h200)
    assert refill(program, h200, EpilogueBuffers(0, 1)) == Refill(math.ceil(read / pair), 0) == Refill(3, 0)
    assert epilogue_cycles(program, h200, EpilogueBuffers(0, 1, store_warp=True)) == alone
    # Nothing is lent, or it is copied while another consumer has the tensor core: nothing is put off.
    assert refill(in_place(2, h200, deep=2048), h200, EpilogueBuffers(1, 1)) == Refill(0, 0)
    ping_pong = replace(cut, rows=128, sharing=Sharing.PING_PONG)
    taking = lower(region(2048, 2048, 2048, residual=True), ping_pong, h200)
    assert tile_stores(taking, EpilogueBuffers(0, 1)).refill is not None
    assert refill(taking, h200, EpilogueBuffers(0, 1)) == Refill(0, 0)


def test_short_loops_ask_for_inputs_at_once(h200: Machine) -> None:
    cuts = [in_place(1, h200, deep=deep) for deep in (256, 320, 384, 1024)]
    passes = [refill(cut, h200, EpilogueBuffers(0, 1)).first for cut in cuts]
    lent, own = (
        [epilogue_cycles(cut, h200, EpilogueBuffers(staging, 1, store_warp=True)) for cut in cuts]
        for staging in (0, 1)
    )
    assert passes == [0, 1, 2, 3]  # later ones would be late in the shorter loops
    waits = [one - other for one, other in zip(lent, own, strict=True)]
    assert waits == [math.ceil(later(h200) + 1024 - 512), math.ceil(later(h200)), 0, 0]


def test_subtiles_of_inputs_are_copied_one_after_the_other(h200: Machine) -> None:
    # A pass of two consumers' products takes 512 cycles, a copy out of device memory three passes, and the stores of
    # the tile before, of 64 KiB and eight starts, five.
    copy = h200.latency.tma_load_dram + load_cycles(64 * 32 * 2, h200)
    assert 2 * 512 < copy <= 3 * 512
    # The last of four subtiles is asked for after 5 + 3 * 3 passes, and there under the last three of 18.
    k_blocks = {
        deep: refill(in_place(4, h200, deep=deep * 64), h200, EpilogueBuffers(0, 4)) for deep in (64, 18, 17)
    }
    assert k_blocks == {64: Refill(5, 3), 18: Refill(5, 3), 17: Refill(5, 0)}
    # Buffers that nothing is staged in are filled from the start.
    assert refill(in_place(4, h200, deep=64 * 64), h200, EpilogueBuffers(1, 2)) == Refill(0, 3)


def test_a_kind_that_no_input_lends_keeps_a_buffer(h200: Machine) -> None:
    program = in_place(2, h200)
    subtile = 64 * 64 * 2
    assert memory.buffer_bytes(program, EpilogueBuffers(0, 2)) == 2 * subtile
    assert min(budget.buffer_options(program)) == EpilogueBuffers(0, 2)
    assert budget.least_buffers(program) == EpilogueBuffers(0, 2)
    wide = replace(program, epilogue=replace(program.epilogue, staged_bytes=3 * subtile, lent_bytes=subtile))
    assert memory.buffer_bytes(wide, EpilogueBuffers(0, 2)) == 2 * subtile + 2 * subtile
    none = replace(program, epilogue=replace(program.epilogue, lent_bytes=0))
    assert {b.staging for b in budget.buffer_options(none)} == {1, 2}


def test_memory_bounds_the_time_from_below(card: Machine) -> None:
    slow = replace(card, dram_sustained_bandwidth=1e11, dram_read_bandwidth=1e11)
    program = toy(slow)
    found = timing.predict(program, slow, 512, ONE, (1,))
    # Two operands of 2 MiB and an output of 8 MiB.
    assert program.dram_bytes == 12 * 2**20
    assert found.bound_by == "device memory"
    # The memory has nothing to do for the start of a block, a first copy and a last store; a sixth of the places of
    # three waves of 100 SMs have no tile.
    latency = slow.latency
    idle = slow.block_start_cycles + latency.tma_load_dram + latency.tma_store
    (member, *_) = program.rings[0].members
    row_bytes, slot = member.box(member.shape).row_bytes, program.rings[0].slot_bytes
    ahead = slow.shared_memory_per_block_bytes // slot * row_bytes
    slower = (1 + (20.7 / row_bytes) ** 2 + (206 / ahead) ** 2) * (1 + 0.15 / 6)
    nbytes = 12 * 2**20 + asked_again_bytes(program, slow)
    assert found.dram_us == pytest.approx(nbytes / 1e11 * 1e6 * slower + slow.seconds(idle) * 1e6)
    assert found.microseconds == pytest.approx(found.dram_us + 1.5, rel=1e-3)


def test_l2_bounds_the_time_from_below(card: Machine) -> None:
    slow = replace(card, l2_bandwidth=1e10)
    program = toy(slow)
    found = timing.predict(program, slow, 512, ONE, (1,))
    through = 250 * program.tile_l2_bytes + 2048 * 2048 * 2
    assert (found.bound_by, found.l2_us) == ("L2", pytest.approx(through / 1e10 * 1e6))


def test_reads_are_faster_than_copies(card: Machine) -> None:
    """A copy of so many bytes is as many reads and as many writes."""
    slow = replace(card, dram_sustained_bandwidth=1e11, dram_read_bandwidth=1.6e11)
    assert slow.memory_seconds(1e9, 1e9) == pytest.approx(2e9 / 1e11)
    assert slow.memory_seconds(1e9, 0) == pytest.approx(1e9 / 1.6e11)
    mostly_read = paths.memory_us(toy(slow), 12 * 2**20, slow)  # 8 of 12 MiB are written
    assert mostly_read == pytest.approx(slow.memory_seconds(4 * 2**20, 8 * 2**20) * 1e6)


def test_rows_beyond_the_end_and_short_pieces_slow_device_memory(card: Machine) -> None:
    program, latency = toy(card), card.latency
    waves, alone = 3, paths.memory_floors_us(toy(card), card)[0]

    def with_copies(**changed: float) -> TileProgram:
        ops = (
            replace(op, counts=replace(op.counts, **changed)) if isinstance(op.counts, Copy) else op
            for op in program.ops
        )
        return replace(program, ops=tuple(ops))

    copies = [op.counts for op in program.ops if isinstance(op.counts, Copy)]
    pieces = sum(math.ceil(copy.row_bytes / 128) for copy in copies)
    late = paths.memory_floors_us(with_copies(outside=10.0), card)[0] - alone
    cycles = waves * program.k_iterations * 10 * pieces * card.tma_outside_cycles
    assert copies
    assert late == pytest.approx(card.seconds(cycles) * 1e6, rel=0.05)
    assert latency.tma_store
    two = replace(with_copies(outside=10.0), structure=replace(program.structure, occupancy=2))
    one = replace(program, structure=two.structure)
    waves = paths.waves_of(one, card)
    both = paths.memory_floors_us(two, card)[0] - paths.memory_floors_us(one, card)[0]
    assert both == pytest.approx(2 * late * waves / 3, rel=0.1)


@pytest.mark.parametrize(("rows", "beyond"), [(40, 24), (64, 0), (96, 16)])
def test_rows_beyond_the_end_count_where_weights_are_computed(rows: int, beyond: int, card: Machine) -> None:
    g = GraphBuilder("widened")
    x, q = g.input("x", (rows, 256), "bf16"), g.input("q", (128, 256), "i8", constant=True)
    g.output(g.cast(g.matmul(x, g.cast(q, "bf16"), transpose_b=True), "bf16", name="y"))
    region = find_region(g.build())
    program = lower(region, next(s for s in structures(region, card) if s.columns == 64), card)
    (copy,) = (op.counts for op in program.of(OpKind.TMA_LOAD) if op.id.subject == "x")
    assert isinstance(copy, Copy)
    assert copy.outside == beyond


def test_energy_is_spent_over_the_time_of_the_bytes(card: Machine) -> None:
    hot = replace(card, power_clock_mhz=600.0)
    alone = timing.fixed_parts(toy(hot), hot)
    assert timing.power_cycles(alone, hot, 20_000) > 0
    waiting = replace(alone, floors=(1e6 / hot.sustained_clock_mhz, 0.0))
    assert timing.power_cycles(waiting, hot, 20_000) == 0


def test_the_roofline_is_the_larger_of_arithmetic_and_bytes(card: Machine) -> None:
    rate = card.sustained_tflops("bf16") * 1e12
    assert timing.roofline_us(toy(card), card) == pytest.approx(2 * 2048 * 2048 * 512 / rate * 1e6)
    # A tensor core that never waits runs at the clock that is left to it: 600 of 1000 MHz.
    hot = replace(card, power_clock_mhz=600.0)
    assert timing.roofline_us(toy(hot), hot) == pytest.approx(timing.roofline_us(toy(card), card) / 0.6)
    slow = replace(card, dram_sustained_bandwidth=1e11, dram_read_bandwidth=1e11)
    assert timing.roofline_us(toy(slow), slow) == pytest.approx(12 * 2**20 / 1e11 * 1e6)


def test_no_schedule_is_faster_than_its_roofline(examples: dict[str, Example]) -> None:
    for name, e in examples.items():
        assert e.schedule.prediction.microseconds > e.schedule.prediction.roofline_us, name


# --- budgets ------------------------------------------------------------------------------------------


def test_shared_memory_by_hand(h200: Machine) -> None:
    program = lower(region(2048, 2048, 512), structure(64, 128, 64, 2), h200)
    # Four slots of (64 + 64 + 128) x 64 bf16, a 64x128 bf16 tile a consumer, 8 barriers, the reserve.
    assert memory.shared_memory(program, 4, ONE) == 4 * 32768 + 2 * 16384 + 8 * 8 + 1024
    assert memory.shared_memory(program, 4, EpilogueBuffers(2, 0)) == 4 * 32768 + 4 * 16384 + 8 * 8 + 1024


def test_consumers_in_ping_pong_have_a_barrier_each_and_a_slot_of_one_tile(h200: Machine) -> None:
    program = lower(region(2048, 2048, 512), structure(128, 128, 32, 3, Sharing.PING_PONG), h200)
    assert memory.shared_memory(program, 2, ONE) == 2 * 16384 + 3 * 32768 + (4 + 3) * 8 + 1024


def test_full_inputs_have_buffers_and_barriers(h200: Machine) -> None:
    program = lower(region(2048, 2048, 256, residual=True), structure(64, 128, 64, 2, subtiles=2), h200)
    assert len(program.after.full) == 1
    assert {b.inputs for b in budget.buffer_options(program)} == {1, 2}
    subtile = 64 * 64 * 2
    used = memory.shared_memory(program, 3, EpilogueBuffers(1, 2))
    assert used == 3 * 32768 + 2 * (subtile + 2 * subtile) + (6 + 2 * 2) * 8 + 1024


@pytest.mark.parametrize(
    ("consumers", "warps", "base", "registers"),
    [
        (1, 4, 248, 240),  # 65536 / 256 threads are 256, of which a thread addresses 255
        (2, 4, 168, 240),  # 65536 / 384 are 170; 168 x 12 warps less 24 x 4, over 8
        (3, 4, 128, 160),  # 65536 / 512; (128 x 16 - 24 x 4) / 12 are 162
        (1, 8, 168, 240),
    ],
)
def test_registers_by_hand(h200: Machine, consumers: int, warps: int, base: int, registers: int) -> None:
    cut = replace(structure(128, 128, 64, consumers), consumer_warps=warps)
    assert budget.base_registers(cut, h200) == base
    assert budget.consumer_registers(cut, h200) == registers
    # What the roles have together is no more than what the kernel was launched with.
    pool = base * (consumers * warps + 4)
    assert consumers * warps * registers + 4 * budget.HELPER_REGISTERS <= pool
    assert pool * 32 <= h200.registers_per_sm


def test_live_registers_by_hand(h200: Machine) -> None:
    program = lower(region(2048, 2048, 512), structure(128, 128, 64, 2), h200)
    assert program.accumulator_registers == 128 * 128 // 128
    assert budget.needed_registers(program, 24) == 128 + program.epilogue.registers + 24


def test_partitions_take_whole_warpgroups(h200: Machine) -> None:
    assert [budget.warpgroup_warps(n, h200) for n in (1, 4, 5, 8)] == [4, 4, 8, 8]


def test_staging_is_of_no_use_beyond_the_stores(h200: Machine) -> None:
    for subtiles, most in ((1, 1), (2, 2), (4, 4)):
        program = lower(region(2048, 2048, 512), structure(64, 128, 64, 2, subtiles=subtiles), h200)
        assert max(b.staging for b in budget.buffer_options(program)) == most
        assert math.prod(program.value(ValueId(ValueKind.SUM, "p", 0)).shape) == 64 * 128
