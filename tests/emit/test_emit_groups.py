"""Several batch axes, and dimensions that are split between axes: grouped heads, packed heads, factors by head."""

from __future__ import annotations

import functools

import attention_graphs as a
import pytest
from attention_graphs import Sizes
from emit_builds import Emitted, build, case, check_computes, check_shows

from wsopt.codegen import compile_kernel
from wsopt.emit.source import expected_instructions
from wsopt.graph.builder import GraphBuilder
from wsopt.graph.types import Graph
from wsopt.program.types import Sharing, Structure

SIZES = Sizes(batch=2, heads=2, queries=136, keys=136, inner=32, column=32)
STRUCTURE = Structure(64, 32, 64, 2, 4, Sharing.COOPERATIVE, False, False, 1, 1)

GRAPHS: dict[str, Graph] = {
    "reshape": a.grouped("reshape", a.causal, SIZES),
    "as they lie": a.grouped("inputs", a.causal, SIZES),
    "as projections lie": a.projected(a.causal, SIZES),
    "merged into rows": a.grouped("reshape", None, SIZES),
    "one head of keys": a.multi_query(a.causal, SIZES),
    "packed": a.packed(a.causal, SIZES),
    "slopes": a.attention(a.alibi, SIZES),
    "slopes of all keys": a.attention(
        lambda p, x: x + a.slopes(p) * p.g.cast(p.columns - p.rows, dtype="f32"), SIZES
    ),
    "factor by head": a.attention(a.per_head, SIZES),
    "bias of queries": a.attention(a.bias("heads", "queries", "one", dtype="f32"), SIZES),
}


@functools.cache
def emitted(name: str) -> Emitted:
    return build(GRAPHS[name], STRUCTURE, 48)


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPHS)
def test_computes(name: str) -> None:
    check_computes(emitted(name))


def test_other_numbers_of_heads_run_too() -> None:
    made = emitted("reshape")
    for batch, heads in ((1, 3), (3, 1)):
        sizes = Sizes(batch, heads, 72, 72, 32, 32)
        assert case(a.grouped("reshape", a.causal, sizes)).fault(made.source, 2) is None


def test_places_of_three_batch_axes_are_their_own() -> None:
    made = emitted("as projections lie")
    for wrong in ("[head, batch, group, ", "[batch, head, 0, "):
        check_shows(made, "[batch, head, group, ", wrong)
    sizes = Sizes(3, 1, 72, 72, 32, 32)
    assert case(a.projected(a.causal, sizes)).fault(made.source, 2) is None


def test_other_numbers_of_heads_in_a_group_are_refused() -> None:
    graph = a.grouped("reshape", a.causal, SIZES, groups=4)
    message = "tensor q: dimension 1 has to be a multiple of 3"
    assert message in (case(graph).fault(emitted("reshape").source, 1) or "")
    graph = a.grouped("reshape", a.causal, SIZES, groups=6)
    assert "tensor k has extents" in (case(graph).fault(emitted("reshape").source, 1) or "")


FAULTS = {
    ("reshape", "return batch, group, row_tile"): "return 0, group, row_tile",
    ("reshape", "[batch, group, row_tile * TILE_ROWS, 0]"): "[batch, 0, row_tile * TILE_ROWS, 0]",
    ("reshape", "q.stride(1) * 3), q.stride(1),"): "q.stride(1) * 3), q.stride(1) * 2,",
    ("packed", "k_block * TILE_DEPTH, 0]"): "k_block * TILE_DEPTH, 1]",
    ("slopes", "slopes_ptr + group"): "slopes_ptr + batch",
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "good"), FAULTS)
def test_faults_are_found(name: str, good: str) -> None:
    check_shows(emitted(name), good, FAULTS[name, good])


@pytest.mark.compiler
@pytest.mark.parametrize("name", ["reshape", "slopes"])
def test_machine_code_is_what_was_asked_for(name: str) -> None:
    made = emitted(name)
    found = compile_kernel(made.source)
    assert found.tensor_instructions == expected_instructions(made.verified)
    assert (found.stack_bytes, found.spill_loads, found.warnings) == (0, 0, ())


def by_head(p: a.Parts, x: a.Symbol) -> a.Symbol:
    """Slopes and windows that follow from the head's number alone."""
    g = p.g
    head = g.iota(shape=(p.sizes.heads, 1, 1), axis=0)
    slope = g.exp2(g.mul(g.cast(g.add(head, 1), dtype="f32"), -2.0))
    distance = p.columns - p.rows
    near = g.less(distance, g.mul(head, 8))
    return a.masked(p, near, x + slope * g.cast(distance, dtype="f32"))


def test_a_heads_number_takes_part() -> None:
    made = build(a.attention(by_head, SIZES), STRUCTURE, 48)
    assert case(made.graph).fault(made.source, 5) is None
    assert " = group\n" in made.source
    assert case(made.graph).fault(made.source.replace(" = group\n", " = batch\n"), 1) is not None


def mean_beside(length: int) -> Graph:
    """Attention, and beside it the mean of each row's scores."""
    g = GraphBuilder("mean_beside")
    p = a.parts(g, Sizes(1, 2, 72, length, 32, 32))
    x = a.scores(p)
    o = g.matmul(g.cast(g.softmax(x), dtype="bf16"), p.v)
    g.output(g.cast(o, dtype="bf16", name="o"), g.reduce_mean(x, axis=-1, name="mean"))
    return g.build()


def test_a_mean_is_of_the_length_at_run_time() -> None:
    made = build(mean_beside(136), STRUCTURE, 48)
    for length in (136, 200):
        assert case(mean_beside(length)).fault(made.source, 2) is None
