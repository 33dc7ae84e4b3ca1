"""What a tile of rows counts of columns' and rows' values, of roundings, and of columns beyond its rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from emit_builds import Body, graph_of, h200
from row_builds import structure

from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.perf.price import lower
from wsopt.program.facts import Arithmetic
from wsopt.program.types import Structure


def counted(body: Body, s: Structure) -> list[Arithmetic]:
    """The counts of the first consumer's phases."""
    program = lower(find_region(graph_of(body)), s, h200())
    return [op.counts for op in program.by_consumer[0] if isinstance(op.counts, Arithmetic)]


def instructions(phases: list[Arithmetic]) -> float:
    """Instructions of all phases an element of the first one."""
    return sum(one.mix.instructions * one.elements for one in phases) / phases[0].elements


def side_by_side(rows: int, columns: int) -> Structure:
    return replace(structure(rows, columns), persistent=False, occupancy=4)


def weighted(columns: int, dtype: str, *, added: bool = False) -> Body:
    def body(g: GraphBuilder) -> Symbol:
        x, w = g.input("x", (64, columns), "f32"), g.input("w", (columns,), dtype)
        return g.mul(g.softmax(x), w + 1.0 if added else w, name="y")

    return body


@pytest.mark.parametrize(("rows", "own"), [(1, 1), (2, 1), (4, 1), (8, 2), (16, 4)])
def test_columns_values_count_once_for_all_rows_of_a_thread(rows: int, own: int) -> None:
    # Four warps have a row each.
    s = side_by_side(rows, 512)
    plain, added, narrow = (
        instructions(counted(body, s))
        for body in (weighted(512, "f32"), weighted(512, "f32", added=True), weighted(512, "bf16"))
    )
    assert added - plain == pytest.approx(1 / own), "one addition a column"
    assert narrow - plain == pytest.approx(1 / own), "one instruction makes f32 of a weight"


def test_what_is_rounded_and_computed_with_is_widened_again() -> None:
    def body(g: GraphBuilder, *, read: bool) -> Symbol | tuple[Symbol, Symbol]:
        x = g.input("x", (64, 512), "f32")
        h = g.cast(g.tanh(x), dtype="bf16", name="h")
        return (h, g.mul(h, 3.0, name="y")) if read else h

    read, stored = (
        instructions(counted(lambda g, read=read: body(g, read=read), side_by_side(2, 512)))
        for read in (True, False)
    )
    assert read - stored == pytest.approx(2.0), "a product, and what makes f32 of its operand"


@pytest.mark.parametrize(("columns", "share"), [(2048, 0.5), (2304, 0.75), (4000, 1.0), (4096, 1.0)])
def test_of_columns_beyond_a_row_whole_runs_are_left_out(columns: int, share: float) -> None:
    # Threads of four warps have 1,024 columns of bf16 at a time, of which 2,304 take three.
    def body(g: GraphBuilder) -> Symbol:
        return g.cast(g.softmax(g.input("x", (64, columns), "bf16")), dtype="bf16", name="y")

    phases = counted(body, side_by_side(1, 4096))
    assert {one.elements for one in phases} == {round(share * 4096)}
    streamed = counted(body, structure(1, 4096))
    assert {one.elements for one in streamed} == {4096}, "what a copy brings, the compiler does not know"


def test_values_of_rows_are_waited_for_where_the_next_tile_is_not_known() -> None:
    def body(g: GraphBuilder) -> Symbol:
        x, s = g.input("x", (4096, 512), "bf16"), g.input("s", (4096, 1), "f32")
        return g.cast(g.softmax(x * s), dtype="bf16", name="y")

    ahead, told, beside = (
        [one.trips for one in counted(body, s)]
        for s in (structure(4, 512), replace(structure(4, 512), dynamic=True), side_by_side(4, 512))
    )
    assert not any(ahead)
    assert told[0] == 1
    assert not any((*told[1:], *beside))
