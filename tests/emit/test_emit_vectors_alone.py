"""Tiles that no tensor has, which threads compute of vectors: outer sums and products, masks, tables of positions."""

from __future__ import annotations

import pytest
from emit_builds import Body, check_computes, check_shows, kernels_of

from wsopt.codegen import compile_kernel
from wsopt.codegen.oracle import verdict
from wsopt.emit.source import expectation
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.program.types import Sharing, Structure


def outer_sum(g: GraphBuilder) -> Symbol:
    """With arithmetic and a cast behind it."""
    a, b = g.input("a", (45, 1), "bf16"), g.input("b", (1, 1000), "bf16")
    return g.cast(g.exp(g.where(g.greater(a, b), g.add(a, b), 0.0)), "bf16", name="y")


def of_any_width(g: GraphBuilder) -> Symbol:
    return g.mul(g.input("a", (45, 1), "f32"), g.input("b", (1, 601), "f32"), name="y")


def of_batches(g: GraphBuilder) -> Symbol:
    return g.cast(g.add(g.input("a", (3, 45, 1), "f32"), g.input("b", (3, 1, 600), "f32")), "bf16", name="y")


def compared(g: GraphBuilder) -> Symbol:
    """One vector along both axes."""
    x = g.input("x", (640,), "f32")
    rows, columns = g.reshape(x, shape=(640, 1)), g.reshape(x, shape=(1, 640))
    return g.cast(g.less(rows, columns), "i8", name="y")


def conditions(g: GraphBuilder) -> Symbol:
    """The same stored as truth values."""
    x = g.input("x", (640,), "f32")
    return g.less(g.reshape(x, shape=(640, 1)), g.reshape(x, shape=(1, 640)), name="y")


def slopes(g: GraphBuilder) -> Symbol:
    """Distances of indices, which no input has, times a slope of each head."""
    i, j = (g.iota(shape=(5, 45, 600), axis=axis) for axis in (1, 2))
    distance = g.cast(g.sub(j, i), "f32")
    return g.cast(g.mul(distance, g.input("s", (5, 1, 1), "f32")), "bf16", name="y")


def normed(g: GraphBuilder) -> Symbol:
    x = g.add(g.input("a", (45, 1), "f32"), g.input("b", (1, 600), "f32"))
    return g.cast(g.rms_norm(x, g.input("w", (600,), "f32")), "bf16", name="y")


def farthest(g: GraphBuilder) -> Symbol:
    """One value a row: no tensor has a tile's elements, not even one that is stored."""
    x = g.sub(g.input("a", (45, 1), "f32"), g.input("b", (1, 601), "f32"))
    return g.reduce_max(g.abs(x), axis=1, name="y")


def long_softmax(g: GraphBuilder) -> Symbol:
    x = g.add(g.input("a", (5, 1), "f32"), g.input("b", (1, 40963), "f32"))
    return g.cast(g.softmax(x), "bf16", name="y")


def cut(rows: int, columns: int, warps: int = 4, blocks: int = 8) -> Structure:
    return Structure(
        rows, columns, 1, 1, warps, Sharing.COOPERATIVE, False, False, 1, 1, occupancy=blocks
    )  # fmt: skip


CASES: dict[str, tuple[Body, Structure]] = {
    "outer sum": (outer_sum, cut(4, 512)),
    "of any width": (of_any_width, cut(4, 512)),
    "of batches": (of_batches, cut(4, 512)),
    "compared": (compared, cut(4, 512)),
    "conditions": (conditions, cut(4, 512)),
    "slopes": (slopes, cut(4, 512)),
    "normed": (normed, cut(2, 1024)),
    "farthest": (farthest, cut(2, 1024)),
    "long softmax": (long_softmax, cut(1, 2048)),
}
emitted = kernels_of(CASES)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_it_computes_what_the_graph_means(name: str) -> None:
    check_computes(emitted(name))


@pytest.mark.compiler
@pytest.mark.parametrize("name", ["outer sum", "slopes"])
def test_the_compiler_finds_no_more_than_a_threads_share_of_registers(name: str) -> None:
    made = emitted(name)
    assert not verdict(compile_kernel(made.source), expectation(made.verified))


def test_a_vector_is_loaded_as_one_and_whole_accesses_are_stored() -> None:
    source = emitted("outer sum").source
    assert "a_value = gl.load(a_ptr + rows, mask=rows < row_extent" in source
    assert "b_value = gl.load(b_ptr + columns, mask=columns // 8 < column_extent // 8" in source
    assert "this schedule takes multiples of 8" in source


def test_a_vector_of_each_batch_element_is_loaded_16_bytes_at_a_time() -> None:
    """The compiler is told of what its stride is a multiple, and a launch checks it; of one along rows it is not."""
    source = emitted("of batches").source
    assert "    b_batch_stride = b_batch_stride // 4 * 4\n" in source
    assert "tensor b: strides have to be multiples of 16 bytes" in source
    assert "a_batch_stride //" not in source
    assert "tensor a: strides" not in source


def test_an_extent_that_no_input_has_is_the_graphs() -> None:
    source = emitted("slopes").source
    assert "    row_extent = 45\n" in source
    assert "    column_extent = 600\n" in source
    assert "torch.empty([s.shape[0], 45, 600]" in source


def test_a_run_shows_what_its_stores_need() -> None:
    made = emitted("of any width")
    check_shows(made, "columns, 0) < column_extent", "columns, 0) < column_extent + 1", 1)
    check_shows(made, "rows, 1) < row_extent", "rows, 1) < row_extent + 1", 1)
    check_shows(emitted("outer sum"), "    gdc_wait()\n", "")
