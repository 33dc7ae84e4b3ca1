"""Joined tensors of different lengths, and slices of what is computed: what they are written out as, and kernels."""

from __future__ import annotations

import functools
import random

import numpy as np
import pytest
from emit_builds import Body, build, case, graph_of, h200

from wsopt.errors import LoweringError
from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.needed import needed
from wsopt.graph.reference import evaluate, random_inputs
from wsopt.graph.types import Graph
from wsopt.lowering.structures import structures
from wsopt.partition.choices import with_choices
from wsopt.partition.cut import check_cuttable
from wsopt.simulation import simulate


def appended(g: GraphBuilder) -> Symbol:
    """A key behind those of a cache."""
    cache, one = g.input("cache", (2, 63, 4, 64), "bf16"), g.input("one", (2, 1, 4, 64), "bf16")
    return g.concat(cache, one, axis=1, name="y")


def three(g: GraphBuilder) -> Symbol:
    """Three parts, one of which is joined itself, and positions of the whole."""
    x, r, c = (g.input(name, (2, length, 256), "bf16") for name, length in (("x", 36), ("r", 4), ("c", 1)))
    joined = g.concat(c, g.concat(r, x, axis=1), axis=1)
    return g.cast(g.add(joined, g.input("p", (41, 256), "bf16", constant=True)), "bf16", name="y")


def computed(g: GraphBuilder) -> Symbol:
    """Parts that are computed of a row's factor, of a vector along the columns, and of indices."""
    a, b, s = g.input("a", (64, 192), "bf16"), g.input("b", (64, 64), "bf16"), g.input("s", (64, 1), "f32")
    v, j = g.input("v", (192,), "bf16"), g.cast(g.iota(shape=(1, 64), axis=1), "f32")
    return g.cast(g.concat(g.add(g.silu(a * s), v), g.mul(b, s) + j, axis=1), "bf16", name="y")


def rolled(g: GraphBuilder) -> Symbol:
    """An image whose rows and columns begin elsewhere, as windows of attention that are shifted."""
    x = g.input("x", (2, 16, 16, 64), "bf16")
    for axis in (1, 2):
        x = g.concat(g.slice(x, axis=axis, start=4), g.slice(x, axis=axis, stop=4), axis=axis)
    return g.cast(x, "bf16", name="y")


def partly_turned(g: GraphBuilder) -> Symbol:
    """Rotary embedding of a quarter of each head."""
    q = g.input("q", (96, 4, 64), "bf16")
    cos, sin = (g.input(name, (96, 1, 8), "f32") for name in ("cos", "sin"))
    a, b, rest = g.slice(q, stop=8), g.slice(q, start=8, stop=16), g.slice(q, start=16)
    turned = (g.cast(one, "bf16") for one in (a * cos - b * sin, b * cos + a * sin))
    return g.concat(*turned, rest, name="y")


def labels(g: GraphBuilder) -> Symbol:
    """Whole numbers, with their dimensions in another order."""
    a, b = g.input("a", (16, 4, 64), "i32"), g.input("b", (4, 8, 64), "i32")
    return g.concat(b, g.transpose(a, perm=(1, 0, 2)), axis=1, name="y")


def slice_of_joined(g: GraphBuilder) -> Symbol:
    """A window over the end of one part and the beginning of the next."""
    a, b = g.input("a", (2, 64, 256), "bf16"), g.input("b", (2, 64, 256), "bf16")
    return g.cast(g.exp(g.slice(g.concat(a, b, axis=1), axis=1, start=40, stop=104)), "bf16", name="y")


def slice_of_counted(g: GraphBuilder) -> Symbol:
    """A slice of what was made of indices."""
    x = g.input("x", (64, 256), "f32")
    i = g.cast(g.iota(shape=(64, 1), axis=0), "f32")
    return g.slice(g.add(x, i), axis=0, start=32, stop=64, name="y")


def one_row(g: GraphBuilder) -> Symbol:
    """One row of what is computed of a row that all have, and of numbers of columns."""
    x, v, s = (
        g.input(name, shape, "f32") for name, shape in (("x", (64, 256)), ("v", (256,)), ("s", (1, 256)))
    )
    return g.slice(g.add(g.mul(x, v), s), axis=0, start=5, stop=6, name="y")


def every_second(g: GraphBuilder) -> Symbol:
    """Rotary embedding of pairs by slices with a step, stacked to pairs again."""
    x = g.input("x", (48, 4, 64), "bf16")
    cos, sin = (g.input(name, (48, 1, 32), "f32") for name in ("cos", "sin"))
    first, second = (g.slice(x, start=at, step=2) for at in (0, 1))
    turned = (first * cos - second * sin, second * cos + first * sin)
    pairs = g.concat(*(g.reshape(one, shape=(48, 4, 32, 1)) for one in turned))
    return g.cast(g.reshape(pairs, shape=(48, 4, 64)), "bf16", name="y")


def sections(g: GraphBuilder) -> Symbol:
    """Angles of which some follow one position and some another, each by its own slice of the frequencies."""
    x, at = g.input("x", (48, 64), "bf16"), g.input("at", (2, 48), "i32")
    inverse = g.input("inverse", (64,), "f32", constant=True)
    angles = []
    for number, (start, stop) in enumerate(((0, 24), (24, 64))):
        place = g.reshape(g.slice(at, axis=0, start=number, stop=number + 1), shape=(48, 1))
        part = g.reshape(g.slice(inverse, start=start, stop=stop), shape=(1, stop - start))
        angles.append(g.mul(g.cast(place, "f32"), part))
    return g.cast(g.mul(x, g.concat(*angles)), "bf16", name="y")


GRAPHS: dict[str, Body] = {
    body.__name__: body
    for body in (
        *(appended, three, computed, rolled, partly_turned, labels, sections),
        *(slice_of_joined, slice_of_counted, one_row, every_second),
    )
}


