"""The effective II of a streamed loop against numbers worked out by hand, on a card of round figures."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from attention_graphs import attention
from tile_graphs import plain

from wsopt.frontend.region import find_region
from wsopt.frontend.types import Region
from wsopt.machine import Machine
from wsopt.perf import costs
from wsopt.perf.contention import contended_interval, held_cycles
from wsopt.perf.demand import ring_slots
from wsopt.perf.effective_ii import effective_ii, path_cycles, steady_loop
from wsopt.perf.price import lower
from wsopt.perf.timing import fixed_parts
from wsopt.program.demand import Demand
from wsopt.program.facts import Copy
from wsopt.program.program import TileProgram
from wsopt.program.types import Sharing, Structure

CUT = Structure(64, 128, 64, 2, 4, Sharing.COOPERATIVE, True, False, 1, 4)
SHARP = 100.0
"""A knee at which a loop is as slow as the largest of its bounds, if that is clear of the others."""


def k_block_demand(region: Region, cut: Structure, card: Machine) -> Demand:
    """What a K-block of a region asks for, cut to a structure."""
    found = lower(region, cut, card).demand
    assert found is not None
    return found


MANY = 10**6
"""Slots of a ring that bounds nothing."""


@pytest.fixture(scope="module")
def card(h200: Machine) -> Machine:
    """100 SMs at 1000 MHz, 64 bytes a cycle each from L2 and 32 as a share of a GPC; power costs nothing.

    A slot's way back takes 60 + 20 + 2 * (30 + 40) = 220 cycles, a copy's first bytes 500 on a path that nothing
    else is on: the 16 KiB of the box that was timed take 256 more. One SM alone gets 64 bytes a cycle too.
    """
    latency = replace(h200.latency, tma_load_l2=756.0, tma_load_dram=1156.0, tma_store=700.0)
    latency = replace(latency, mma_latency=60.0, barrier=20.0, mbarrier_wake=30.0, mbarrier_wait=40.0)
    power = {f"power_cycles_per_{what}_byte": 0.0 for what in ("shared", "l2", "gpc", "dram")}
    return replace(
        h200,
        sm_count=100,
        sms_per_gpc=16,
        clock_mhz=1000.0,
        sustained_clock_mhz=1000.0,
        l2_bandwidth=6.4e12,
        l2_distinct_bandwidth=3.2e12,
        tma_bytes_per_cycle=64.0,
        block_start_cycles=1000.0,
        block_turnover_cycles=800.0,
        sector_split_factor=1.5,
        copy_queue=1.0,
        copy_knee=SHARP,
        copy_knee_alone=SHARP,
        power_idle=0.0,
        latency=latency,
        **power,
    )


def demand(path: float = 100, tensor: float = 100, *, gpc: float = 0, energy: float = 0) -> Demand:
    """A K-block whose lines hold the path for so many cycles of 1000 MHz, and nothing outside the loop."""
    lines = 64 * path
    return Demand(
        lines=lines, data=lines, touched=lines, gpc=32 * gpc, tensor=tensor, energy=energy, between=0, alone=False
    )  # fmt: skip


def k_block(asked: Demand, card: Machine, slots: int) -> float:
    return steady_loop(asked, card, slots).k_block


# --- what bounds a loop -------------------------------------------------------------------------------


def test_the_path_bounds_a_loop(card: Machine) -> None:
    # A copy takes 500 * (1 + 1000 / 1000) + 1000; with product and return 2320, in ten slots 232.
    assert k_block(demand(path=1000), card, 10) == 1000
    assert k_block(demand(path=1000, gpc=1500), card, 10) == 1500
    assert k_block(demand(path=1000, gpc=999), card, 10) == 1000


def test_the_tensor_core_bounds_a_loop(card: Machine) -> None:
    assert k_block(demand(tensor=1024), card, 10) == 1024


def test_a_ring_bounds_a_loop(card: Machine) -> None:
    # Copy, product and return on an empty path: 500 + 100 + 100 + 220.
    free = replace(card, copy_queue=0.0)
    assert k_block(demand(), free, 1) == pytest.approx(920, abs=0.25)
    assert k_block(demand(), free, 4) == pytest.approx(230, abs=0.05)
    assert k_block(demand(path=180, tensor=300), free, 2) == pytest.approx(
        (500 + 180 + 300 + 220) / 2, abs=0.25
    )


def test_a_copy_of_one_sm_has_the_rate_of_one_sm(card: Machine) -> None:
    free = replace(card, copy_queue=0.0)
    # Lines that hold the shared path for 100 cycles take one SM 200 at half the rate.
    assert k_block(demand(), replace(free, tma_bytes_per_cycle=32.0), 1) == pytest.approx(
        756 - 512 + 200 + 100 + 220, abs=0.25
    )
    # Of half lines it is the bytes that come at that rate: 50 cycles less.
    assert k_block(replace(demand(), data=3200), free, 1) == pytest.approx(870, abs=0.25)
    # What the GPC fetches bounds the loop, but is no part of a slot's life: 920 in one slot, not 1720.
    assert k_block(demand(gpc=900), free, 1) == pytest.approx(920, abs=15)
    assert k_block(demand(gpc=1500), free, 1) == pytest.approx(1500, abs=0.25)


def test_a_timed_copy_has_its_bytes_in_it(card: Machine) -> None:
    assert card.first_bytes(756) == 500
    assert card.first_bytes(256) == card.first_bytes(200) == 0
    assert replace(card, tma_bytes_per_cycle=128.0).first_bytes(756) == 628


def test_a_copy_takes_longer_on_a_busy_path(card: Machine) -> None:
    # p = 500 * (1 + 100 / p) + 420 with one slot: p = 460 + sqrt(460^2 + 50000).
    assert k_block(demand(), card, 1) == pytest.approx(460 + 261600**0.5, abs=0.5)
    # With two, 2 p = 920 + 50000 / p.
    assert k_block(demand(), card, 2) == pytest.approx(230 + 77900**0.5, abs=0.5)
    # Twice the queue: p = 500 * (1 + 200 / p) + 420.
    longer = replace(card, copy_queue=2.0)
    assert k_block(demand(), longer, 1) == pytest.approx(460 + 311600**0.5, abs=0.5)


def test_bounds_that_are_alike_add_up(card: Machine) -> None:
    square, straight = replace(card, copy_knee=2.0), replace(card, copy_knee=1.0, copy_queue=0.0)
    assert k_block(demand(300, 400), square, MANY) == pytest.approx(500, rel=1e-3)
    assert k_block(demand(400, 300), square, MANY) == pytest.approx(500, rel=1e-3)
    # The path's 100, the core's 100, the ring's 920 / 4.
    assert k_block(demand(), straight, 4) == pytest.approx(430, rel=1e-3)
    # Two of 400 are 400 times the knee's root of two.
    for knee in (1.0, 2.0, 4.0, 8.0, SHARP):
        found = k_block(demand(400, 400), replace(card, copy_knee=knee), MANY)
        assert found == pytest.approx(400 * 2 ** (1 / knee), rel=1e-3)
    # A consumer that is alone with its products has a knee of its own.
    lonely = replace(card, copy_knee=2.0, copy_knee_alone=1.0)
    assert k_block(replace(demand(300, 400), alone=True), lonely, MANY) == pytest.approx(700, rel=1e-3)
    assert k_block(demand(300, 400), lonely, MANY) == pytest.approx(500, rel=1e-3)


def test_deeper_rings_are_never_slower(h200: Machine) -> None:
    dice = random.Random(7)
    for _ in range(400):
        ends = {
            "lines": (4e3, 1e5),
            "data": (4e3, 1e5),
            "touched": (4e3, 1e5),
            "gpc": (1e3, 3e4),
            "tensor": (64, 2048),
            "energy": (0, 4e3),
            "between": (0, 500),
        }
        drawn = {name: dice.uniform(*range_) for name, range_ in ends.items()}
        asked = Demand(**drawn, alone=dice.random() < 0.5)
        loops = [steady_loop(asked, h200, slots) for slots in range(1, 16)]
        for shallow, deep in itertools.pairwise(loops):
            assert deep.k_block <= shallow.k_block
            assert deep.clock_mhz <= shallow.clock_mhz
            # The clock that is lost is not worth more than the cycles: time falls too.
            assert deep.k_block / deep.clock_mhz <= shallow.k_block / shallow.clock_mhz
        assert loops[0].k_block > 1.2 * loops[-1].k_block or asked.lines > 5e4


# --- the clock ----------------------------------------------------------------------------------------


def test_the_clock_of_a_loop_that_never_waits(card: Machine) -> None:
    # 400 cycles of four times the energy: half of the clock at which the two are equal.
    hot = replace(card, power_clock_mhz=1600.0)
    asked = demand(path=1, tensor=400, energy=1600)
    assert steady_loop(asked, hot, MANY).clock_mhz == pytest.approx(800, abs=0.3)
    # The SM by itself as much again: 1600 / sqrt(4 + 5).
    idle = steady_loop(asked, replace(hot, power_idle=5.0), MANY)
    assert idle.clock_mhz == pytest.approx(1600 / 3, abs=0.3)
    # As many cycles outside the loop: 1000 / sqrt(2).
    resting = steady_loop(replace(asked, between=400), replace(hot, power_clock_mhz=1000.0), MANY)
    assert resting.clock_mhz == pytest.approx(1000 / 2**0.5, abs=0.3)
    assert idle.k_block == resting.k_block == 400


def test_the_clock_is_the_sustained_one_at_most(card: Machine) -> None:
    cool = replace(card, power_clock_mhz=2100.0)
    assert steady_loop(demand(tensor=400, energy=1600), cool, MANY).clock_mhz == 1000


def test_the_path_does_not_go_with_the_clock(card: Machine) -> None:
    # 1000 cycles of 1000 MHz are f of f MHz, and f = 1500 * sqrt(f / 4000) where f = 1500^2 / 4000.
    hot = replace(card, power_clock_mhz=1500.0)
    found = steady_loop(demand(path=1000, tensor=1, energy=4000), hot, MANY)
    # A path is held for whole cycles.
    assert found.clock_mhz == pytest.approx(562.5, abs=1)
    assert found.k_block == pytest.approx(found.clock_mhz, abs=1)


# --- what a K-block asks for -----------------------------------------------------------------------------


def test_what_a_k_block_asks_for(card: Machine) -> None:
    found = k_block_demand(plain(4096, 4096, 1024), CUT, card)
    # Three tiles of two consumers: 256 rows of 128 bytes. Two products of 64 * 128 * 64 / 2048 cycles.
    assert (found.lines, found.tensor, found.energy) == (256 * 128, 512, 512)
    assert (
        k_block_demand(plain(4096, 4096, 1024), replace(CUT, sharing=Sharing.PING_PONG), card).tensor == 256
    )
    assert path_cycles(found, card, 1000.0) == 512
    assert path_cycles(found, card, 500.0) == 256
    assert not found.alone
    lone = (replace(CUT, sharing=Sharing.PING_PONG), replace(CUT, consumers=1))
    assert all(k_block_demand(plain(4096, 4096, 1024), cut, card).alone for cut in lone)


def test_what_a_k_block_takes_of_the_power(card: Machine) -> None:
    region = plain(4096, 4096, 1024)
    counted = {"shared_byte": 2 * (64 + 128) * 128, "l2_byte": 256 * 128, "gpc_byte": 8 * 16384 // 16}
    for name, nbytes in counted.items():
        hot = replace(card, **{f"power_cycles_per_{name}": 0.01})
        assert k_block_demand(region, CUT, hot).energy == pytest.approx(512 + 0.01 * nbytes)
    # A type whose products take half as much again: of 512 cycles of the tensor core.
    warm = replace(card, power_tensor={"f16": 1.5})
    assert k_block_demand(region, CUT, warm).energy == 512
    assert k_block_demand(plain(4096, 4096, 1024, "f16"), CUT, warm).energy == 768
    # What device memory takes is the kernel's, not a K-block's.
    assert k_block_demand(region, CUT, replace(card, power_cycles_per_dram_byte=0.01)).energy == 512


@pytest.mark.parametrize(
    ("group", "tiles"),
    # 16 SMs take `group` tiles high and 16 / group wide: so many tiles of 16 KiB for all of them.
    [(1, 1 + 16), (2, 2 + 8), (4, 4 + 4), (8, 8 + 2), (16, 16 + 1)],
)
def test_what_a_gpc_fetches_goes_with_the_group(card: Machine, group: int, tiles: int) -> None:
    cut = replace(CUT, group=group)
    found = k_block_demand(plain(4096, 132 * 128, 1024), cut, card)
    assert found.gpc == tiles * 16384 / 16
    # 32 bytes a cycle, against 512 cycles for the SM's own lines; then 8 bytes a cycle.
    assert path_cycles(found, card, 1000.0) == max(512, tiles * 32)
    narrow = replace(card, l2_distinct_bandwidth=0.8e12)
    assert path_cycles(found, narrow, 1000.0) == tiles * 128
    assert steady_loop(found, narrow, MANY).k_block == pytest.approx(max(512, tiles * 128), rel=1e-3)


def test_columns_that_several_gpcs_ask_for_come_once(card: Machine) -> None:
    # 25 tiles of columns, so that 100 SMs take 4 tiles of rows at once: 4 GPCs ask for the same 16 tiles.
    few, alone = plain(4096, 25 * 128, 1024), replace(CUT, group=1)
    assert k_block_demand(few, alone, card).gpc == (1 + 16 / 4) * 16384 / 16
    # All of it takes power.
    hot = replace(card, power_cycles_per_gpc_byte=0.01)
    extra = k_block_demand(few, alone, hot).energy - k_block_demand(few, alone, card).energy
    assert extra == pytest.approx(0.01 * (1 + 16) * 16384 / 16)
    # One group that is taken alone has its columns to itself.
    assert k_block_demand(plain(128, 25 * 128, 1024), alone, card).gpc == (1 + 16) * 16384 / 16


def test_a_group_is_no_higher_than_the_rows_are(card: Machine) -> None:
    # Two tiles of rows: groups of 16 are two high and eight wide.
    region = plain(256, 4096, 1024)
    assert k_block_demand(region, replace(CUT, group=16), card).gpc == (2 + 8) * 16384 / 16


@pytest.mark.parametrize(
    ("pitch", "touched", "split"),
    # Rows of 128 bytes begin in every 16th, 32th, 64th byte of a line; where they begin within a sector of
    # 32 bytes a line costs L2 half as much again, and the SM that copies it no more than another.
    [
        (1024, 1, 1),
        (1040, 2 - 1 / 8, 1.5),
        (1056, 2 - 1 / 4, 1),
        (1072, 2 - 1 / 8, 1.5),
        (1088, 2 - 1 / 2, 1),
    ],
)
def test_rows_that_begin_within_a_line(card: Machine, pitch: int, touched: float, split: float) -> None:
    lines = touched * split
    assert costs.copy_lines(Copy(64, 128, pitch), card) == 64 * 128 * lines
    # A row of two swizzles is copied in two pieces, each of which begins where the row does.
    assert costs.copy_lines(Copy(64, 256, pitch), card) == 2 * 64 * 128 * lines
    found = k_block_demand(plain(4096, 4096, pitch // 2), CUT, card)
    assert found.lines == 256 * 128 * lines
    assert found.touched == 256 * 128 * touched
    assert found.gpc == 8 * 16384 * touched / 16


def test_half_a_line_that_begins_within_a_sector(card: Machine) -> None:
    assert costs.copy_lines(Copy(64, 64, 1040), card) == 64 * 128 * (1.5 - 1 / 8) * 1.5
    assert costs.copy_lines(Copy(64, 64, 1088), card) == 64 * 128
    whole = replace(card, l2_sector_bytes=16)
    assert costs.copy_lines(Copy(64, 64, 1040), whole) == 64 * 128 * (1.5 - 1 / 8)


def test_cycles_between_loops(card: Machine) -> None:
    region = plain(4096, 4096, 1024)
    each = lower(region, CUT, card).epilogue.together
    # 32 x 32 tiles on 100 SMs are 11 waves of 16 K-blocks; a block starts, fills and drains in 2600 cycles.
    assert k_block_demand(region, CUT, card).between == pytest.approx((2600 + 11 * each) / 176)
    once = k_block_demand(region, replace(CUT, persistent=False), card).between
    assert once == pytest.approx((2600 + 800 + each) / 16)
    # Consumers in ping-pong hide the epilogue; 64 x 32 tiles are 21 waves.
    ping_pong = k_block_demand(region, replace(CUT, sharing=Sharing.PING_PONG), card).between
    assert ping_pong == pytest.approx(2600 / (21 * 16))


def test_slots_that_fit_a_block(card: Machine) -> None:
    region = plain(4096, 4096, 1024)

    def slots(card: Machine) -> int:
        return ring_slots(lower(region, CUT, card), card)

    # Slots of 32 KiB beside two tiles of 16 KiB on their way out, and the reserved KiB: 6 of 227 KiB.
    assert slots(card) == 6
    room = 3 * 32768 + 2 * 16384 + 1024
    assert slots(replace(card, shared_memory_per_block_bytes=room)) == 3
    assert slots(replace(card, shared_memory_per_block_bytes=room - 1)) == 2
    assert slots(replace(card, shared_memory_per_block_bytes=1024)) == 1


# --- an iteration -------------------------------------------------------------------------------------


def cut_to(card: Machine, copies: int) -> TileProgram:
    s = replace(CUT, columns=64, consumers=1, copies=copies)
    return lower(plain(4096, 4096, 1024, "f8e4m3"), s, card)


def test_an_iteration_has_all_its_k_blocks(card: Machine) -> None:
    one, two = cut_to(card, 1), cut_to(card, 2)
    # Rows of 64 bytes are half a line each: 128 lines hold the path for 256 cycles.
    assert effective_ii(one, card, MANY) == pytest.approx(256, abs=1)
    assert effective_ii(two, card, MANY) == pytest.approx(512, abs=2)
    # Their bytes come to one SM alone in half of that.
    life = 500 + 128 + 64 * 64 * 64 // 4096 + 220
    free = replace(card, copy_queue=0.0)
    assert effective_ii(one, free, 2) == pytest.approx(life / 2, abs=1)
    assert effective_ii(two, free, 2) == pytest.approx(life, abs=1)


def test_loops_that_compute_values_have_no_effective_ii_but_their_contention(h200: Machine) -> None:
    region = find_region(attention())
    program = lower(region, replace(CUT, columns=64, persistent=False, group=1), h200)
    assert program.region.body
    settled = contended_interval(program, h200)
    assert settled > max(held_cycles(program).values()) > 0
    assert [effective_ii(program, h200, slots) for slots in (1, 4)] == [0, 0]
    assert fixed_parts(program, h200).contended == settled
