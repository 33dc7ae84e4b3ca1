"""Products of slices of tensors, and of tensors with zeros around them: copies begin and end where those do."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from emit_builds import (
    SEEDS,
    Body,
    build,
    case,
    check_computes,
    check_shows,
    graph_of,
    h200,
    kernels_of,
    structure,
)
from emit_checks import check_machine_code
from row_builds import structure as rows_structure

from wsopt.emit.sliced import at_extents_of
from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import random_inputs
from wsopt.lowering.reduced import reduced
from wsopt.lowering.structures import structures
from wsopt.program.types import Structure
from wsopt.simulation import simulate
from wsopt.tensors.views import Role


def gated(g: GraphBuilder) -> Symbol:
    """y = silu(x w[:, :128]) * x w[:, 128:], from one product with packed weights."""
    x, w = g.input("x", (200, 192), "bf16"), g.input("w", (192, 256), "bf16", constant=True)
    h = g.cast(g.matmul(x, w), "bf16")
    return g.cast(
        g.mul(g.silu(g.slice(h, axis=1, stop=128)), g.slice(h, axis=1, start=128)), "bf16", name="y"
    )


def attention(g: GraphBuilder) -> Symbol:
    """Attention of queries, keys and values that lie beside each other in a token's row."""
    packed = g.reshape(g.input("qkv", (2, 200, 3 * 2 * 64), "bf16"), shape=(2, 200, 3, 2, 64))
    q, k, v = (
        g.transpose(
            g.reshape(g.slice(packed, axis=2, start=place, stop=place + 1), shape=(2, 200, 2, 64)),
            perm=(0, 2, 1, 3),
        )
        for place in range(3)
    )
    weights = g.cast(g.softmax(g.mul(g.matmul(q, k, transpose_b=True), 0.125)), "bf16")
    return g.cast(g.matmul(weights, v), "bf16", name="y")


def window(g: GraphBuilder) -> Symbol:
    """A product of 100 of 512 contracted elements, of rows and of columns inside their tensors."""
    x, w = g.input("x", (512, 512), "bf16"), g.input("w", (512, 512), "bf16", constant=True)
    inner = {"start": 104, "stop": 204}
    rows = g.slice(g.slice(x, axis=1, **inner), axis=0, start=3, stop=203)
    columns = g.slice(g.slice(w, axis=0, **inner), axis=1, start=64, stop=192)
    return g.cast(g.matmul(rows, columns), "bf16", name="y")


def padded(g: GraphBuilder) -> Symbol:
    """Zeros before and behind rows and contracted elements."""
    x, w = g.input("x", (100, 104), "bf16"), g.input("w", (192, 128), "bf16", constant=True)
    return g.cast(g.matmul(g.pad(x, low=(60, 24), high=(40, 64)), w), "bf16", name="y")


def beside(g: GraphBuilder) -> Symbol:
    """A residual and a bias that are parts of tensors, and a tile with zeros around it."""
    x, w = g.input("x", (200, 128), "bf16"), g.input("w", (128, 128), "bf16", constant=True)
    r, b = g.input("r", (200, 384), "bf16"), g.input("b", (512,), "f32", constant=True)
    e = g.pad(g.input("e", (120, 128), "bf16"), low=(30, 0), high=(50, 0))
    y = g.matmul(x, w) + g.slice(r, axis=1, start=128, stop=256) + g.slice(b, start=256, stop=384) + e
    return g.cast(y, "bf16", name="y")


def scales(g: GraphBuilder) -> Symbol:
    """Weights with scales of groups that are rows and columns inside a tensor."""
    x, q = g.input("x", (64, 256), "bf16"), g.input("q", (256, 256), "i8", constant=True)
    s = g.slice(g.input("s", (512, 8), "f32", constant=True), axis=0, start=128, stop=384)
    w = g.dequantize(q, g.slice(s, axis=1, start=3, stop=5), 128)
    return g.cast(g.matmul(x, g.cast(w, "bf16"), transpose_b=True), "bf16", name="y")


def within(start: int) -> Body:
    """Weights of 8 bits that begin inside of rows."""

    def body(g: GraphBuilder) -> Symbol:
        x, q = g.input("x", (64, 256), "bf16"), g.input("q", (256, 512), "i8", constant=True)
        inner = g.slice(q, axis=1, start=start, stop=start + 256)
        return g.cast(g.matmul(x, g.cast(inner, "bf16"), transpose_b=True), "bf16", name="y")

    return body


