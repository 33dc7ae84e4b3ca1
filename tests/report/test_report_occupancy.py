"""What is told of kernels of which an SM has two blocks: figures of the SM count both, figures of a block one."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest
from emit_builds import build, graph_of, structure

from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.report.facts import places, tensor_cycles, unit_load
from wsopt.report.outcome import hidden
from wsopt.report.sentences import sentences
from wsopt.report.walls import walls
from wsopt.schedule.memory import shared_capacity
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.solve.outside import outside_of
from wsopt.solve.sensitivity import variants


@functools.cache
def made(occupancy: int, tiles: int = 264) -> VerifiedSchedule:
    """A product of 64 rows, by so many tiles of weights of 8 bits, whose partial sums consumers add up."""

    def body(g: GraphBuilder) -> Symbol:
        x, w = g.input("x", (64, 2048), "f8e4m3"), g.input("w", (tiles * 64, 2048), "f8e4m3", constant=True)
        return g.cast(g.matmul(x, w, transpose_b=True), "bf16", name="y")

    return build(graph_of(body), replace(structure(columns=64, depth=128), occupancy=occupancy)).verified


def test_a_wave_has_room_for_the_tiles_of_all_blocks() -> None:
    one, two = made(0), made(2)
    assert (one.schedule.prediction.waves, two.schedule.prediction.waves) == (2, 1)
    assert places(one) == places(two) == 264


def test_products_of_both_blocks_hold_the_tensor_core() -> None:
    two, few = made(2), made(2, 100)
    assert tensor_cycles(two, 16) == 2 * 16 * unit_load(two, "tensor")
    assert tensor_cycles(few, 16) == 16 * unit_load(few, "tensor"), "no SM has two of 100 tiles"


def test_threads_of_both_blocks_compute_at_a_time() -> None:
    """Within a kernel's time there is what its busiest thread takes."""
    assert walls(made(2)).computes < walls(made(0)).computes
    assert walls(made(2)).computes < made(2).schedule.prediction.sm_us


def test_what_a_block_holds_is_told_of_each() -> None:
    assert "by each of the SM's 2 blocks, and not by a block in its epilogue" in " ".join(sentences(made(2)))
    assert "cycles, and idle in the epilogue" in " ".join(sentences(made(0)))
    assert "tensor core idle" not in hidden(made(2))


@pytest.mark.parametrize(("tiles", "idle"), [(100, 32), (132, 0), (200, 0), (264, 0)])
def test_each_sm_has_a_block_before_any_has_two(tiles: int, idle: int) -> None:
    two = made(2, tiles)
    assert outside_of(two.program, two.machine, {}).idle_sms == idle


def test_one_more_slot_is_one_of_each_block() -> None:
    two = made(2)
    (more,) = (one.machine for one in variants(two) if one.name == "one more slot of the ring")
    s = two.program.structure
    (ring,) = two.program.rings
    assert shared_capacity(s, more) - shared_capacity(s, two.machine) == ring.slot_bytes + 16
