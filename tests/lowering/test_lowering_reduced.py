"""Graphs at reduced extents: what no output needs is left out, and what is no graph then is wsopt's own fault."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from tile_graphs import Body

from wsopt.errors import InternalError
from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.needed import needed
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.types import Graph
from wsopt.lowering.reduced import beyond, further, reaching, reduced
from wsopt.lowering.reduced_graph import dense_strides, parse_derived
from wsopt.program.types import Sharing, Structure

CUT = Structure(64, 64, 64, 2, 4, Sharing.COOPERATIVE, True, False, 1, 1)
ROWS = Structure(2, 256, 1, 2, 4, Sharing.COOPERATIVE, True, False, 1, 1)


def graph_of(body: Body) -> Graph:
    g = GraphBuilder("small")
    found = body(g)
    g.output(*(found if isinstance(found, tuple) else (found,)))
    return g.build()


def product(g: GraphBuilder) -> Symbol:
    x, w = g.input("x", (1024, 512), "bf16"), g.input("w", (1024, 512), "bf16")
    return g.cast(g.matmul(x, w, transpose_b=True, name="p"), dtype="bf16", name="y")


def scaled(g: GraphBuilder) -> Symbol:
    x, w = g.input("x", (1024, 512), "bf16"), g.input("w", (1024, 512), "bf16")
    h = g.cast(g.div(x, g.reduce_sum(g.abs(x), axis=1, keepdims=True)), dtype="bf16")
    return g.cast(g.matmul(h, w, transpose_b=True, name="p"), dtype="bf16", name="y")


def reduced_rows(g: GraphBuilder) -> Symbol:
    x, w = g.input("x", (1024, 512), "bf16"), g.input("w", (64, 512), "bf16")
    return g.cast(g.softmax(g.matmul(x, w, transpose_b=True, name="p")), dtype="bf16", name="y")


def rows(g: GraphBuilder) -> Symbol:
    return g.cast(g.softmax(g.input("x", (1024, 256), "bf16")), dtype="bf16", name="y")


def attention(g: GraphBuilder, length: int = 1024, fill: float = -math.inf) -> Symbol:
    x, k, v = (g.input(name, (1, 2, length, 64), "bf16") for name in "xkv")
    i, j = (g.iota(shape=(length, length), axis=axis) for axis in (0, 1))
    s = g.where(g.less_equal(j, i), g.matmul(x, k, transpose_b=True, name="p"), fill)
    return g.cast(g.matmul(g.cast(g.softmax(s), dtype="bf16"), v), dtype="bf16", name="y")


FAMILIES = {
    "products": (product, CUT), "scaled rows": (scaled, CUT), "a product's rows": (reduced_rows, CUT),
    "rows": (rows, ROWS), "chain": (attention, CUT),
}  # fmt: skip


@pytest.mark.parametrize("name", FAMILIES)
def test_what_no_output_needs_is_left_out(name: str) -> None:
    body, cut = FAMILIES[name]

    def more(g: GraphBuilder) -> Symbol:
        y = body(g)
        x = g.cast(y, dtype="f32")
        g.add(x, g.input("z", x.shape, "f32"), name="aside")
        g.exp(g.input("u", (7, 5), "f32"), name="alone")
        return y

    graph, plain = graph_of(more), graph_of(body)
    assert {"aside", "alone"} <= {node.name for node in graph.nodes}
    assert needed(graph) == plain
    assert needed(plain) is plain
    assert find_region(graph) == find_region(plain)
    assert reduced(graph, cut, 3) == reduced(plain, cut, 3)
    assert reaching(graph, cut, 3) == reaching(plain, cut, 3)
    assert list(further(graph, cut, 3)) == list(further(plain, cut, 3))


def test_what_is_no_graph_is_an_internal_fault() -> None:
    graph = graph_of(product)
    data = graph_to_json(graph)
    data["inputs"][0]["shape"] = [48, 32]
    with pytest.raises(
        InternalError, match=r"^internal error: small at reduced extents is no graph \(/nodes/0"
    ) as told:
        parse_derived(data, graph)
    assert told.value.exit_status == 1
    assert "a fault of wsopt, not of your input" in str(told.value)
    assert "--debug" in str(told.value)


def test_no_axis_is_longer_than_it_is_unless_asked_for() -> None:
    short = graph_of(lambda g: attention(g, length=64))
    assert reduced(short, CUT, 5).type_of("k").shape == (1, 2, 64, 64)
    assert max(graph.type_of("k").shape[2] for graph in further(short, CUT, 5)) > 5 * 64
    few = graph_of(product)
    assert reduced(few, CUT, 20).type_of("x").shape[1] == 512
    (longer,) = further(few, CUT, 20)
    assert 19 * 64 < longer.type_of("x").shape[1] < 20 * 64


def test_parts_of_the_last_tile_have_k_blocks_enough_under_a_mask_that_moves_with_rows() -> None:
    graph = graph_of(lambda g: attention(g, length=64))

    def most(s: Structure) -> int:
        return max(one.type_of("x").shape[2] for one in further(graph, s, 3))

    assert most(CUT) < 6 * 4 * CUT.depth <= most(replace(CUT, splits=6))
    assert beyond(graph, replace(CUT, splits=6)) is None
    longest = beyond(graph, replace(CUT, splits=48))
    assert longest is not None
    assert longest.type_of("x").shape[2] >= 48 * 4 * CUT.depth


def test_the_last_tile_leaves_a_consumer_without_rows_and_ends_in_a_k_block() -> None:
    length = reduced(graph_of(attention), CUT, 3).type_of("x").shape[2]
    assert 2 * CUT.depth < length
    assert 0 < length % CUT.tile_rows < CUT.rows
    assert length % CUT.depth


def test_no_row_is_empty_where_a_number_may_be_minus_infinity() -> None:
    """With fewer queries than keys behind them, or none: an even softmax of nothing is not what a kernel has."""
    assert len(list(further(graph_of(attention), CUT, 3))) == len(
        list(further(graph_of(lambda g: attention(g, fill=-1e9)), CUT, 3))
    )

    def offset(g: GraphBuilder, fill: float) -> Symbol:
        q, k, v = (g.input(name, (1, 2, 1024, 64), "bf16") for name in "qkv")
        i, j = (g.iota(shape=(1024, 1024), axis=axis) for axis in (0, 1))
        s = g.where(g.greater(j, g.sub(i, 100)), g.matmul(q, k, transpose_b=True), fill)
        return g.cast(g.matmul(g.cast(g.softmax(s), dtype="bf16"), v), dtype="bf16", name="y")

    counts = [
        len(list(further(graph_of(lambda g, f=fill: offset(g, f)), CUT, 3))) for fill in (-math.inf, -1e9)
    ]
    assert counts[0] > counts[1] > 2


@pytest.mark.parametrize(
    ("shape", "strides", "dense"),
    [
        ([3, 72, 40], [4096, 50, 1], [72 * 48, 48, 1]),
        ([72, 40], [1, 100], [1, 80]),
        ([72, 1], [1, 1], [1, 1]),  # one element takes no room: the column's stride stays 1
        ([3, 256, 1], [6144, 24, 1], [4096, 16, 1]),  # but rows that lay apart still do
        ([72, 40], [0, 1], [0, 1]),
        ([72, 40, 8], [8, 0, 1], [16, 0, 1]),
    ],
)
def test_strides_are_dense_in_the_order_of_memory(
    shape: list[int], strides: list[int], dense: list[int]
) -> None:
    assert dense_strides(shape, strides) == dense


def test_an_axis_of_one_element_is_longer_where_that_is_asked_for() -> None:
    g = GraphBuilder("outer")
    p = g.matmul(g.input("x", (328, 1), "bf16", strides=(8, 1)), g.input("w", (1, 256), "bf16"))
    g.output(g.cast(p + g.input("b", (1, 256), "f32"), dtype="bf16", name="y"))
    s = Structure(64, 64, 64, 1, 4, Sharing.COOPERATIVE, True, False, 1, 1)
    (longer,) = further(g.build(), s, 3)
    shapes = {item.name: item.type.shape for item in longer.inputs}
    assert shapes["x"][1] == shapes["w"][0] > s.depth
    assert shapes["b"] == (1, shapes["w"][1])


def test_rows_are_laid_apart_only_where_they_have_to_be_contiguous() -> None:
    """A column beside rows of two axes is one vector, and stays dense."""
    g = GraphBuilder("rows")
    x, f = g.input("x", (2, 37, 256), "bf16"), g.input("f", (2, 37, 1), "bf16")
    g.output(g.cast(g.softmax(x) * f, dtype="f16", name="y"))
    small = reduced(g.build(), Structure(4, 256, 1, 2, 4, Sharing.COOPERATIVE, True, False, 1, 1), 3)
    assert [item.strides for item in small.inputs] == [None, None]


@pytest.mark.parametrize("viewed", [False, True])
def test_a_length_beside_a_single_row_or_key_stays_one_number(viewed: bool) -> None:
    """At more rows, and at more keys, too: an axis that a reshape adds is none of the graph's."""
    for queries, keys in ((1, 328), (40, 1)):
        g = GraphBuilder("single")
        q = g.input("q", (2, 2, queries, 64), "bf16")
        k, v = (g.input(name, (2, 2, keys, 64), "bf16") for name in "kv")
        n = g.input("n", (2,) if viewed else (2, 1, 1, 1), "i32")
        n = g.reshape(n, shape=(2, 1, 1, 1)) if viewed else n
        seen = g.iota(shape=(2, 1, 1, keys), axis=3) < n
        scores = g.where(seen, g.matmul(q, k, transpose_b=True), -math.inf)
        g.output(g.cast(g.matmul(g.cast(g.softmax(scores), dtype="bf16"), v), dtype="bf16", name="o"))
        found = list(further(g.build(), CUT, 3))
        assert {one.type_of("q").shape[2] for one in found} > {8}
        assert {one.type_of("n").size for one in found} <= {1, 2}
        assert all(any(bound.terms for bound in find_region(one).bounds) for one in found)


