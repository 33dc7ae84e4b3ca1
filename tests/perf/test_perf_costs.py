"""Costs of tile operations against numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import pytest
from tile_graphs import plain, product, region_of

from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.types import DType
from wsopt.lowering.phases import element_mix
from wsopt.machine import InstructionMix, Machine
from wsopt.perf import costs, demand
from wsopt.perf.copies import memory_cycles
from wsopt.perf.price import lower
from wsopt.program.facts import Arithmetic, Copy, Counts, Product, RowReduction, Store, TileGrid
from wsopt.program.ids import Unit
from wsopt.program.program import TileProgram
from wsopt.program.types import Sharing, Structure
from wsopt.tensors.views import FULL

CUT = Structure(64, 128, 64, 2, 4, Sharing.COOPERATIVE, True, False, 1, 4)
MIB = 2**20


@pytest.fixture(scope="module")
def card(h200: Machine) -> Machine:
    """100 SMs at 1000 MHz that take 64 bytes a cycle each from an L2 of 64 MiB, half of it if no other reads them."""
    return replace(
        h200,
        sm_count=100,
        sustained_clock_mhz=1000.0,
        l2_bandwidth=6.4e12,
        l2_distinct_bandwidth=3.2e12,
        l2_bytes=64 * MIB,
        sms_per_gpc=16,
    )


def test_rows_that_threads_exchange_beyond_two_are_instructions(h200: Machine) -> None:
    def cycles(one: RowReduction) -> int:
        return costs.cost(Arithmetic(InstructionMix(), 0, 0, 0, (one,)), h200).issue

    two, eight = (cycles(RowReduction("max", 8, rows=rows)) for rows in (2, 8))
    assert eight - two == pytest.approx(6 * 128 * 3 / h200.scalar_alone["shuffle"], abs=1)
    apart = [cycles(RowReduction("max", 8, 4, rows=rows)) for rows in (4, 5, 8)]
    trip = 2 * h200.latency.barrier + h200.latency.smem_store + h200.latency.smem_load
    trip += 2 * h200.latency.shuffle
    one_more = 128 * 3 / h200.scalar_alone["shuffle"]
    assert apart[1] - apart[0] == pytest.approx(trip + one_more, abs=1)
    assert apart[2] - apart[1] == pytest.approx(3 * one_more, abs=1)


def test_a_store_waits_at_its_fence_in_one_of_two_passes(h200: Machine) -> None:
    one, two = (costs.cost(Store(1, 4096, 4096, 4, passes=passes), h200).issue for passes in (1, 2))
    latency = h200.latency
    fixed = 2 * latency.barrier + latency.smem_store + latency.fence_behind_stores
    assert one - two == pytest.approx(fixed / 2, abs=1)


def test_short_pieces_take_device_memory_longer(h200: Machine) -> None:
    """As measured, of copies and stores alike: 64 bytes as whole rows, 32 a quarter more, 16 some four times."""
    whole = 1 << 20
    longer, stored = (
        {piece: memory_cycles(whole, 132, h200, piece=piece, written=written) for piece in (0, 16, 32, 64)}
        for written in (False, True)
    )
    factors = {piece: cycles / longer[0] for piece, cycles in longer.items()}
    assert factors[64] == pytest.approx(1.0, abs=0.02)
    assert 1.2 < factors[32] < 1.3
    assert 3.9 < factors[16] < 5

    def held(counts: Copy | Store) -> int:
        return dict(costs.cost(counts, h200).pipes)[Unit.MEMORY]

    copies = (Copy(64, 32, 4096, whole, 132, lines=lines) for lines in (True, False))
    stores = (Store(1, 4096, whole, 132, piece=piece) for piece in (32, 0))
    assert [held(one) for one in (*copies, *stores)] == [longer[32], longer[0], stored[32], stored[0]]
    assert stored[0] > longer[0], "reads alone are faster than a copy"


def test_a_lone_warp_hides_little_of_one_pipe_behind_another(h200: Machine) -> None:
    work = Arithmetic(InstructionMix({"fma": 1, "max": 1}), 8192, 0, 0, ())
    several, lone = (costs.cost(replace(work, lone=lone), h200).issue for lone in (False, True))
    each = [8192 / h200.scalar_alone[kind] for kind in ("fma", "max")]
    issued = 2 * 8192 / 128
    assert several == pytest.approx(max(*each, issued), abs=1)
    assert lone == pytest.approx((each[0] ** 2 + each[1] ** 2 + issued**2) ** 0.5, abs=1)


def in_order(
    counted: Callable[[TileProgram, TileGrid, Machine], int], program: TileProgram, card: Machine
) -> int:
    """What is counted of a program in the order of its own grid."""
    return counted(program, program.grid, card)


def product_of(dtype: DType, s: Structure) -> Product:
    """A product of one consumer's rows, all columns, one K-block."""
    return Product(s.rows, s.columns, s.depth, dtype, s.consumer_warps)


def issued(dtype: DType, s: Structure, card: Machine) -> int:
    return costs.instructions(product_of(dtype, s), card)