def tap(g: GraphBuilder) -> Symbol:
    """A product with the weights of one of a convolution's taps: one element of each of two dimensions."""
    x, w = g.input("x", (200, 128), "bf16"), g.input("w", (3, 2, 128, 128), "bf16", constant=True)
    one = g.slice(g.slice(w, axis=0, start=2, stop=3), axis=1, start=1, stop=2)
    return g.cast(g.matmul(x, g.reshape(one, shape=(128, 128)), transpose_b=True), "bf16", name="y")


CASES: dict[str, tuple[Body, Structure]] = {
    "tap": (tap, structure(64, 64)),
    "gate": (gated, structure(64, 64)),
    "attention": (attention, structure(64, 64)),
    "window": (window, structure(64, 64)),
    "padded": (padded, structure(64, 64)),
    "beside": (beside, structure(64, 64, subtiles=2)),
    "scales": (scales, structure(columns=16, depth=128)),
    "fragments": (within(128), structure(columns=16, depth=128)),
    "inside of fragments": (within(16), structure(columns=16, depth=128)),
}


def cached(g: GraphBuilder) -> Symbol:
    """Attention over the first 300 of 512 keys, with a bias that is a part of a tile."""
    q = g.input("q", (2, 200, 64), "bf16")
    k, v = (g.slice(g.input(name, (2, 512, 64), "bf16"), axis=1, stop=300) for name in "kv")
    bias = g.slice(
        g.slice(g.input("b", (320, 512), "bf16"), axis=0, start=64, stop=264), axis=1, start=16, stop=316
    )
    scores = g.add(g.mul(g.matmul(q, k, transpose_b=True), 0.125), bias)
    return g.cast(g.matmul(g.cast(g.softmax(scores), "bf16"), v), "bf16", name="y")


@pytest.mark.slow
def test_a_loop_over_slices_runs_whole_at_other_extents() -> None:
    kernel = build(graph_of(cached), structure(64, 64), 128)
    found = simulate(kernel.graph, kernel.verified, kernel.source, 2)
    assert found.lines_run == found.lines
    check_shows(kernel, "TILE_DEPTH + 16", "TILE_DEPTH + 24")


def test_taps_are_of_as_many_as_there_were() -> None:
    source = build(graph_of(tap), structure(64, 64)).source
    assert "w.shape[0] * w.shape[1] == 6" in source
    assert (
        'f"tensor w: dimensions 0 and 1 have {w.shape[0] * w.shape[1]} elements: a slice of 6 is read"'
        in source
    )


def test_its_launcher_takes_no_other_extents() -> None:
    source = build(graph_of(cached), structure(64, 64), 128).source
    assert "k_.shape[1] - 212" in source
    assert "k_.shape[1] == 512" in source
    longer = graph_of(lambda g: g.neg(g.input("k", (2, 600, 64), "bf16"), name="y"))
    text = at_extents_of(source, graph_of(cached), longer)
    assert "k_.shape[1] == 600" in text
    assert text.replace("600", "512") == source


made = kernels_of(CASES, kib=128)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_computes(name: str) -> None:
    check_computes(made(name))


@pytest.mark.compiler
@pytest.mark.parametrize("name", CASES)
def test_compiles(name: str) -> None:
    check_machine_code(made(name))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "good", "wrong"),
    [
        ("gate", "TILE_COLUMNS + 128]", "TILE_COLUMNS + 120]"),
        ("tap", "TILE_COLUMNS + 640", "TILE_COLUMNS + 512"),
        ("attention", "group + 4", "group + 3"),
        ("window", "TILE_DEPTH + 104]", "TILE_DEPTH + 96]"),
        ("padded", "row_tile * TILE_ROWS + -60", "row_tile * TILE_ROWS"),
        ("beside", "SUBTILE_COLUMNS + 128", "SUBTILE_COLUMNS + 136"),
        ("beside", "columns + 256", "columns"),
        ("scales", " // 128 + 3", " // 128 + 2"),
        ("scales", " + 128", " + 120"),
        ("fragments", " // 2 + 64", " // 2 + 32"),
    ],
)
def test_a_wrong_place_shows(name: str, good: str, wrong: str) -> None:
    check_shows(made(name), good, wrong)


def short_contraction(g: GraphBuilder) -> Symbol:
    """A product over a few of the columns that its left operand has, fewer than a ring has slots."""
    x, w = g.input("x", (2, 256), "bf16"), g.input("w", (64, 128), "bf16", constant=True)
    part = g.slice(x, axis=1, start=64, stop=192)
    return g.cast(g.matmul(part, w, transpose_b=True), "bf16", name="y")