def test_the_width_of_packed_heads_stays_for_the_kernel_knows_it() -> None:
    def scores(g: GraphBuilder) -> Symbol:
        q, k = g.input("q", (4, 64, 64), "bf16"), g.input("k", (64, 256), "bf16")
        heads = g.transpose(g.reshape(k, shape=(64, 4, 64)), perm=(1, 0, 2))
        return g.matmul(q, heads, transpose_b=True, name="p")

    cut = replace(CUT, depth=32)
    graph = graph_of(scores)
    for small in (reduced(graph, cut, 2), *further(graph, cut, 2)):
        assert small.type_of("q").shape[2] == 64
        assert small.type_of("k").shape[1] % 64 == 0


@pytest.mark.parametrize("parted", ["operand", "result", "beside weights in groups"])
def test_rows_inside_a_dimension_stay_for_the_launcher_knows_them(parted: str) -> None:
    def body(g: GraphBuilder) -> Symbol:
        x = g.input("x", (400, 512), "bf16")
        if parted == "result":
            return g.reshape(g.matmul(x, g.input("w", (512, 512), "bf16")), shape=(4, 100, 512), name="y")
        x = g.reshape(x, shape=(4, 100, 512))
        if parted == "operand":
            return g.matmul(x, g.input("w", (512, 512), "bf16"), name="y")
        q, s = (
            g.input(name, (512, length), dtype, constant=True)
            for name, length, dtype in (("q", 512, "i4"), ("s", 4, "bf16"))
        )
        return g.matmul(x, g.cast(g.dequantize(q, s, 128), "bf16"), transpose_b=True, name="y")

    found = reduced(graph_of(body), CUT, 3).type_of("y").shape
    assert found[1] == 100
    assert found[0] < 4