def test_products_take_their_multiply_adds(card: Machine) -> None:
    assert costs.mma_cycles(product_of(DType.BF16, CUT), card) == 64 * 128 * 64 // 2048
    assert costs.mma_cycles(product_of(DType.F8E4M3, CUT), card) == 64 * 128 * 64 // 4096
    both = replace(CUT, rows=128, consumers=1, consumer_warps=8)
    slower = replace(card, joint_warpgroups_loss=0.5)
    assert costs.mma_cycles(product_of(DType.BF16, both), slower) == 2 * 128 * 128 * 64 // 2048


def test_every_count_has_a_cost() -> None:
    for counts in get_args(Counts):
        assert costs.cost.dispatch(counts) is not costs.cost.dispatch(object), counts


def test_a_product_is_issued_by_instructions_of_32_bytes(card: Machine) -> None:
    assert issued(DType.BF16, CUT, card) == 64 * 2 // 32
    assert issued(DType.BF16, replace(CUT, rows=128), card) == 2 * 64 * 2 // 32
    assert issued(DType.F8E4M3, CUT, card) == 64 // 32


def test_copies_share_the_path_from_l2(card: Machine) -> None:
    assert costs.load_cycles(64 * 1000, card) == 1000
    assert costs.load_cycles(64 * 1000 + 1, card) == 1001
    # The path does not go with the SMs' clock: at half of it the same bytes take half of the cycles.
    assert costs.load_cycles(64 * 1000, card, 500.0) == 500
    assert costs.load_cycles(32 * 1000, card, 1000.0, distinct=True) == 1000
    assert costs.load_cycles(32 * 1000, card, 250.0, distinct=True) == 250


def test_rows_of_a_box_touch_whole_lines(card: Machine) -> None:
    assert costs.copy_lines(Copy(64, 128, 1024), card) == 64 * 128
    assert costs.copy_lines(Copy(64, 64, 1024), card) == 64 * 128  # half a line costs one
    assert costs.copy_lines(Copy(64, 256, 1024), card) == 64 * 256


def test_few_columns_of_tiles_are_taken_together(card: Machine) -> None:
    region = plain(8192, 1024, 1024)
    # Eight columns of tiles: 100 SMs are in three groups of four rows at once.
    assert demand.rows_at_once(lower(region, CUT, card).grid, card.sm_count) == 12
    assert demand.rows_at_once(lower(region, replace(CUT, group=16), card).grid, card.sm_count) == 16


def test_operands_that_l2_keeps_are_read_once(card: Machine) -> None:
    region = plain(4096, 4096, 1024)
    assert (
        in_order(demand.dram_bytes, lower(region, CUT, card), card)
        == region.compulsory_bytes
        == (8 + 8 + 32) * MIB
    )


def test_operands_that_l2_loses_are_read_for_every_group(card: Machine) -> None:
    region = plain(4096, 8192, 4096)
    # w of 64 MiB is more than half of L2; x of 32 MiB is not. 32 tiles of rows in groups of 4 are 8 groups.
    assert region.compulsory_bytes == (32 + 64 + 64) * MIB
    assert (
        in_order(demand.dram_bytes, lower(region, CUT, card), card) == region.compulsory_bytes + 7 * 64 * MIB
    )
    assert (
        in_order(demand.dram_bytes, lower(region, replace(CUT, group=16), card), card)
        == region.compulsory_bytes + 64 * MIB
    )


def test_neighbours_share_what_they_read(card: Machine) -> None:
    region = plain(4096, 4096, 1024)
    x, w = 128 * 64 * 2, 128 * 64 * 2
    # 16 SMs take 4 tiles high and 4 wide: each row and each column of tiles is read once by all.
    assert in_order(demand.gpc_bytes, lower(region, CUT, card), card) == (4 * x + 4 * w) // 16
    assert in_order(demand.gpc_bytes, lower(region, replace(CUT, group=1), card), card) == (x + 16 * w) // 16


def test_the_epilogue_counts_what_spans_the_tile(card: Machine) -> None:
    def body(g: GraphBuilder) -> Symbol:
        scale = g.exp(g.input("s", (256, 1), "f32"))  # of a row: too few to count
        return g.cast(g.relu(product(g) * scale) + 1.0, dtype="bf16", name="y")

    mix = element_mix(region_of(body).statements, FULL)
    assert mix == InstructionMix({"mul": 1, "max": 1, "add": 1, "convert": 0.5})


def test_more_epilogue_takes_longer(card: Machine) -> None:
    plain_cost = lower(plain(256, 512, 128), CUT, card).epilogue
    gelu = region_of(lambda g: g.cast(g.gelu(product(g)), dtype="bf16", name="y"))
    gelu_cost = lower(gelu, CUT, card).epilogue
    assert gelu_cost.alone > plain_cost.alone
    assert gelu_cost.together > gelu_cost.alone
    ping_pong = lower(gelu, replace(CUT, sharing=Sharing.PING_PONG), card).epilogue
    assert ping_pong.together == ping_pong.alone
