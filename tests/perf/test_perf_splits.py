"""What split sums cost, against numbers worked out by hand, and what it does to the time of a kernel."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from tile_graphs import gated, plain, region_of

from wsopt.frontend.types import Region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.machine import Machine
from wsopt.perf.epilogue import epilogues
from wsopt.perf.paths import memory_floors_us
from wsopt.perf.price import lower
from wsopt.perf.splits import (
    SplitCost,
    counted_at_once,
    counting_cycles,
    moved_bytes,
    partial_bytes,
    split_cost,
)
from wsopt.perf.timing import fixed_parts
from wsopt.program.facts import Shares
from wsopt.program.program import TileProgram
from wsopt.program.types import Sharing, Structure
from wsopt.schedule.types import EpilogueBuffers

CUT = Structure(64, 64, 64, 2, 4, Sharing.COOPERATIVE, True, False, 1, 1, splits=4)
BUFFERS = EpilogueBuffers(1, 0)


def program(machine: Machine, region: Region | None = None, cut: Structure = CUT) -> TileProgram:
    """128 rows by 64 columns, in four parts of two consumers each."""
    return lower(region or plain(128, 64, 2048), cut, machine)


@pytest.fixture
def card(h200: Machine) -> Machine:
    """A barrier of 20 cycles; 64 bytes a cycle to an SM alone, 32 where all have their share."""
    latency = replace(h200.latency, barrier=20.0)
    share = 32.0 * h200.sm_count * h200.sustained_clock_mhz * 1e6
    return replace(h200, latency=latency, l2_bandwidth=share, tma_bytes_per_cycle=64.0)


def test_a_part_is_the_sums_of_each_product(h200: Machine) -> None:
    assert partial_bytes(program(h200)) == 64 * 64 * 4
    assert partial_bytes(program(h200, gated(128, 64, 2048))) == 2 * 64 * 64 * 4
    assert partial_bytes(program(h200, cut=replace(CUT, splits=1))) == 0
    assert moved_bytes(program(h200)) == 2 * 4 * 2 * 64 * 64 * 4


def test_sums_that_are_not_split_cost_nothing(card: Machine) -> None:
    assert split_cost(program(card, cut=replace(CUT, splits=1)), card) == SplitCost(0, 0)


def test_a_part_goes_to_the_workspace_and_all_come_back(card: Machine) -> None:
    """Two consumers store 32 KiB at 32 bytes a cycle, and arrive two trips of 700 cycles later. Of four parts each
    thread has 4 x 32 elements to ask for, all at once, and the 128 KiB come at 64 bytes a cycle.
    """
    assert split_cost(program(card), card) == SplitCost(1024 + 2 * 700 + 20, 700 + 2048)


def test_more_parts_than_a_thread_has_registers_for_come_in_turns(card: Machine) -> None:
    """Of eight parts there are 8 x 32 elements to ask for, 160 at a time."""
    cost = split_cost(program(card, cut=replace(CUT, splits=8)), card)
    assert cost.all == 2 * 700 + 2 * 2048


def test_the_last_block_of_a_tile_has_all_of_it_and_each_its_share(card: Machine) -> None:
    split, whole = program(card), program(card, cut=replace(CUT, splits=1))
    cost, own = split_cost(split, card), epilogues(whole, card, BUFFERS)
    found = epilogues(split, card, BUFFERS)
    assert found.last == cost.part + cost.all + own.last
    assert found.each == cost.part + -(-(cost.all + own.each) // 4)


def test_parts_go_through_l2_twice(h200: Machine) -> None:
    split, whole = program(h200), program(h200, cut=replace(CUT, splits=1))
    more = memory_floors_us(split, h200)[1] - memory_floors_us(whole, h200)[1]
    assert more == pytest.approx(moved_bytes(split) / h200.l2_bandwidth * 1e6)


def test_parts_that_atomics_add_up_come_back_as_one(card: Machine) -> None:
    """Each part takes the way to L2 for three times its 1,024 cycles; one of them, 32 KiB, comes back at 64 bytes a
    cycle, and its place is left as zeros.
    """
    added = program(card, cut=replace(CUT, atomics=True))
    assert split_cost(added, card) == SplitCost(3 * 1024 + 2 * 700 + 20, 700 + 512)
    assert moved_bytes(added) == (3 * 4 + 2) * 2 * 64 * 64 * 4


def test_device_memory_is_idle_while_parts_come_together(card: Machine) -> None:
    split, whole = program(card), program(card, cut=replace(CUT, splits=1))
    cost, idle = split_cost(split, card), fixed_parts(split, card).idle - fixed_parts(whole, card).idle
    assert idle == pytest.approx(card.seconds(cost.part + cost.all) * 1e6)


def test_parts_come_in_waves(h200: Machine) -> None:
    many = plain(128 * 66, 64, 2048)
    assert fixed_parts(program(h200, many, replace(CUT, splits=2)), h200).waves == 1
    assert fixed_parts(program(h200, many, replace(CUT, splits=3)), h200).waves == 2


# --- equal shares -----------------------------------------------------------------------------------------

SHARED = Structure(64, 64, 64, 1, 4, Sharing.COOPERATIVE, True, False, 1, 1, shares=True)


def attending(batches: int, keys: int) -> Region:
    """Eight queries on so many keys of each batch element, up to as many as `n` says."""

    def body(g: GraphBuilder) -> Symbol:
        q, n = g.input("q", (batches, 8, 64), "bf16"), g.input("n", (batches,), "i32")
        k, v = (g.input(name, (batches, keys, 64), "bf16") for name in "kv")
        seen = g.iota(shape=(1, keys), axis=1) < g.reshape(n, shape=(batches, 1, 1))
        scores = g.where(seen, g.matmul(q, k, transpose_b=True), -math.inf)
        return g.cast(g.matmul(g.cast(g.softmax(scores), dtype="bf16"), v), dtype="bf16", name="o")

    return region_of(body)


def test_a_share_has_a_wave_and_its_part_of_all_k_blocks(h200: Machine) -> None:
    shared = program(h200, attending(200, 8192), SHARED)
    whole = program(h200, attending(200, 8192), replace(SHARED, shares=False))
    assert shared.work is not None
    assert whole.work is not None
    assert fixed_parts(shared, h200).waves == 1
    assert fixed_parts(whole, h200).waves == 2
    mean = 200 * 128 / 2 / h200.sm_count
    assert shared.work.k_iterations == pytest.approx(mean, rel=0.02)
    assert whole.work.k_iterations > 1.2 * mean


def test_finding_a_share_takes_two_trips_for_some_tiles_each(h200: Machine) -> None:
    """200 tiles are counted at once, of 300 the last 44 on their own: a trip and a running sum, and once more."""
    few, many = (program(h200, attending(batches, 8192), SHARED) for batches in (200, 300))
    assert (counted_at_once(few), counted_at_once(many)) == (256, 256)
    assert (counting_cycles(few), counting_cycles(many)) == (2 * 1100, 4 * 1100)
    assert counting_cycles(program(h200)) == 0


def test_a_consumer_arrives_with_each_of_its_parts(card: Machine) -> None:
    """Eight rows of 64 columns are 2 KiB at 32 bytes a cycle; then two trips and a barrier. Who ends a tile has a
    trip for the maxima of all parts of eight rows, one for their sums, one for the epilogue's reads, and their bytes
    at 64 a cycle.
    """
    shared = program(card, attending(200, 8192), SHARED)
    assert shared.shares is not None
    cost, most = split_cost(shared, card), shared.shares.most
    assert cost.part == 64 + 2 * 700 + 20
    assert cost.all == 3 * 700 + most * 32


def test_a_block_pays_for_two_parts_at_most(card: Machine) -> None:
    shared = program(card, attending(200, 8192), SHARED)
    assert shared.shares is not None
    cost, tiles = split_cost(shared, card), shared.shares.tiles
    own = epilogues(program(card, attending(200, 8192), replace(SHARED, shares=False)), card, BUFFERS)
    assert tiles > 2
    found = epilogues(shared, card, BUFFERS)
    assert found.each == -(-((tiles - 2) * own.each + 2 * cost.part + cost.all + own.last) // tiles)


def test_only_what_is_left_for_others_goes_through_the_workspace(h200: Machine) -> None:
    shared = program(h200, attending(200, 8192), SHARED)
    assert shared.shares is not None
    assert 0 < shared.shares.parts <= 2 * h200.sm_count
    assert moved_bytes(shared) == 2 * shared.shares.parts * 8 * 64 * 4


def test_products_share_what_whole_waves_leave(h200: Machine) -> None:
    """Of 264 + 33 tiles a block has two whole ones, and a quarter of another; 32 iterations and a quarter of them."""
    shared = program(h200, plain(297 * 64, 64, 32 * 64), SHARED)
    assert shared.shares == Shares(3, 2 * 32 + 8, 132, 4, pytest.approx(8 / 72))
    assert fixed_parts(shared, h200).waves == 1


def test_products_pay_for_arriving_at_once_and_for_one_end(card: Machine) -> None:
    """Two whole tiles and a part: two epilogues, and behind the last products the part's way, all parts' and one."""
    shared = program(card, plain(297 * 64, 64, 32 * 64), SHARED)
    cost, own = split_cost(shared, card), epilogues(replace(shared, shares=None), card, BUFFERS)
    found = epilogues(shared, card, BUFFERS)
    whole = epilogues(
        program(card, plain(297 * 64, 64, 32 * 64), replace(SHARED, shares=False)), card, BUFFERS
    )
    assert own.last > whole.last
    assert found.last == cost.part + cost.all + whole.last
    assert found.each == -(-(whole.each + cost.part) // 2)


def test_tiles_that_are_cut_are_read_again(h200: Machine) -> None:
    """Of operands beyond half of L2, in the share of a block's iterations that is of such tiles."""
    region = plain(34 * 64, 4096, 32768)
    cut = replace(SHARED, columns=128, consumers=1)
    shared, whole = program(h200, region, cut), program(h200, region, replace(cut, shares=False))
    assert shared.shares is not None
    again = shared.dram_bytes - whole.dram_bytes
    assert again > 0
    assert shared.demand is not None
    assert whole.demand is not None
    assert shared.demand.gpc > whole.demand.gpc
