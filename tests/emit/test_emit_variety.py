"""Random regions cut to random structures: each is solved, emitted and computes what its graph means."""

from __future__ import annotations

import random

import pytest
from emit_builds import build, graph_of, small_case, structure

from wsopt.codegen import compile_kernel
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.program.types import Structure
from wsopt.simulation import simulate

COUNT = 28
SEEDS = 4
M, N, K, BATCH = 512, 768, 512, 4
OUTPUTS = ("bf16", "f16", "f32", "f8e4m3", "f8e5m2")
SOURCES = ("bf16", "f16", "f32")


def operands(g: GraphBuilder, rng: random.Random, dtype: str, batch: int) -> Symbol:
    """A product with any transposes; f8 operands lie along the contracted axis."""
    narrow = dtype.startswith("f8")
    ta, tb = (False, True) if narrow else (rng.random() < 0.4, rng.random() < 0.6)
    shared = batch and rng.random() < 0.5
    left = (K, M) if ta else (M, K)
    right = (N, K) if tb else (K, N)
    lead = (batch,) if batch else ()
    a = g.input("a", (*lead, *left), dtype)
    b = g.input("b", right if shared else (*lead, *right), dtype, constant=True)
    more = {"accumulate": rng.choice(["fast", "f32"])} if narrow else {}
    return g.matmul(a, b, transpose_a=ta, transpose_b=tb, name="p", **more)


def source(g: GraphBuilder, rng: random.Random, number: int, batch: int) -> Symbol | float:
    """A scalar, row, column or full tensor, or a number."""
    kind = rng.choice(["number", "scalar", "row", "column", "full", "full", "transposed"])
    name, dtype = f"s{number}", rng.choice(SOURCES)
    lead = (batch,) if batch and rng.random() < 0.5 else ()
    match kind:
        case "number":
            return rng.choice([2, 0.5, -1.25])
        case "scalar":
            return g.input(name, (1, 1), "f32")
        case "row":
            return g.input(name, (N,), dtype)
        case "column":
            return g.input(name, (*lead, M, 1), dtype)
        case "transposed" if not batch:
            return g.transpose(g.input(name, (N, M), dtype), perm=[1, 0])
        case _:
            return g.input(name, (*((batch,) if batch else ()), M, N), dtype)


def mask(g: GraphBuilder, rng: random.Random, value: Symbol) -> Symbol:
    """A causal or banded choice between the value and a number."""
    rows = g.iota(shape=[M, N], axis=0)
    columns = g.iota(shape=[M, N], axis=1)
    condition = rng.choice(
        [lambda: columns <= rows, lambda: columns < rows + 5, lambda: (columns > 40) & (rows < 100)]
    )()
    return g.where(condition, value, rng.choice([0.0, -2.0]))


def region(rng: random.Random, g: GraphBuilder) -> tuple[Symbol, ...]:
    """A product, some steps after it, one or two outputs."""
    dtype = rng.choice(["bf16", "bf16", "f16", "f8e4m3"])
    batch = rng.choice([0, 0, 0, BATCH])
    product = operands(g, rng, dtype, batch)
    value = product * (1 / 16) if rng.random() < 0.5 else product
    for number in range(rng.randrange(3)):
        other = source(g, rng, number, batch)
        value = rng.choice([lambda v, o: v + o, lambda v, o: v * o, lambda v, o: o - v, g.maximum])(
            value, other
        )
    if rng.random() < 0.4:
        value = getattr(g, rng.choice(["relu", "sigmoid", "silu", "tanh", "abs"]))(value)
    if not batch and rng.random() < 0.4:
        value = mask(g, rng, value)
    outputs = [g.cast(value, dtype=rng.choice(OUTPUTS), name="y")]
    if rng.random() < 0.4:
        outputs.append(g.cast(product * 0.25, dtype=rng.choice(OUTPUTS), name="z"))
    return tuple(outputs)


def cut(rng: random.Random, *, narrow: bool, two: bool) -> Structure:
    """A structure of small tiles."""
    consumers = rng.choice([1, 1, 2, 3])
    persistent = rng.random() < 0.7
    columns = rng.choice([64, 64, 128])
    return structure(
        columns,
        rng.choice([64, 128] if narrow else [32, 64]),
        consumers,
        ping_pong=persistent and consumers > 1 and rng.random() < 0.5,
        persistent=persistent,
        swap=rng.random() < 0.25,
        subtiles=rng.choice([1, 2] if columns == 64 else [1, 2, 4]),
        copies=rng.choice([1, 2]) if two else 1,
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(COUNT))
def test_computes_what_the_graph_means(seed: int) -> None:
    rng = random.Random(f"variety {seed}")
    graph = graph_of(lambda g: region(rng, g), f"variety_{seed}")
    product = graph.node("p")
    assert product is not None
    narrow = graph.type_of(product.tensors[0]).dtype.bits == 8
    promoted = narrow and product.attr("accumulate") == "f32"
    kernel = build(graph, cut(rng, narrow=narrow, two=promoted))
    result = simulate(graph, kernel.verified, kernel.source, SEEDS)
    assert result.seeds == SEEDS


def residual_of_itself(g: GraphBuilder) -> Symbol:
    """y = x w' + x: the contracted axis and the columns are one dimension of x."""
    x, w = g.input("x", (1024, 1024), "bf16"), g.input("w", (1024, 1024), "bf16", constant=True)
    return g.cast(g.add(g.matmul(x, w, transpose_b=True), x), dtype="bf16", name="y")


