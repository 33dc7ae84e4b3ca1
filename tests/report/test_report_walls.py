"""The memory wall that a kernel stands at: five kernels, each at another one, and one that no memory holds back."""

from __future__ import annotations

import functools

import pytest
from emit_builds import Body, build, graph_of, structure

from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.program.types import Structure
from wsopt.report.walls import Wall, in_flight, wall_sentences, walls
from wsopt.schedule.verified import VerifiedSchedule


def gate(rows: int, columns: int) -> Body:
    return lambda g: g.cast(g.silu(g.input("x", (rows, columns), "bf16")), "bf16", name="y")


def largest(g: GraphBuilder) -> Symbol:
    return g.cast(g.reduce_max(g.input("x", (64, 256), "bf16"), axis=1), "bf16", name="y")


def product(rows: int, columns: int, depth: int) -> Body:
    def body(g: GraphBuilder) -> Symbol:
        x, w = g.input("x", (rows, depth), "bf16"), g.input("w", (columns, depth), "bf16", constant=True)
        return g.cast(g.matmul(x, w, transpose_b=True), "bf16", name="y")

    return body


def rows_of(rows: int, columns: int, consumers: int = 1, warps: int = 4) -> Structure:
    return structure(columns=columns, depth=1, consumers=consumers, rows=rows, warps=warps)


KERNELS: dict[Wall | None, tuple[Body, Structure, int]] = {
    Wall.BANDWIDTH: (gate(32768, 4096), rows_of(2, 2048, 2), 227),
    Wall.LATENCY: (gate(32768, 4096), rows_of(2, 2048, 1, 8), 24),
    Wall.BLOCKS: (product(64, 256, 16384), structure(columns=64, depth=128), 227),
    Wall.LAUNCH: (largest, rows_of(4, 256), 227),
    Wall.LOCALITY: (product(8192, 8192, 512), structure(columns=32), 227),
    None: (product(8192, 8192, 4096), structure(columns=256, consumers=2), 227),
}


@functools.cache
def made(wall: Wall | None) -> VerifiedSchedule:
    body, cut, kib = KERNELS[wall]
    return build(graph_of(body), cut, kib).verified


SAYS = {
    Wall.BANDWIDTH: (
        "536,870,912 bytes that every kernel for this graph moves",
        "only fewer bytes take less",
    ),
    Wall.LATENCY: ("At most 1,081,344 bytes are on the way", "deeper rings, or more blocks, move it"),
    Wall.BLOCKS: ("4 tiles on 132 places of 132 SMs, 3 % used", "a split of the contracted axis"),
    Wall.LAUNCH: ("A launch takes 0.73 us and a block's start 0.59", "more work a launch moves it"),
    Wall.LOCALITY: ("go through L2 in 169.55 us, 22.2 times the compulsory ones", "larger tiles"),
}


@pytest.mark.parametrize("wall", SAYS)
def test_a_kernel_is_told_its_wall(wall: Wall) -> None:
    found, (first, parts) = walls(made(wall)), wall_sentences(made(wall))
    assert found.wall is wall
    assert first.startswith(f"Memory wall: {wall}, ")
    for said in SAYS[wall]:
        assert said in first
    assert parts.startswith(f"Of the predicted {found.total:,.2f} us: {wall} {found.parts[0][1]:,.2f} us")


@pytest.mark.parametrize("wall", KERNELS)
def test_parts_are_of_the_predicted_time(wall: Wall | None) -> None:
    found, p = walls(made(wall)), made(wall).schedule.prediction
    parts = [us for _, us in found.parts]
    assert {name for name, _ in found.parts} == {*Wall}
    assert min(parts) >= 0
    assert found.total == p.microseconds
    assert sum(parts) <= p.microseconds * 1.001
    if found.computes <= found.moves:
        assert sum(parts) == pytest.approx(p.microseconds)


def test_arithmetic_that_takes_longer_is_no_memory_wall() -> None:
    (told,) = wall_sentences(made(None))
    assert told.startswith(
        "Memory is no wall: the SMs compute for 577.46 us at least, all bytes take 332.32 us"
    )


def test_what_is_on_the_way_follows_from_the_rings() -> None:
    verified = made(Wall.LATENCY)
    held, wanted = in_flight(verified)
    assert held == 132 * verified.schedule.depth("ring") * 2 * 2048 * 2
    machine = verified.machine
    assert (
        wanted
        == machine.latency.tma_load_dram / (machine.sustained_clock_mhz * 1e6) * machine.dram_read_bandwidth
    )
    assert held < wanted < in_flight(made(Wall.BANDWIDTH))[0] * 1.1


def test_what_is_said_to_move_the_wall_moves_it() -> None:
    """The same rows through a deeper ring stand at bandwidth."""
    body, cut, kib = KERNELS[Wall.LATENCY]
    deeper = build(graph_of(body), cut, 8 * kib).verified
    assert in_flight(deeper)[0] > in_flight(made(Wall.LATENCY))[0]
    assert walls(deeper).wall is Wall.BANDWIDTH