def test_a_group_of_queries_that_are_rows_stays_for_the_kernel_knows_it() -> None:
    def scores(g: GraphBuilder) -> Symbol:
        q, k = g.input("q", (4, 8, 1, 128), "bf16"), g.input("k", (4, 2, 1024, 128), "bf16")
        grouped, shared = g.reshape(q, shape=(4, 2, 4, 1, 128)), g.reshape(k, shape=(4, 2, 1, 1024, 128))
        return g.tanh(g.matmul(grouped, shared, transpose_b=True), name="y")

    found = reduced(graph_of(scores), CUT, 3)
    q, k = (one.type.shape for one in found.inputs)
    assert q[1] == 4 * k[1]


def test_of_one_element_the_last_axis_is_the_contiguous_one() -> None:
    def one(g: GraphBuilder) -> Symbol:
        return g.matmul(g.input("x", (1, 1), "bf16"), g.input("w", (1, 1), "bf16"), name="y")

    w = reduced(graph_of(one), CUT, 3, longer=True).inputs[1]
    assert w.type.shape[0] > 1
    assert w.element_strides[0] * 16 % 128 == 0


@pytest.mark.parametrize("batch", [(), (3,)])
def test_a_column_of_what_is_contracted_stays_contiguous_along_the_rows(batch: tuple[int, ...]) -> None:
    """A product over an axis of one element: the kernel copies its operand along the rows, which all lie together."""
    g = GraphBuilder("outer")
    x, w = g.input("x", (*batch, 328, 1), "bf16"), g.input("w", (*batch, 1, 256), "bf16")
    g.output(g.cast(g.matmul(x, w) * g.input("f", (328, 1), "f32"), dtype="bf16", name="y"))
    (longer,) = further(g.build(), Structure(64, 64, 64, 1, 4, Sharing.COOPERATIVE, True, False, 1, 1), 3)
    given = {item.name: item for item in longer.inputs}
    assert given["x"].type.shape[-1] > 1
    assert given["x"].element_strides[-2] == 1
    assert not any(stride % 8 for stride in given["x"].element_strides if stride > 1)
    assert given["w"].element_strides[-1] == given["f"].element_strides[-1] == 1


