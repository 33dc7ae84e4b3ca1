"""Tiles of tensors that lie both ways: some along their rows, some turned, which are read and staged across."""

from __future__ import annotations

import pytest
from emit_builds import MARGIN, Body, case, graph_of, h200, kernels_of
from emit_checks import check_machine_code
from other_compiler import compiled_by
from row_builds import structure
from tile_graphs import region_of

from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.lowering.structures import structures
from wsopt.perf.price import lower
from wsopt.program.facts import Read, Store
from wsopt.program.row_layout import all_swizzled, tile_layout
from wsopt.program.types import Sharing, Structure
from wsopt.simulation import simulate
from wsopt.solve.bound import infeasible


def blocks(rows: int, columns: int, warps: int, occupancy: int = 4) -> Structure:
    """A structure of blocks of one tile each."""
    return Structure(
        rows, columns, 1, 1, warps, Sharing.COOPERATIVE, persistent=False, swap=False, subtiles=1, group=1,
        occupancy=occupancy,
    )  # fmt: skip


def turned(
    shape: tuple[int, ...], perm: tuple[int, ...] = (1, 0), dtype: str = "bf16", out: str = ""
) -> Body:
    def body(g: GraphBuilder) -> Symbol:
        x = g.cast(g.transpose(g.input("x", shape, dtype), perm=perm), "f32")
        return g.cast(g.mul(x, 2.0), out or dtype, name="y")

    return body


def moved(shape: tuple[int, ...]) -> Body:
    """What computes nothing."""
    return lambda g: g.transpose(g.input("x", shape, "bf16"), (1, 0), name="y")


def beside(width: int) -> Body:
    """What lies turned beside what does not, with a vector along either axis."""

    def body(g: GraphBuilder) -> Symbol:
        x, z = g.input("x", (width, 200), "bf16"), g.input("z", (200, width), "f32")
        a, b = g.input("a", (200, 1), "f32"), g.input("b", (width,), "bf16")
        return g.cast(g.relu(g.transpose(x, perm=(1, 0)) * a + z + b), "bf16", name="y")

    return body


def three_orders(g: GraphBuilder) -> Symbol:
    """What lies in a third order is read by threads."""
    x, z = g.input("x", (4, 136, 72), "bf16"), g.input("z", (136, 72, 4), "bf16")
    return g.cast(g.transpose(x, perm=(0, 2, 1)) + g.transpose(z, perm=(2, 1, 0)), "bf16", name="y")


def pairs(g: GraphBuilder) -> Symbol:
    """The first of each pair of a row, and what lies turned."""
    x, z = g.input("x", (136, 200), "bf16"), g.input("z", (200, 136, 2), "bf16")
    first = g.reshape(g.slice(z, axis=2, start=0, stop=1), shape=(200, 136))
    return g.cast(g.transpose(x, perm=(1, 0)) + first, "bf16", name="y")


def stored_both_ways(g: GraphBuilder) -> tuple[Symbol, Symbol]:
    s = g.input("x", (200, 136), "bf16") + g.input("z", (200, 136), "f32")
    return g.cast(s, "bf16", name="y"), g.cast(g.transpose(s * 3.0, perm=(1, 0)), "f16", name="t")


def softmax(shape: tuple[int, ...], axis: int, perm: tuple[int, ...]) -> Body:
    return lambda g: g.cast(
        g.transpose(g.softmax(g.input("x", shape, "bf16"), axis=axis), perm=perm), "bf16", name="y"
    )


def scored(g: GraphBuilder) -> tuple[Symbol, ...]:
    """Sums of products of what lies both ways, with nothing but values of rows stored."""
    x, z = g.input("x", (136, 200), "bf16"), g.input("z", (200, 136), "bf16")
    return (g.reduce_sum(g.transpose(x, perm=(1, 0)) * z, axis=-1, name="y"),)


CASES: dict[str, tuple[Body, Structure]] = {
    "two bytes": (turned((200, 136)), structure(32, 64, 2)),
    "a warp for two columns": (turned((200, 136)), structure(16, 128)),
    "four bytes": (turned((200, 136), dtype="f32"), structure(16, 64, 2)),
    "one byte": (turned((208, 144), dtype="f8e4m3"), structure(64, 128)),
    "whole numbers": (turned((208, 144), dtype="i8", out="f16"), structure(32, 64)),
    "narrowed": (turned((208, 144), dtype="f32", out="f8e4m3"), structure(32, 64)),
    "batches": (turned((3, 104, 72), (0, 2, 1)), structure(32, 64)),
    "channels last": (turned((2, 40, 12, 16), (0, 2, 3, 1)), structure(64, 64)),
    "channels first": (turned((2, 12, 16, 40), (0, 3, 1, 2)), structure(32, 64)),
    "reversed": (turned((40, 8, 72), (2, 1, 0)), structure(32, 32)),
    "moved": (moved((200, 136)), structure(32, 64)),
    "beside": (beside(136), structure(32, 64, 2)),
    "stored both ways": (stored_both_ways, structure(32, 64)),
    "read at any width": (turned((200, 133)), structure(32, 64)),
    "stored at any width": (turned((133, 200)), structure(32, 64)),
    "both at any width": (turned((133, 197)), structure(32, 64)),
    "beside at any width": (beside(133), structure(32, 64)),
    "three orders": (three_orders, structure(32, 64)),
    "pairs": (pairs, structure(32, 64)),
    "blocks": (turned((200, 136)), blocks(64, 64, 4)),
    "blocks at any width": (turned((133, 197)), blocks(32, 64, 2, 8)),
    "blocks that store both ways": (stored_both_ways, blocks(32, 64, 4)),
    "three channels": (turned((2, 3, 40, 48), (0, 2, 3, 1)), blocks(512, 4, 4)),
    "softmax": (softmax((200, 136), 1, (1, 0)), structure(16, 256)),
    "softmax of columns": (softmax((200, 136), 0, (1, 0)), structure(32, 256)),
    "softmax of any width": (softmax((3, 104, 77), 2, (0, 2, 1)), structure(32, 128)),
    "scored": (scored, structure(16, 256)),
}
COMPILED = (
    "two bytes", "four bytes", "one byte", "stored both ways", "beside at any width", "both at any width",
    "blocks at any width", "softmax",
)  # fmt: skip
made = kernels_of(CASES)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_computes(name: str) -> None:
    kernel = made(name)
    assert simulate(kernel.graph, kernel.verified, kernel.source, 2).seeds == 2


