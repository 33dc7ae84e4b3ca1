"""Cycles of a tile where an SM has several blocks of one tile each, against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
from tile_graphs import region_of

from wsopt.frontend.types import Region
from wsopt.lowering.resident import resident_structures
from wsopt.machine import Machine
from wsopt.perf.contention import held_cycles
from wsopt.perf.instructions import tile_instructions
from wsopt.perf.price import lower
from wsopt.perf.side_by_side import dispatched, held_by_blocks
from wsopt.program.types import Sharing, Structure
from wsopt.solve.search import live_set


@pytest.fixture(scope="module")
def gelu() -> Region:
    return region_of(lambda g: g.cast(g.gelu(g.input("x", (8192, 8192), "bf16")), dtype="bf16", name="y"))


def of_blocks(columns: int, warps: int, elements: int, blocks: int) -> Structure:
    """A tile of so many columns, and of so many elements a thread."""
    rows = warps * 32 * elements // columns
    return Structure(
        rows, columns, 1, 1, warps, Sharing.COOPERATIVE, persistent=False, swap=False, subtiles=1, group=1,
        occupancy=blocks,
    )  # fmt: skip


def test_blocks_meet_in_units_and_schedulers(gelu: Region, h200: Machine) -> None:
    program = lower(gelu, of_blocks(2048, 2, 32, 12), h200)
    # Six warps a scheduler, of which each has 40 instructions more than its elements' and its tile's.
    issued = (tile_instructions(program, h200) + 40 * 64) / 128 * (1 + 4 / 6**2)
    units = [*held_cycles(program).values(), issued]
    norm = sum(cycles**10 for cycles in units) ** (1 / 10)
    assert held_by_blocks(program, h200) == pytest.approx(norm * (1 + 0.1 / 12 + 0.0003 * (32 - 16)))
    assert issued > 0.8 * max(held_cycles(program).values())


def test_few_warps_and_few_elements_a_thread_are_slower(gelu: Region, h200: Machine) -> None:
    def cycles(warps: int, elements: int, blocks: int) -> float:
        """Of as many elements each."""
        program = lower(gelu, of_blocks(512, warps, elements, blocks), h200)
        return held_by_blocks(program, h200) / (warps * elements)

    assert cycles(2, 64, 12) < cycles(2, 64, 8)
    assert cycles(2, 32, 16) < cycles(2, 16, 16) < cycles(2, 8, 16)


def test_many_elements_a_thread_come_in_bursts(h200: Machine) -> None:
    """Where memory binds: a cast, tiles of 2,048 elements by more warps or fewer, 32 of which an SM has."""
    cast = region_of(lambda g: g.cast(g.input("x", (8192, 4096), "f32"), dtype="f16", name="y"))

    def cycles(warps: int, elements: int) -> float:
        return held_by_blocks(lower(cast, of_blocks(2048, warps, elements, 8), h200), h200)

    assert cycles(8, 8) < cycles(4, 16) < cycles(2, 32) < 1.02 * cycles(8, 8)


def test_the_hardware_deals_out_blocks_one_by_one(gelu: Region, h200: Machine) -> None:
    program = lower(gelu, of_blocks(512, 1, 16, 32), h200)
    assert dispatched(program, h200) == pytest.approx(2.12 * 132)
    assert dispatched(program, h200) > held_by_blocks(program, h200)


def test_elements_alone_may_have_24_warps_an_sm(gelu: Region, h200: Machine) -> None:
    norm = region_of(
        lambda g: g.cast(g.softmax(g.input("x", (8192, 1024), "bf16"), axis=-1), dtype="bf16", name="y")
    )
    warps = [
        {s.consumer_warps * s.occupancy for s in resident_structures(region, h200)} for region in (gelu, norm)
    ]
    assert warps == [{16, 24, 32, 48}, {16, 32, 48}]


def test_tiles_of_one_size_spill_alike(gelu: Region, h200: Machine) -> None:
    def key(*shape: int) -> Structure:
        return live_set(lower(gelu, of_blocks(*shape), h200))

    assert key(512, 2, 32, 16) == key(2048, 2, 32, 16)
    assert len({key(512, 2, 32, 16), key(512, 2, 32, 12), key(512, 2, 64, 16), key(512, 4, 32, 8)}) == 4
    assert math.prod((key(512, 2, 32, 16).rows, key(512, 2, 32, 16).columns)) == 2048
