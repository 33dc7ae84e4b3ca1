"""Several blocks an SM: which structures have them, what each may take, and over how many a tile's sums are split."""

from __future__ import annotations

from dataclasses import replace

from tile_graphs import chained, plain

from wsopt.frontend.types import Region
from wsopt.lowering.structures import structures
from wsopt.machine import Machine, load_machine
from wsopt.perf.paths import waves_of
from wsopt.perf.price import lower
from wsopt.program.types import Sharing, Structure
from wsopt.schedule import budget, memory
from wsopt.solve.bound import infeasible
from wsopt.solve.search import DEFAULT_MARGIN

ONE = Structure(64, 64, 64, 1, 4, Sharing.COOPERATIVE, True, False, 1, 1)
TWO = replace(ONE, occupancy=2)


def several(region: Region, machine: Machine) -> list[Structure]:
    return [s for s in structures(region, machine) if s.occupancy]


def test_graphs_of_few_rows_have_them(h200: Machine) -> None:
    found = several(plain(64, 8192, 4096), h200)
    assert {(s.occupancy, s.consumers, s.consumer_warps, s.persistent) for s in found} == {(2, 1, 4, True)}
    assert not several(plain(65, 8192, 4096), h200)


def test_one_tile_has_all_rows(h200: Machine) -> None:
    found = several(plain(16, 8192, 4096), h200)
    assert {s.swap for s in found} == {False, True}
    assert min(s.columns for s in found if s.swap) == 16


def test_loops_that_compute_values_have_them_whatever_their_rows(h200: Machine) -> None:
    found = several(chained(4096, 77, 64), h200)
    assert {(s.occupancy, s.consumers, s.consumer_warps, s.persistent) for s in found} == {
        (blocks, 1, 4, True) for blocks in (2, 3, 4)
    }
    b200 = load_machine("b200")  # which has sums in tensor memory
    assert not several(chained(4096, 77, 64), b200)


def test_each_tensor_instruction_has_its_sums_in_the_registers_of_the_start(h200: Machine) -> None:
    """Of scores as of results: three blocks start with 80 registers a thread, of which 64 columns of sums take 32."""
    region = chained(4096, 512, 64)
    narrow, wide = (replace(ONE, depth=depth, occupancy=3) for depth in (64, 128))
    told = [infeasible(lower(region, s, h200), h200, DEFAULT_MARGIN) for s in (narrow, wide)]
    assert told == ["", "emitter.v1: one tensor instruction needs 96 registers, ptxas starts from 80"]


def test_a_block_has_its_share_of_the_sm(h200: Machine) -> None:
    assert memory.shared_capacity(ONE, h200) == h200.shared_memory_per_block_bytes
    assert 2 * (memory.shared_capacity(TWO, h200) + h200.shared_memory_reserved_bytes) <= (
        h200.shared_memory_per_sm_bytes
    )
    warps = budget.launched_warps(TWO, h200)
    assert 2 * warps * 32 * budget.base_registers(TWO, h200) <= h200.registers_per_sm
    assert budget.base_registers(ONE, h200) > budget.base_registers(TWO, h200)


def test_a_wave_has_a_tile_for_each_block(h200: Machine) -> None:
    region = plain(64, 264 * 64, 4096)
    assert [waves_of(lower(region, s, h200), h200) for s in (ONE, TWO)] == [2, 1]


def test_sums_are_split_over_all_blocks(h200: Machine) -> None:
    """66 tiles are half a wave of blocks that have an SM each, and a quarter of one of two an SM."""
    tiles = [s for s in structures(plain(64, 66 * 64, 4096), h200) if (s.rows, s.columns) == (64, 64)]
    assert max(s.splits for s in tiles if not s.occupancy and not s.swap) == 2
    assert max(s.splits for s in tiles if s.occupancy and not s.swap) == 4


def test_no_share_of_all_k_blocks_is_given_to_them(h200: Machine) -> None:
    found = several(plain(64, 200 * 64, 4096), h200)
    assert found
    assert not any(s.shares or s.paired for s in found)