def behind_others(
    g: GraphBuilder, queries: int = 512, keys: int = 8192, heads: int = 8, share: int = 2
) -> Symbol:
    """Causal attention of queries that come last; `share` heads of them read the same keys, all lie together."""
    q = g.reshape(g.input("q", (1, heads * share, queries, 64), "bf16"), shape=(1, heads, share, queries, 64))
    k, v = (
        g.reshape(g.input(name, (1, heads, keys, 64), "bf16"), shape=(1, heads, 1, keys, 64)) for name in "kv"
    )
    i, j = g.iota(shape=(queries, 1), axis=0), g.iota(shape=(1, keys), axis=1)
    seen = g.less_equal(j, g.add(i, keys - queries))
    s = g.where(seen, g.matmul(q, k, transpose_b=True, name="p"), -math.inf)
    o = g.cast(g.matmul(g.cast(g.softmax(s), dtype="bf16"), v), dtype="bf16")
    return g.reshape(o, shape=(1, heads * share, queries, 64), name="y")


def test_where_masks_want_many_k_blocks_there_are_no_more_rows_and_heads_than_tell_tiles_apart() -> None:
    graph = graph_of(behind_others)
    for shares in (False, True):
        run = reduced(graph, replace(CUT, shares=shares), 5)
        (_, heads, queries, _), (_, shared, keys, _) = (run.type_of(name).shape for name in "qk")
        assert (heads, shared) == (4, 2), "two of the axis that is cut beside the one that the kernel knows"
        assert CUT.tile_rows < queries < 2 * CUT.tile_rows, "a whole tile, and a part of one"
        assert keys == 8192 - 512 + queries, "the mask ends every row, as in the graph"
    short = reduced(graph_of(lambda g: behind_others(g, 512, 640)), CUT, 5)
    assert short.type_of("q").shape[2] > 2 * CUT.tile_rows


def test_with_equal_shares_as_many_batches_as_go_round_are_counted_over_all_axes() -> None:
    def batched(g: GraphBuilder) -> Symbol:
        q, k, v = (g.input(name, (8, 8, 1024, 64), "bf16") for name in "qkv")
        weights = g.cast(g.softmax(g.matmul(q, k, transpose_b=True)), dtype="bf16")
        return g.cast(g.matmul(weights, v), dtype="bf16", name="y")

    def one_axis(g: GraphBuilder) -> Symbol:
        q, k, v = (g.input(name, (8, 1, 1024, 64), "bf16") for name in "qkv")
        weights = g.cast(g.softmax(g.matmul(q, k, transpose_b=True)), dtype="bf16")
        return g.cast(g.matmul(weights, v), dtype="bf16", name="y")

    shares = replace(CUT, shares=True)
    assert reduced(graph_of(batched), shares, 5).type_of("q").shape[:2] == (2, 2)
    assert reduced(graph_of(one_axis), shares, 5).type_of("q").shape[:2] == (4, 1)
    assert reduced(graph_of(one_axis), CUT, 5).type_of("q").shape[:2] == (2, 1)


def shifted(g: GraphBuilder) -> Symbol:
    """Each token mixed with the one before, of which the first has none."""
    x = g.input("x", (2, 1024, 512), "bf16")
    before = g.slice(g.pad(x, low=(0, 1, 0), high=(0, 0, 0)), axis=1, start=0, stop=1024)
    return g.cast(g.add(g.mul(x, 0.5), g.mul(before, 0.5)), "bf16", name="y")


def causal_taps(g: GraphBuilder) -> Symbol:
    """A causal convolution: slices of one sequence with zeros before it, and none that is the sequence itself."""
    padded = g.pad(g.input("x", (2, 1024, 512), "bf16"), low=(0, 3, 0), high=(0, 0, 0))
    first, *others = (g.slice(padded, axis=1, start=at, stop=at + 1024) for at in range(3))
    return g.cast(g.add(first, g.add(*others)), "bf16", name="y")


def surrounded(g: GraphBuilder) -> Symbol:
    """A sequence with zeros on both sides, beside one that is as long."""
    x, y = g.input("x", (2, 1024, 512), "bf16"), g.input("y", (2, 1027, 512), "bf16")
    return g.add(g.pad(x, low=(0, 2, 0), high=(0, 1, 0)), y, name="z")


@pytest.mark.parametrize(("body", "less"), [(shifted, 0), (causal_taps, 0), (surrounded, 3)])
def test_sequences_with_zeros_around_them_are_cut_as_others_are(body: Body, less: int) -> None:
    found = reduced(graph_of(body), ROWS, 4)
    (y,) = (found.type_of(name).shape for name in found.outputs)
    assert y[1] < 64
    assert found.inputs[0].type.shape[1] == y[1] - less