def test_an_input_whose_dimension_is_two_axes_keeps_one_extent() -> None:
    made = build(graph_of(residual_of_itself), structure(consumers=2))
    small = small_case(made)
    rows, columns = small.inputs["x"].shape
    assert small.inputs["w"].shape == (columns, columns)
    assert rows < 1024 > columns
    assert small.fault(made.source, 3) is None


def placed(g: GraphBuilder) -> Symbol:
    """y = x w + r, with w and r transposed in memory, and x in the rows of something wider."""
    x = g.input("x", (1024, 512), "bf16", strides=(640, 1))
    w = g.input("w", (512, 1024), "bf16", strides=(1, 512))
    r = g.input("r", (1024, 1024), "f32", strides=(1, 1024))
    return g.cast(g.add(g.matmul(x, w), r), dtype="bf16", name="y")


def test_inputs_are_simulated_where_they_lie() -> None:
    graph = graph_of(placed)
    made = build(graph, structure())
    assert simulate(graph, made.verified, made.source, 2).seeds == 2


@pytest.mark.compiler
@pytest.mark.parametrize("lead", [(), (3,)])
@pytest.mark.parametrize("swap", [False, True])
def test_rows_of_one_element_are_an_axis(lead: tuple[int, ...], swap: bool) -> None:
    """A residual of one row is a tile like any other, also where batches are the rows."""

    def one_row(g: GraphBuilder) -> Symbol:
        x, w = g.input("x", (*lead, 1, 64), "bf16"), g.input("w", (320, 64), "bf16", constant=True)
        r, f = g.input("r", (*lead, 1, 320), "bf16"), g.input("f", (*lead, 1, 1), "f32")
        return g.cast(g.add(g.matmul(x, w, transpose_b=True), r) * f, dtype="bf16", name="y")

    graph = graph_of(one_row)
    made = build(graph, structure(swap=swap))
    assert simulate(graph, made.verified, made.source, 2).seeds == 2
    assert compile_kernel(made.source).spill_loads == 0


def limited(g: GraphBuilder) -> Symbol:
    """Columns from 1000 on are zero, and so is what lies behind the diagonal."""
    x, w = g.input("x", (1024, 512), "bf16"), g.input("w", (1024, 512), "bf16", constant=True)
    rows, columns = (g.iota(shape=[1024, 1024], axis=axis) for axis in (0, 1))
    inside = g.logical_and(g.less(columns, 1000), g.less_equal(columns, rows))
    return g.cast(g.where(inside, g.matmul(x, w, transpose_b=True), 0.0), dtype="bf16", name="y")


@pytest.mark.compiler
def test_a_product_is_masked_by_indices_after_its_end() -> None:
    """Comparison and choice are one piece: apart, ptxas compares before the product's end and runs products alone."""
    made = build(graph_of(limited), structure(consumers=2))
    assert "where_lt(" in made.source
    assert "where_le(" in made.source
    assert small_case(made).fault(made.source, 3) is None
    found = compile_kernel(made.source)
    assert (found.stack_bytes, found.spill_loads, found.warnings) == (0, 0, ())


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("first", "dtype"), [("cast", "f16"), ("cast", "bf16"), ("relu", "f16"), ("neg", "bf16")]
)
def test_a_sum_is_rounded_and_computed_with_after_its_product(first: str, dtype: str) -> None:
    """Rounded one by one, elements would be read before the product's end, and products would run alone."""

    def rounded(g: GraphBuilder) -> Symbol:
        x, w = g.input("x", (1024, 512), "bf16"), g.input("w", (1024, 512), "bf16", constant=True)
        p = g.matmul(x, w, transpose_b=True)
        p = p if first == "cast" else getattr(g, first)(p)
        return g.cast(g.log2(g.abs(g.cast(p, dtype=dtype)) + 0.5), dtype="f16", name="y")

    made = build(graph_of(rounded), structure(consumers=2))
    assert f"round_{dtype}(" in made.source
    assert small_case(made).fault(made.source, 2) is None
    found = compile_kernel(made.source)
    assert (found.stack_bytes, found.spill_loads, found.warnings) == (0, 0, ())


def test_a_sum_is_rounded_and_stored_as_the_compiler_likes() -> None:
    made = build(graph_of(residual_of_itself), structure(consumers=2))
    assert "round_" not in made.source


@pytest.mark.compiler
@pytest.mark.parametrize("function", ["sin", "cos"])
def test_functions_of_an_angle_need_no_stack(function: str) -> None:
    """Angles of many turns: the product's elements are some twenty, and they are multiplied by ten."""

    def turned(g: GraphBuilder) -> Symbol:
        x, w = g.input("x", (1024, 512), "bf16"), g.input("w", (1024, 512), "bf16", constant=True)
        angle = g.mul(g.matmul(x, w, transpose_b=True), 10.0)
        return g.cast(getattr(g, function)(angle), dtype="bf16", name="y")

    made = build(graph_of(turned), structure(consumers=2))
    assert small_case(made).fault(made.source, 3) is None
    found = compile_kernel(made.source)
    assert (found.stack_bytes, found.spill_loads, found.warnings) == (0, 0, ())


def test_a_product_of_constants_waits_for_the_kernel_before() -> None:
    def constants(g: GraphBuilder) -> Symbol:
        x, w = (g.input(name, (96, 72), "bf16", constant=True) for name in "xw")
        return g.cast(g.matmul(x, w, transpose_b=True), dtype="bf16", name="y")

    made = build(graph_of(constants), structure(persistent=False), 64)
    assert small_case(made).fault(made.source, 2) is None
