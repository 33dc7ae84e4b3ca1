"""Splits of a tile's sums over blocks: where there are any, how many, and what a part of a tile is."""

from __future__ import annotations

import math

import pytest
from tile_graphs import plain, product, region_of

from wsopt.frontend.types import Region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.lowering.structures import structures
from wsopt.machine import Machine, load_machine
from wsopt.perf.price import lower
from wsopt.program.types import Structure
from wsopt.tensors.views import Role

TILE = (64, 64, 64)
"""Rows, columns and depth of the tiles that are looked at, of one consumer."""


def splits(region: Region, machine: Machine, tile: tuple[int, int, int] = TILE) -> set[int]:
    """The splits of structures with such a tile, of blocks that have an SM each."""
    return {s.splits for s in cut(region, machine, tile) if not s.occupancy}


def cut(region: Region, machine: Machine, tile: tuple[int, int, int] = TILE) -> list[Structure]:
    """The structures with such a tile of one consumer."""
    found = structures(region, machine)
    return [s for s in found if (s.rows, s.columns, s.depth) == tile and s.consumers == 1]


def test_as_many_tiles_as_two_waves_have_are_not_split(h200: Machine) -> None:
    rows = 64 * h200.sm_count
    assert splits(plain(2 * rows, 64, 4096), h200) == {1}


def test_one_tile_is_split_until_parts_have_two_iterations(h200: Machine) -> None:
    assert splits(plain(64, 64, 16 * 64), h200) == {1, 2, 3, 4, 6, 8}


def test_a_short_loop_is_not_split(h200: Machine) -> None:
    assert splits(plain(64, 64, 15 * 64), h200) == {1}


def test_a_split_leaves_the_busiest_sm_a_tenth_less_than_fewer_parts(h200: Machine) -> None:
    """66 tiles are half a wave: 2 parts each fill it, 3 take two waves of thirds, which is worse than 2 halves."""
    assert h200.sm_count == 132
    assert splits(plain(66 * 64, 64, 4096), h200) == {1, 2}
    # Of 90 tiles two parts each are two waves; three are three thirds, nothing gained; 4 are 3 quarters.
    assert splits(plain(90 * 64, 64, 4096), h200) == {1, 4}


def test_blocks_of_one_tile_have_whole_tiles(h200: Machine) -> None:
    assert all(s.persistent for s in cut(plain(64, 64, 4096), h200) if s.splits > 1)


def test_parts_have_no_short_last_k_block(h200: Machine) -> None:
    found = cut(plain(64, 64, 16 * 64 + 8), h200)
    assert {s.tail for s in found if not s.parted} == {16}
    assert {s.tail for s in found if s.splits > 1} == {0}
    assert {s.tail for s in found if s.shares} == {0}


def normalized(m: int, n: int, k: int) -> Region:
    def body(g: GraphBuilder) -> Symbol:
        x = g.input("x", (m, k), "bf16")
        scale = g.rsqrt(g.reduce_mean(x * x, axis=1, keepdims=True))
        h = g.cast(x * scale, dtype="bf16")
        return g.cast(g.matmul(h, g.input("w", (n, k), "bf16"), transpose_b=True), dtype="bf16", name="y")

    return region_of(body)


def test_rows_reduced_beside_products_are_not_split(h200: Machine) -> None:
    assert {s.splits for s in structures(normalized(64, 256, 4096), h200)} == {1}


def test_sums_in_tensor_memory_are_split_into_parts_but_not_into_shares() -> None:
    b200 = load_machine("b200")
    found = list(structures(plain(128, 256, 4096), b200))
    assert {1, 4, 8} <= {s.splits for s in found}
    assert not any(s.shares for s in found)
    assert {s.splits for s in structures(normalized(128, 256, 4096), b200)} == {1}


@pytest.mark.parametrize("number", [2, 4, 8])
def test_parts_add_up_to_their_tiles(number: int, h200: Machine) -> None:
    region = plain(64, 64, 16 * 64 + 8)
    s = next(s for s in cut(region, h200) if s.splits == number)
    program, whole = lower(region, s, h200), lower(region, cut(region, h200)[0], h200)
    k_blocks = math.ceil(region.extent(Role.STREAM) / s.depth)
    assert (program.tiles, program.grid.tiles) == (number, 1)
    assert program.k_iterations == math.ceil(k_blocks / number)
    assert program.least_iterations == k_blocks // number
    assert whole.least_iterations == whole.k_iterations == k_blocks
    assert program.tile_l2_bytes * number == pytest.approx(k_blocks * program.rings[0].slot_bytes, rel=1e-3)
    assert whole.tiles == 1


def test_the_epilogue_reads_sums_of_a_split_product(h200: Machine) -> None:
    def body(g: GraphBuilder) -> Symbol:
        s = product(g, 64, 64, 2048) + g.input("r", (64, 64), "bf16")
        return g.cast(s, dtype="bf16", name="y")

    assert {1, 2} < {s.splits for s in structures(region_of(body), h200)}