def test_a_slice_of_what_is_contracted_is_longer_in_a_simulation() -> None:
    graph, s = graph_of(short_contraction), structure()
    longer = reduced(graph, s, 16, longer=True)
    (x, w) = longer.inputs
    assert w.type.shape[1] > 15 * s.depth
    assert x.type.shape[1] - w.type.shape[1] == 256 - 128
    made = build(graph, s)
    check_computes(made)
    assert case(longer).fault(at_extents_of(made.source, graph, longer), 1) is None


def of_experts(g: GraphBuilder) -> Symbol:
    """What each token's experts gave, where they left it, weighted and added up: an axis of four places."""
    rows, residual = g.input("y", (96, 256), "bf16"), g.input("r", (24, 256), "bf16")
    places, weights = g.input("places", (24, 4), "i32"), g.input("weights", (24, 4, 1), "f32")
    given = g.gather(rows, places) * weights
    return g.cast(residual + g.reduce_sum(given, axis=1), "bf16", name="z")


@pytest.mark.slow
def test_what_experts_gave_is_added_up_by_an_elementwise_kernel() -> None:
    made = build(graph_of(of_experts), rows_structure(4, 256))
    inputs = random_inputs(made.graph, 0)
    inputs["places"] = np.random.default_rng(0).integers(-1, 97, (24, 4)).astype(np.int32)
    assert case(made.graph, inputs=inputs).fault(made.source, SEEDS) is None


def taps(strides: tuple[int, int, int]) -> Body:
    """The nine taps of a depthwise convolution, whose weights lie tap by tap: one element of two axes each."""

    def body(g: GraphBuilder) -> Symbol:
        x = g.input("x", (1, 4, 4, 64), "bf16")
        w = g.input("w", (3, 3, 64), "f32", constant=True, strides=strides)
        around = g.pad(x, low=(0, 1, 1, 0), high=(0, 1, 1, 0))
        total: Symbol | float = 0.0
        for row, column in itertools.product(range(3), range(3)):
            seen = g.slice(
                g.slice(around, axis=1, start=row, stop=row + 4), axis=2, start=column, stop=column + 4
            )
            tap = g.slice(g.slice(w, axis=0, start=row, stop=row + 1), axis=1, start=column, stop=column + 1)
            total = seen * g.reshape(tap, (64,)) + total
        return g.cast(total, "bf16", name="y")

    return body


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strides", "offsets", "firsts"),
    [((192, 64, 1), {0}, {*range(0, 9 * 64, 64)}), ((256, 64, 1), {0, 256, 512}, {0, 64, 128})],
)
def test_one_element_of_two_axes_is_read_where_it_lies(
    strides: tuple[int, int, int], offsets: set[int], firsts: set[int]
) -> None:
    """Two axes that lie together are one; of others the outer one is an offset."""
    made = build(graph_of(taps(strides)), rows_structure(4, 256))
    assert case(made.graph).fault(made.source, SEEDS) is None
    views = [one.view for one in find_region(made.graph).sources if one.view.tensor == "w"]
    assert {view.offset for view in views} == offsets
    assert {view.first.get(Role.COLUMN, 0) for view in views} == firsts


def test_rows_whose_slices_lie_both_ways_are_read_by_threads() -> None:
    """A tile with all columns begins at none: places in the layout of what lies turned are counted from zero."""

    def both(g: GraphBuilder) -> Symbol:
        x, z = g.input("x", (64, 33), "bf16"), g.input("z", (33, 64, 2), "bf16")
        seen = g.reshape(g.slice(z, axis=2, start=1, stop=2), (33, 64))
        return g.reduce_sum(x * g.transpose(seen, perm=(1, 0)), axis=1, name="y")

    made = build(graph_of(both), next(iter(structures(find_region(graph_of(both)), h200()))))
    assert "turned_columns = gl.arange(" in made.source
    assert case(made.graph).fault(made.source, SEEDS) is None


@pytest.mark.slow
@pytest.mark.parametrize("width", [50, 256])
def test_sequences_with_zeros_around_them_run_short(width: int) -> None:
    def surrounded(g: GraphBuilder) -> Symbol:
        x, y = g.input("x", (3, 700, width), "bf16"), g.input("y", (3, 703, width), "bf16")
        padded = g.pad(x, low=(0, 2, 0), high=(0, 1, 0))
        return g.cast(g.add(g.mul(padded, 0.5), y), "bf16", name="z")

    graph = graph_of(surrounded)
    few = [s for s in structures(find_region(graph), h200()) if s.consumers == 1 and not s.occupancy]
    emitted = build(graph, few[len(few) // 3])
    found = simulate(graph, emitted.verified, emitted.source, 2)
    assert found.runs[0].graph.type_of("z").shape[1] < 703
    assert found.max_relative_error < 1e-2