@functools.cache
def graph(name: str) -> Graph:
    return graph_of(GRAPHS[name])


ALONE = frozenset({"slice_of_counted", "one_row", "every_second", "computed"})
"""Graphs that the front end writes out by itself."""


@pytest.mark.parametrize("name", sorted(GRAPHS.keys() - ALONE))
def test_no_kernel_computes_it_as_it_is(name: str) -> None:
    with pytest.raises(LoweringError):
        find_region(graph(name))


@pytest.mark.parametrize("name", GRAPHS)
def test_what_is_written_out_means_the_same(name: str) -> None:
    written, inputs = with_choices(graph(name)), random_inputs(graph(name), 0)
    for output, value in evaluate(graph(name), inputs).items():
        found = evaluate(written, inputs)[output]
        assert found.dtype == value.dtype
        assert found.tobytes() == value.tobytes()


@pytest.mark.parametrize("name", GRAPHS)
def test_kernels_can_be_made_of_it(name: str) -> None:
    check_cuttable(graph(name), h200())


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in GRAPHS if name != "computed"])
def test_one_kernel_computes_it(name: str) -> None:
    written = with_choices(graph(name))
    few = [s for s in structures(find_region(written), h200()) if s.consumers == 1 and not s.occupancy]
    made = build(written, few[len(few) // 3])
    assert simulate(written, made.verified, made.source, 2).max_relative_error < 1e-6


def test_others_stay_as_they_are() -> None:
    def equal_parts(g: GraphBuilder) -> Symbol:
        a, b = (g.input(name, (64, 256), "bf16") for name in "ab")
        return g.cast(g.concat(g.slice(a, start=128), g.slice(b, stop=128)), "bf16", name="y")

    def behind_a_product(g: GraphBuilder) -> Symbol:
        x, w = g.input("x", (64, 256), "bf16"), g.input("w", (256, 256), "bf16")
        return g.slice(g.cast(g.matmul(x, w), "bf16"), stop=128, name="y")

    for body in (equal_parts, behind_a_product):
        plain = graph_of(body)
        assert with_choices(plain) is plain


@pytest.mark.parametrize(("low", "high"), [(0, 64), (64, 64), (64, 0)])
def test_zeros_around_a_vector_begin_where_a_row_of_it_does(low: int, high: int) -> None:
    padded = graph_of(lambda g: g.pad(g.input("v", (192,), "bf16"), low=(low,), high=(high,), name="y"))
    made = build(padded, next(structures(find_region(padded), h200())))
    assert case(padded).fault(made.source, 1) is None


def test_zeros_that_begin_inside_of_a_row_are_refused() -> None:
    def seen_in_rows(g: GraphBuilder) -> Symbol:
        zeros = g.pad(g.input("v", (192,), "bf16"), low=(0,), high=(64,))
        return g.mul(g.reshape(zeros, shape=(2, 128)), g.input("x", (2, 128), "f32"), name="y")

    with pytest.raises(
        LoweringError, match="zeros behind 192 elements are seen in rows of 128; let them begin where"
    ):
        find_region(graph_of(seen_in_rows))


def _step(rng: random.Random, g: GraphBuilder, known: list[Symbol]) -> Symbol:
    """One more tensor of two dimensions: joined, sliced, turned, or computed of others."""
    a, axis = rng.choice(known), rng.choice((0, 1))
    extent = a.shape[axis]
    match rng.choice(("concat", "slice", "step", "transpose", "add", "where", "index")):
        case "concat":
            fitting = [b for b in known if b.shape[1 - axis] == a.shape[1 - axis]]
            return g.concat(a, *(rng.choice(fitting) for _ in range(rng.randint(1, 2))), axis=axis)
        case "slice":
            start = rng.randrange(extent)
            return g.slice(a, axis=axis, start=start, stop=rng.randint(start + 1, extent))
        case "step" if extent > 1:
            return g.slice(a, axis=axis, start=rng.randrange(2), step=2)
        case "transpose":
            return g.transpose(a, perm=(1, 0))
        case "where":
            return g.where(g.greater(a, 0.0), a, g.exp(g.minimum(a, 1.0)))
        case "index":
            return g.add(a, g.cast(g.iota(shape=a.shape, axis=axis), "f32"))
    fitting = [b for b in known if b.shape == a.shape or _broadcasts(a, b)]
    return g.add(a, rng.choice(fitting))


def _broadcasts(a: Symbol, b: Symbol) -> bool:
    return all(m in (n, 1) or n == 1 for m, n in zip(a.shape, b.shape, strict=True))


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_mean_the_same(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(10):
        g = GraphBuilder("drawn")
        shapes = ((6, 8), (6, 8), (1, 8), (6, 1))
        known = [g.input(f"x{number}", shape, "f32") for number, shape in enumerate(shapes)]
        for _ in range(rng.randint(2, 7)):
            known.append(_step(rng, g, known))
        g.output(known[-1])
        plain = needed(g.build())
        written, inputs = with_choices(plain), random_inputs(plain, seed)
        (value,) = evaluate(plain, inputs).values()
        (found,) = evaluate(written, {one.name: inputs[one.name] for one in written.inputs}).values()
        assert found.shape == value.shape
        assert np.array_equal(found, value, equal_nan=True)


def test_every_moved_part_is_the_inputs_own() -> None:
    inputs = random_inputs(graph("appended"), 0)
    inputs["cache"][...], inputs["one"][...] = np.nan, -np.inf
    (found,) = evaluate(with_choices(graph("appended")), inputs).values()
    assert np.isnan(found[:, :63].astype(np.float32)).all()
    assert np.isneginf(found[:, 63:].astype(np.float32)).all()