@pytest.mark.compiler
def test_compiles(other_triton: str) -> None:
    kernels = [made(name) for name in COMPILED]
    for kernel in kernels:
        check_machine_code(kernel)
    found = compiled_by(other_triton, [kernel.source for kernel in kernels])
    assert [(one["spill_loads"], one["stack_bytes"]) for one in found] == [(0, 0)] * len(kernels)
    asked = [kernel.verified.schedule.shared_memory_bytes for kernel in kernels]
    assert all(one["shared_bytes"] <= most for one, most in zip(found, asked, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("two bytes", ".permute((1, 0)).load(ROWS_LAYOUT)", ".reshape([32, 64]).load(ROWS_LAYOUT)"),
        ("two bytes", "[column_tile * TILE_COLUMNS, row_tile * TILE_ROWS]", "[row_tile, column_tile]"),
        ("stored both ways", ".permute((1, 0)).store(", ".reshape([32, 64]).store("),
        ("both at any width", "turned_rows = row +", "turned_rows ="),
        ("both at any width", "turned_columns, 0) < column_extent", "turned_columns, 0) < column_extent - 1"),
        (
            "blocks that store both ways",
            "gl.expand_dims(turned_rows, 1) < row_extent",
            "turned_rows[:, None] < 1",
        ),
    ],
)
def test_faults_are_found(name: str, old: str, new: str) -> None:
    kernel = made(name)
    assert case(kernel.graph).check(kernel.source, 0) is None
    assert old in kernel.source, kernel.source
    assert case(kernel.graph).check(kernel.source.replace(old, new), 0) is not None


def test_other_extents_run_too() -> None:
    kernel = made("two bytes")
    for shape in ((64, 8), (8, 72), (304, 264)):
        assert case(graph_of(turned(shape))).fault(kernel.source, 1) is None


def test_every_box_is_swizzled_and_threads_that_read_across_do_not_collide() -> None:
    """A tile's threads lie down its rows wherever they fill a warp; of fewer rows several threads share a bank."""
    region, machine = region_of(turned((4096, 2048))), h200()
    found = [s for s in structures(region, machine) if not s.occupancy]
    assert {s.columns for s in found} == {32, 64, 128, 256, 512}
    for s in found:
        assert all_swizzled(region.row_tiles, s.rows, s.columns)
        layout = tile_layout(region.row_tiles, s.rows, s.columns, s.consumer_warps, machine)
        assert layout.vector == 8
        assert layout.collisions == max(1, 32 // s.rows)


def test_what_is_read_across_costs_an_access_an_element_and_pieces_are_priced() -> None:
    """Of one tile: bytes once, elements that lie turned one by one, and pieces of the shorter of its sides."""
    region, machine, s = region_of(turned((4096, 2048))), h200(), structure(32, 64)
    program = lower(region, s, machine)
    (read,) = (op.counts for op in program.ops if isinstance(op.counts, Read))
    (stored,) = (op.counts for op in program.ops if isinstance(op.counts, Store))
    assert (read.nbytes, read.across) == (0, 32 * 64)
    assert (stored.staged, stored.across, stored.piece) == (2 * 32 * 64, 0, 128)
    program = lower(region_of(stored_both_ways), s, machine)
    (stored,) = (op.counts for op in program.ops if isinstance(op.counts, Store))
    assert (stored.staged, stored.across, stored.piece) == (2 * 32 * 64, 32 * 64, 64)


def test_tiles_of_short_pieces_are_bounded_by_more_time() -> None:
    region, machine = region_of(turned((8192, 8192))), h200()
    best: dict[int, float] = {}
    for s in structures(region, machine):
        program = lower(region, s, machine)
        if s.occupancy and not infeasible(program, machine, MARGIN):
            memory = max(cycles for op in program.ops for unit, cycles in op.pipes if unit == "memory")
            side = min(s.rows, s.columns)
            best[side] = min(best.get(side, memory / (s.rows * s.columns)), memory / (s.rows * s.columns))
    assert best[8] > 1.2 * best[32]
    assert best[64] == pytest.approx(best[32], rel=0.05)


def test_blocks_store_whole_accesses_of_what_lies_upright() -> None:
    """Rows of a multiple of 8 elements, which a launch checks: the mask ends between accesses of 16 bytes."""
    kernel = made("blocks")
    good = "gl.expand_dims(columns, 0) // 8 < column_extent // 8"
    assert good in kernel.source
    assert case(graph_of(turned((72, 48)))).fault(kernel.source, 1) is None
    wrong = kernel.source.replace(good, good + " + 1")
    assert case(graph_of(turned((72, 48)))).fault(wrong, 1) is not None
