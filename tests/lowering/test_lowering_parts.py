"""Extents that are sums of powers of two: which there are, and what tiles of them take."""

from __future__ import annotations

from dataclasses import replace

import attention_graphs as a
import pytest
from attention_graphs import Sizes

from wsopt.frontend.region import find_region
from wsopt.frontend.types import Region
from wsopt.graph.types import DType
from wsopt.lowering.structures import structures
from wsopt.machine import Machine
from wsopt.perf import costs
from wsopt.perf.contention import iteration_energy
from wsopt.perf.price import lower
from wsopt.program.facts import Copy, Product
from wsopt.program.ids import OpKind
from wsopt.program.program import TileProgram
from wsopt.program.types import Sharing, Structure
from wsopt.schedule.budget import buffer_options
from wsopt.tensors.parts import MOST_PARTS, Part, parts, summed

CUT = Structure(64, 96, 64, 2, 4, Sharing.COOPERATIVE, True, False, 3, 1)


def attention(inner: int, column: int) -> Region:
    return find_region(a.attention(a.causal, Sizes(1, 2, 512, 512, inner, column)))


def programs(inner: int, columns: int, h200: Machine) -> TileProgram:
    subtiles = columns // 32
    return lower(attention(inner, columns), replace(CUT, columns=columns, subtiles=subtiles), h200)


# --- extents --------------------------------------------------------------------------------------------


def test_parts_are_powers_of_two_side_by_side() -> None:
    assert parts(128) == (Part(0, 128),)
    assert parts(96) == (Part(0, 64), Part(64, 32))
    assert parts(224) == (Part(0, 128), Part(128, 64), Part(192, 32))


@pytest.mark.parametrize("least", [16, 32])
def test_an_extent_is_filled_up_to_the_nearest_sum(least: int) -> None:
    sums = [n for n in range(least, 1025, least) if n.bit_count() <= MOST_PARTS]
    for extent in range(1, 1025):
        assert summed(extent, least) == next(n for n in sums if n >= extent)


def test_few_parts_are_taken() -> None:
    assert [summed(extent, 16) for extent in (8, 72, 88, 112, 240)] == [16, 80, 96, 112, 256]


# --- structures -----------------------------------------------------------------------------------------


def test_heads_are_held_whole_in_parts_or_padded(h200: Machine) -> None:
    def cuts(column: int) -> set[tuple[int, int]]:
        return {(s.columns, s.subtiles) for s in structures(attention(64, column), h200)}

    assert cuts(128) == {(128, 1), (128, 2), (128, 4)}
    assert cuts(96) == cuts(80) == {(96, 3), (128, 1), (128, 2), (128, 4)}
    assert cuts(160) == {(160, 5), (256, 1), (256, 2), (256, 4)}
    assert cuts(192) == {(192, 3), (192, 6), (256, 1), (256, 2), (256, 4)}


def test_inputs_have_buffers_for_whole_rounds_of_subtiles(h200: Machine) -> None:
    gated = find_region(a.gated_output(Sizes(1, 2, 512, 512, 96, 96)))
    for subtiles, inputs in ((3, {1, 3}), (6, {1, 2, 3, 6})):
        s = replace(CUT, columns=32 * subtiles, subtiles=subtiles)
        assert {options.inputs for options in buffer_options(lower(gated, s, h200))} == inputs


# --- what tiles take ------------------------------------------------------------------------------------


def test_tiles_take_what_their_elements_take(h200: Machine) -> None:
    p = programs(96, 96, h200)
    assert [plan.slot_bytes for plan in p.rings] == [64 * 96 * 2, 64 * 96 * 2]
    assert p.stationary_bytes == 2 * 64 * 96 * 2
    narrow, wide = programs(64, 64, h200), programs(128, 128, h200)
    assert p.accumulator_registers - narrow.accumulator_registers == 64 * 32 // 128
    assert wide.accumulator_registers - p.accumulator_registers == 64 * 32 // 128


def test_a_product_of_64_and_32_costs_less_than_one_of_128(h200: Machine) -> None:
    narrow, p, wide = (programs(n, n, h200) for n in (64, 96, 128))
    for one, other, more in zip(*(each.of(OpKind.MMA) for each in (narrow, p, wide)), strict=True):
        assert one.busy < other.busy < more.busy
        assert other.busy == (one.busy + more.busy) / 2
    assert p.epilogue.alone < wide.epilogue.alone
    assert iteration_energy(narrow, h200) < iteration_energy(p, h200) < iteration_energy(wide, h200)


def test_a_narrow_part_takes_what_its_instructions_take_at_least(h200: Machine) -> None:
    product = Product(64, 80, 64, DType.BF16, 4, 0, registers=True)
    slow = replace(h200, mma_least_cycles_registers=13.0)
    cycles = 64 * 64 * 16 // 2048 + 13  # of 16 columns an instruction takes 8 cycles, were there no least
    assert costs.cost(product, slow).busy == 4 * cycles
    assert costs.instructions(product, slow) == 2 * costs.instructions(replace(product, columns=64), slow)


def test_what_a_product_contracts_is_one_chain(h200: Machine) -> None:
    product = Product(64, 64, 96, DType.BF16, 4)
    assert costs.instructions(product, h200) == 96 * 2 // h200.mma_k_bytes
    assert costs.cost(product, h200).busy == 96 // 32 * costs.cost(replace(product, deep=32), h200).busy


def test_a_copy_of_two_boxes_touches_the_lines_of_both(h200: Machine) -> None:
    both, first, second = (costs.copy_lines(Copy(64, width, 1024), h200) for width in (384, 256, 128))
    assert both == first + second


def test_every_other_tile_of_one_and_a_half_lines_begins_within_one(h200: Machine) -> None:
    """The first box of every other tile then touches a line more, and the second, of half a line, still one."""
    both, first, second = (costs.copy_lines(Copy(64, width, 1024), h200) for width in (192, 128, 64))
    assert both == first + second + 64 * h200.l2_line_bytes / 2


def test_less_is_loaded_for_a_head_of_96(h200: Machine) -> None:
    assert programs(96, 96, h200).tile_l2_bytes * 4 == programs(128, 128, h200).tile_l2_bytes * 3
