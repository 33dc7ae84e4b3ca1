"""Rows that begin anywhere, which threads of blocks side by side read 16 bytes at a time, a part ahead."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest
from emit_builds import SEEDS, Body, Emitted, build, case, check_shows, graph_of, h200
from emit_checks import check_machine_code
from tile_graphs import region_of

from wsopt.frontend.flat_rows import flat_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import random_inputs
from wsopt.lowering.structures import structures
from wsopt.perf.price import lower
from wsopt.program.types import Sharing, Structure

ROWS, COLUMNS = 9, 18003
"""Of which the last elements are no whole run of 16 bytes: 162,027 are 3 more than a multiple of 8."""


def loss(g: GraphBuilder) -> Symbol:
    """Cross-entropy of each row, whose maximum and sums nothing of another row may reach."""
    x, target = g.input("x", (ROWS, COLUMNS), "bf16"), g.input("target", (ROWS, 1), "i32")
    own = g.where(g.equal(g.iota(shape=(1, COLUMNS), axis=1), target), x, 0.0)
    total = g.logsumexp(x, axis=-1, keepdims=True)
    return g.sub(total, g.reduce_sum(own, axis=-1, keepdims=True), name="loss")


def squares(g: GraphBuilder) -> Symbol:
    """A sum to which elements of another row would add."""
    x = g.input("x", (ROWS, COLUMNS), "f16")
    return g.reduce_sum(g.mul(x, x), axis=1, name="y")


def softmax(g: GraphBuilder) -> Symbol:
    """Rows that are read twice, and stored."""
    return g.cast(g.softmax(g.input("x", (ROWS, COLUMNS), "bf16"), axis=1), "bf16", name="y")


def mixed(g: GraphBuilder) -> Symbol:
    """Tensors of two types, whose runs of 16 bytes differ in length."""
    x, z = g.input("x", (ROWS, COLUMNS), "f32"), g.input("z", (ROWS, COLUMNS), "bf16")
    return g.reduce_max(g.add(x, z), axis=1, name="y")


def structure(elements: int = 16, *, ahead: bool = True) -> Structure:
    """Blocks of four warps that have a part of one row."""
    return Structure(
        1,
        128 * elements,
        1,
        1,
        4,
        Sharing.COOPERATIVE,
        False,
        False,
        1,
        1,
        occupancy=6,
        flat=True,
        ahead=ahead,
    )


@functools.cache
def emitted(body: Body, s: Structure) -> Emitted:
    return build(graph_of(body), s, 1)


CUTS: dict[str, tuple[Body, Structure]] = {
    "loss": (loss, structure()),
    "squares": (squares, structure()),
    "softmax": (softmax, structure()),
    "two types": (mixed, structure()),
    "when its turn comes": (squares, structure(32, ahead=False)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CUTS)
def test_computes(name: str) -> None:
    made = emitted(*CUTS[name])
    assert "tma_load(" not in made.source
    assert ("_ahead = load_flat(" in made.source) == made.verified.schedule.structure.ahead
    assert case(made.graph).fault(made.source, SEEDS) is None


@pytest.mark.compiler
@pytest.mark.parametrize("name", ["loss", "squares"])
def test_machine_code_is_what_was_asked_for(name: str) -> None:
    check_machine_code(emitted(*CUTS[name]))


@pytest.mark.parametrize(
    ("name", "line", "wrong"),
    [
        ("squares", "run < reach", "run < ROW_LENGTH"),
        ("squares", "run < reach", "run < reach - FLAT_STEP"),
        ("squares", "(column < 0) |", "(column < -100) |"),
        ("squares", "x_ahead = load_flat(x_ptr, row, 0,", "x_ahead = load_flat(x_ptr, row, 8,"),
        ("squares", "part * TILE_COLUMNS + TILE_COLUMNS,", "part * TILE_COLUMNS,"),
        ("loss", "own_columns < ROW_LENGTH", "own_columns <= ROW_LENGTH"),
        ("loss", "row * ROW_LENGTH // FLAT_STEP * FLAT_STEP + within", "row * ROW_LENGTH + within"),
    ],
)
@pytest.mark.slow
def test_mistakes_are_found(name: str, line: str, wrong: str) -> None:
    check_shows(emitted(*CUTS[name]), line, wrong, 1)


def test_the_tensors_last_elements_are_no_whole_run() -> None:
    made = emitted(squares, structure())
    inputs = random_inputs(made.graph, 0)
    inputs["x"][-1, -3:] = 40, 50, 60
    ends = case(made.graph, inputs=inputs)
    assert ends.fault(made.source, SEEDS) is None
    for wrong in ("range(reach + 1, ROW_LENGTH)", "range(reach, ROW_LENGTH - 1)"):
        assert ends.check(made.source.replace("range(reach, ROW_LENGTH)", wrong), 0) is not None


def test_elements_of_other_rows_are_hidden_once() -> None:
    """A cross-entropy takes nothing of another row: its maximum hides them, and a target is a place of the row."""
    made = emitted(loss, structure())
    assert made.source.count("< ROW_LENGTH, 0), x_value, 0)") == 0
    assert made.source.count("x_value, NEG_INF)") == 1
    assert emitted(squares, structure()).source.count("< ROW_LENGTH, 0), x_value, 0)") == 1


def test_a_target_behind_the_row_is_none() -> None:
    made = emitted(loss, structure())
    inputs = random_inputs(made.graph, 0)
    inputs["target"][:, 0] = [0, 2047, 2048, COLUMNS - 1, COLUMNS, COLUMNS + 1, -1, -4, 9000]
    places = case(made.graph, inputs=inputs)
    assert places.fault(made.source, SEEDS) is None
    guard = " & (x_place < x_places)"
    assert guard in made.source
    assert places.check(made.source.replace(guard, ""), 0) is not None


def test_pieces_of_flat_rows_are_structures_of_blocks_side_by_side() -> None:
    found = {s for s in structures(region_of(squares), h200()) if s.resident and s.flat}
    assert {s.ahead for s in found} == {False, True}
    assert all(s.rows == 1 for s in found)
    # Of so many columns the last part would miss a row's end where the row begins 7 elements behind a run.
    short = region_of(lambda g: g.reduce_sum(g.input("x", (64, 5 * 4096 - 2), "bf16"), axis=1, name="y"))
    assert not any(s.resident and s.flat for s in structures(short, h200()))


def test_what_is_read_ahead_is_waited_for_only_as_long_as_nothing_is_computed() -> None:
    region = flat_region(region_of(squares))
    assert region is not None
    now, ahead = (lower(region_of(squares), structure(ahead=one), h200()) for one in (False, True))
    (first, *others), (hidden, *same) = now.ops, ahead.ops
    assert [op.issue for op in others] == [op.issue for op in same]
    assert hidden.issue == first.issue - sum(op.issue for op in others) > 0


def test_a_block_begins_once_a_row() -> None:
    """What a block's beginning takes is shared by the parts of its row."""
    parts = lower(region_of(squares), structure(), h200())
    assert parts.row_parts == -(-COLUMNS // 2048)
    assert lower(region_of(softmax), structure(), h200()).row_parts == 2 * parts.row_parts
    slow = replace(h200(), block_turnover_cycles=9 * h200().block_turnover_cycles)
    more = lower(region_of(squares), structure(), slow).ops[0].issue - parts.ops[0].issue
    assert more == pytest.approx(8 * h200().block_turnover_cycles / parts.row_parts / 6, abs=2)
