"""Outputs that are the halves of a tensor's pairs: threads join them and store them together."""

from __future__ import annotations

from dataclasses import replace

import pytest
from emit_builds import Body, build, check_computes, check_shows, graph_of
from row_builds import emitted, structure

from wsopt.codegen import compile_kernel
from wsopt.codegen.oracle import verdict
from wsopt.emit.source import expectation
from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.machine import Machine
from wsopt.perf.price import lower
from wsopt.program.facts import Store
from wsopt.program.program import TileProgram
from wsopt.program.types import Sharing, Structure


def turned(g: GraphBuilder, heads: int = 6, pairs: int = 64) -> Symbol:
    """Pairs of numbers, each turned by an angle that its position has."""
    x = g.input("x", (2, 9, heads, pairs, 2), "bf16")
    cos, sin = g.input("c", (9, 1, pairs), "f32"), g.input("s", (9, 1, pairs), "f32")
    shape = (2, 9, heads, pairs)
    a, b = (g.reshape(g.slice(x, axis=4, start=at, stop=at + 1), shape=shape) for at in (0, 1))
    halves = (a * cos - b * sin, b * cos + a * sin)
    return g.cast(
        g.concat(*(g.reshape(half, shape=(*shape, 1)) for half in halves), axis=4), "bf16", name="y"
    )


def odd(g: GraphBuilder) -> Symbol:
    """As many pairs as no access of 16 bytes has a multiple of."""
    return turned(g, heads=3, pairs=36)


def two_tiles(g: GraphBuilder) -> Symbol:
    """Rows of two tiles of columns."""
    return turned(g, pairs=128)


def interleaved(g: GraphBuilder) -> Symbol:
    """Two channels that become neighbours of a row, as depth becomes space."""
    return g.cast(g.exp(g.transpose(g.input("x", (54, 2, 64), "bf16"), perm=(0, 2, 1))), "bf16", name="y")


def stores(program: TileProgram) -> list[Store]:
    return [op.counts for op in program.ops if isinstance(op.counts, Store)]


@pytest.mark.slow
@pytest.mark.parametrize(("body", "consumers"), [(turned, 1), (turned, 2), (odd, 1), (interleaved, 1)])
def test_it_computes_what_the_graph_means(body: object, consumers: int) -> None:
    made = emitted(body, 4, 64, consumers)  # type: ignore[arg-type]
    check_computes(made)
    assert made.source.count("gl.store(") == 1


@pytest.mark.slow
def test_threads_of_one_half_do_not_store_the_other() -> None:
    made = emitted(turned, 4, 64)
    check_shows(made, "gl.join(y_0_, y_1__)", "gl.join(y_1__, y_0_)")
    made = emitted(two_tiles, 4, 64)
    check_shows(made, "2 * column + gl.arange(0, 2 * TILE_COLUMNS", "column + gl.arange(0, 2 * TILE_COLUMNS")


def of_evens(g: GraphBuilder) -> Symbol:
    """A norm of the products of each pair's elements, of which a tile has some columns that are none."""
    x, w = g.input("x", (21, 400), "bf16"), g.input("w", (200,), "bf16", constant=True)
    evens, odds = (g.slice(x, axis=1, start=at, step=2) for at in (0, 1))
    return g.cast(g.rms_norm(evens * odds, w), "bf16", name="y")


def by_blocks(rows: int, columns: int) -> Structure:
    return Structure(rows, columns, 1, 1, 4, Sharing.COOPERATIVE, False, False, 1, 1, occupancy=8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "cut"), [(turned, (8, 64)), (odd, (8, 64)), (two_tiles, (8, 64)), (of_evens, (2, 256))]
)
def test_blocks_side_by_side_read_each_pair_once(body: Body, cut: tuple[int, int]) -> None:
    made = build(graph_of(body), by_blocks(*cut))
    check_computes(made)
    assert made.source.count("x_pairs = gl.load(") == 1
    assert made.source.count("x_pairs.reshape(") == 2


@pytest.mark.slow
def test_a_run_shows_that_halves_change_places() -> None:
    made = build(graph_of(turned), by_blocks(8, 64))
    check_shows(made, ".split()[0]", ".split()[1]")
    check_shows(
        made,
        "gl.expand_dims(pair_columns, 0).to(gl.int64)",
        "gl.expand_dims(pair_columns, 0).to(gl.int64) ^ 1",
        1,
    )


@pytest.mark.compiler
def test_a_thread_reads_and_stores_sixteen_bytes_of_pairs() -> None:
    made = build(graph_of(turned), by_blocks(8, 64))
    compiled = compile_kernel(made.source)
    assert not verdict(compiled, expectation(made.verified))
    found = dict(compiled.sass)
    assert (found["LDG"], found["STG"]) == (1 + 2, 1)  # of the angles' cosines and sines too


def test_bytes_of_pairs_are_those_of_both_elements() -> None:
    whole = build(graph_of(of_evens), by_blocks(2, 256)).verified.program.whole
    assert whole.needed_bytes == whole.compulsory_bytes == (21 * 400 + 200 + 21 * 200) * 2


@pytest.mark.compiler
def test_a_thread_stores_sixteen_bytes_at_a_time() -> None:
    made = emitted(turned, 8, 64)  # 8 numbers of 16 bits a thread
    compiled = compile_kernel(made.source)
    assert not verdict(compiled, expectation(made.verified))
    assert dict(compiled.sass)["STG"] == 1


def test_a_call_is_held_to_pairs_that_lie_together() -> None:
    made = emitted(turned, 4, 64)
    assert "y.stride(3) == 2" in made.source
    assert "tensor y: strides have to be multiples of 16 bytes" in made.source


def test_halves_that_are_stored_apart_cost_an_access_each(h200: Machine) -> None:
    def one_of_four(g: GraphBuilder) -> Symbol:
        x = [g.input(name, (64, 128), "bf16") for name in "abcd"]
        return g.concat(*(g.reshape(g.exp(one), shape=(64, 128, 1)) for one in x), axis=2, name="y")

    s = structure(4, 128)
    apart = lower(find_region(graph_of(one_of_four)), s, h200)
    joined = lower(find_region(graph_of(turned)), replace(s, columns=64), h200)
    assert [one.scattered for one in stores(apart)] == [one.by_address for one in stores(apart)]
    assert [one.scattered for one in stores(joined)] == [0]
