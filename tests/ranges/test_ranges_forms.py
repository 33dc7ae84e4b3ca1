"""Ranges that no few kernels cover are refused before anything is searched, with a remedy that works."""

from __future__ import annotations

import pytest

from wsopt.errors import LoweringError
from wsopt.graph.builder import GraphBuilder
from wsopt.graph.symbolic import SymbolicGraph
from wsopt.machine import Machine
from wsopt.pool.local import LOCAL
from wsopt.ranges.choose import chooser_of
from wsopt.ranges.forms import check_forms
from wsopt.ranges.points import grid_of, samples_of
from wsopt.ranges.price import Extents


def _elements(columns: str, least: int = 1, *, rows: int | str = 4096, bias: bool = False) -> SymbolicGraph:
    """Elements of rows of so many `columns`, an expression of n from `least` on."""
    g = GraphBuilder("elements")
    g.dim("n", least, 1024, typical=[64])
    if rows == "m":
        g.dim("m", 2, 512)
    x = g.input("x", (rows, columns), "bf16")
    y = x + g.input("b", (columns,), "bf16") if bias else x
    g.output(g.cast(g.relu(y), "bf16", name="y"))
    return g.symbolic()


def _reduced(op: str, shape: tuple[int | str, ...], axis: int) -> SymbolicGraph:
    g = GraphBuilder("reduced")
    g.dim("n", 8, 1024)
    g.output(g.cast(getattr(g, op)(g.input("x", shape, "bf16"), axis=axis), "bf16", name="y"))
    return g.symbolic()


def _product(shape: tuple[int | str, ...], weights: tuple[int | str, ...], then: str = "") -> SymbolicGraph:
    g = GraphBuilder("product")
    g.dim("n", 1, 64)
    x, w = g.input("x", shape, "bf16"), g.input("w", weights, "bf16", constant=True)
    h = g.matmul(x, w, transpose_b=True)
    g.output(g.cast(getattr(g, then)(h) if then else h, "bf16", name="y"))
    return g.symbolic()


def _paged() -> SymbolicGraph:
    """Keys in pages: rows of the table, which the loader reads by address, may begin anywhere."""
    g = GraphBuilder("pages")
    b, places = g.dim("b", 1, 64), g.dim("places", 1, 128)
    q, table = g.input("q", (b, 4, 4, 64), "bf16"), g.input("table", (b, places), "i32")
    caches = (g.gather(g.input(name, (512, 64, 4, 64), "bf16"), table, axis=0) for name in "kv")
    lying = (g.transpose(one, perm=(0, 3, 1, 2, 4)) for one in caches)
    k, v = (g.reshape(one, shape=(b, 4, "64*places", 64)) for one in lying)
    p = g.softmax(g.matmul(q, k, transpose_b=True))
    g.output(g.cast(g.matmul(g.cast(p, "bf16"), v), "bf16", name="y"))
    return g.symbolic()


def _sloped() -> SymbolicGraph:
    """Attention with a slope for each head: of one query and one key, it looks like a row of the scores."""
    g = GraphBuilder("sloped")
    t = g.dim("n", 1, 512)
    q, k, v = (g.input(name, (8, t, 64), "bf16") for name in "qkv")
    slope = g.input("slope", (8, 1, 1), "f32", constant=True)
    i, j = g.iota(shape=(t, 1), axis=0), g.iota(shape=(1, t), axis=1)
    scores = g.matmul(q, k, transpose_b=True) + slope * g.cast(g.sub(j, i), "f32")
    g.output(g.cast(g.matmul(g.cast(g.softmax(scores), "bf16"), v), "bf16", name="y"))
    return g.symbolic()


def _part(shape: tuple[int | str, ...], **attrs: int | str) -> SymbolicGraph:
    """A slice of rows of an input."""
    g = GraphBuilder("part")
    g.dim("n", 2, 512)
    x = g.input("x", shape, "bf16")
    r = g.input("r", ("n", 64), "bf16")
    g.output(g.cast(g.slice(x, axis=0, **attrs) + r, "bf16", name="y"))
    return g.symbolic()


def _zeros(low: tuple[int | str, int], high: tuple[int | str, int]) -> SymbolicGraph:
    g = GraphBuilder("zeros")
    g.dim("n", 1, 512)
    g.output(g.cast(g.relu(g.pad(g.input("x", ("n", 64), "bf16"), low=low, high=high)), "bf16", name="y"))
    return g.symbolic()


def _counted(start: int | str) -> SymbolicGraph:
    """Places of queries behind those of a cache, as a slice of all places."""
    g = GraphBuilder("counted")
    g.dim("n", 1, 64)
    g.dim("c", 1, 64)
    q, k = g.input("q", ("n", 64), "bf16"), g.input("k", ("8*c", 64), "bf16")
    length = "n + 8*c" if isinstance(start, str) else f"n + {start}"
    places = g.slice(g.iota(shape=(length, 1), axis=0), axis=0, start=start)
    h = g.matmul(q, k, transpose_b=True) + g.cast(places, "f32")
    g.output(g.cast(h, "bf16", name="y"))
    return g.symbolic()


def _counted_from_a_scalar() -> SymbolicGraph:
    g = GraphBuilder("counted")
    n, c = g.dim("n", 1, 64), g.dim("c", 1, 64)
    q, k, begin = (
        g.input("q", (n, 64), "bf16"),
        g.input("k", (8 * c, 64), "bf16"),
        g.input("begin", (), "i32"),
    )
    places = g.iota(shape=(n, 1), axis=0) + begin
    h = g.matmul(q, k, transpose_b=True) + g.cast(places, "f32")
    g.output(g.cast(h, "bf16", name="y"))
    return g.symbolic()


def _check(graph: SymbolicGraph, machine: Machine) -> None:
    grid = grid_of(graph.dims)
    check_forms(Extents(graph, machine), grid, samples_of(grid, 24))


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (
            _elements("n"),
            "n = 2 and n = 16: rows of tensor x begin at multiples of 16 bytes with one of them",
        ),
        (_elements("n", bias=True), "rows of tensor x begin at multiples of 16 bytes with one of them alone"),
        (
            _elements("8*n"),
            "short rows are read several as one, and others are not; let the range of n begin with 8",
        ),
        (_elements("8*n", rows="m"), "let the range of n begin with 8"),
        (_reduced("softmax", (4096, "8*n"), 1), "rows that are reduced have "),
        (_reduced("reduce_sum", ("8*n", 4096), 0), "rows that are reduced have "),
        (_reduced("cumsum", (256, "8*n"), 1), "rows that are reduced have "),
        (_product((512, 128), ("8*n", 128), "softmax"), "rows that are reduced have "),
        (_product((512, 128), ("n", 128)), "rows of tensor y begin at multiples of 16 bytes"),
        (
            _product((512, "n"), (512, "n")),
            "with n = 2: tensor x: axis 0 (extent 512) has a stride of 4 bytes",
        ),
        (
            _part(("n + 8", 64), start=8),
            "a slice of tensor x lies elsewhere in it, or in another length of it",
        ),
        (
            _part(("2*n", 64), stop="n"),
            "a slice of tensor x lies elsewhere in it, or in another length of it",
        ),
        (_part((512, 64), stop="n"), "let an input be that slice alone"),
        (_zeros(("n", 0), (0, 0)), "zeros before or behind tensor x are of another number"),
        (_zeros((0, 0), ("n", 0)), "let an input hold the zeros too, without the pad"),
        (_counted("8*c"), "begins at 8*c, and a kernel's text has as a number where an index begins"),
    ],
)
def test_a_range_without_kernels_is_refused_before_any_search(
    h200: Machine, graph: SymbolicGraph, words: str
) -> None:
    def searched(_stage: str, _done: int, _total: int) -> None:
        raise AssertionError("nothing is to be searched")

    with pytest.raises(LoweringError) as refusal:
        chooser_of(Extents(graph, h200), 4, searched, LOCAL).search()
    assert words in str(refusal.value)


@pytest.mark.parametrize(
    "graph",
    [
        _elements("8*n", 8),
        _elements("8*n", 8, rows="m"),
        _elements("8*n", bias=True),
        _reduced("softmax", ("n", 4096), 1),
        _reduced("reduce_sum", ("n", 512), 1),
        _product((512, 128), ("8*n", 128)),
        _product((512, "8*n"), (512, "8*n")),
        _product(("n", 128), (512, 128)),
        _product(("n", 64, 128), ("n", 64, 128)),
        _part(("n", 64), stop="n"),
        _counted(8),
        _counted_from_a_scalar(),
        _paged(),
        _sloped(),
    ],
)
def test_ranges_that_follow_the_remedies_are_searched(h200: Machine, graph: SymbolicGraph) -> None:
    _check(graph, h200)


def test_one_element_is_lowered_as_two_where_what_repeats_could_not_be_told(h200: Machine) -> None:
    sloped = Extents(_sloped(), h200)
    assert sloped.lowered((1,)) == (2,)
    assert sloped.region((1,)) is sloped.region((2,))
    assert sloped.lowered((16,)) == (16,)
    plain = Extents(_product(("n", 128), (512, 128)), h200)
    assert plain.lowered((1,)) == (1,)
