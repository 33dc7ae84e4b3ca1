"""Values of rows are loaded a tile ahead where a block knows its next tile; what is rounded is rounded in pairs."""

from __future__ import annotations

from dataclasses import replace

import over_rows_graphs
import pytest
from emit_builds import SEEDS, build, case, graph_of
from row_builds import structure

from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.program.types import Structure


def scaled(g: GraphBuilder, rows: int = 37, columns: int = 512) -> Symbol:
    """Rows, each times a value of its own, reduced, so that their tiles stream."""
    x, s = g.input("x", (rows, columns), "bf16"), g.input("s", (rows, 1), "f32")
    return g.cast(g.softmax(x * s), dtype="bf16", name="y")


def residual(g: GraphBuilder, rows: int = 37, columns: int = 512) -> tuple[Symbol, Symbol]:
    """A sum that is rounded, stored, and normed as it was rounded."""
    x, r, w = g.input("x", (rows, columns), "bf16"), g.input("r", (rows, columns), "bf16"), 0.5
    h = g.cast(x * w + g.tanh(r), dtype="bf16", name="h")
    return h, g.cast(g.softmax(h), dtype="bf16", name="y")


def summed(g: GraphBuilder, rows: int = 37, columns: int = 512) -> tuple[Symbol, Symbol]:
    """A sum of two tensors of bf16 that is rounded at once, and normed."""
    x, r = g.input("x", (rows, columns), "bf16"), g.input("r", (rows, columns), "bf16")
    h = g.cast(x + r, dtype="bf16", name="h")
    return h, g.cast(g.softmax(h), dtype="bf16", name="y")


AHEAD = "s_next = gl.load"


def test_values_of_rows_come_a_tile_ahead() -> None:
    made = build(graph_of(scaled), structure(2, 512, 2))
    text = made.source
    assert text.count(AHEAD) == 2, "before the first tile, and in each"
    body = text[text.index("for tile in", text.index("def consumer")) :]
    assert body.index("s_value = s_next") < body.index(AHEAD) < body.index("softmax_0_0_")
    assert text.index("gdc_wait()", text.index("def consumer")) < text.index(AHEAD)
    for processors in (1, 3):
        assert case(made.graph, processors).fault(text, SEEDS) is None


@pytest.mark.parametrize("changed", [{"dynamic": True}, {"persistent": False, "occupancy": 4}])
def test_not_where_the_next_tile_is_not_known(changed: dict[str, bool | int]) -> None:
    s: Structure = replace(structure(2, 512), **changed)  # type: ignore[arg-type]
    made = build(graph_of(scaled), s)
    assert "s_next" not in made.source
    assert case(made.graph, 3).fault(made.source, SEEDS) is None


@pytest.mark.parametrize(
    ("said", "other"),
    [
        ("next_rows = rows + gl.num_programs(0) * TILE_ROWS", "next_rows = rows + TILE_ROWS"),
        ("next_rows = rows + gl.num_programs(0) * TILE_ROWS", "next_rows = rows"),
        ("gl.program_id(0) * TILE_ROWS + index * CONSUMER_ROWS", "gl.program_id(0) * TILE_ROWS"),
    ],
)
def test_values_of_other_rows_are_found(said: str, other: str) -> None:
    made = build(graph_of(scaled), structure(2, 512, 2))
    assert made.source.count(said) == 1
    assert case(made.graph, 3).fault(made.source.replace(said, other), SEEDS) is not None


def test_the_kernel_before_is_waited_for() -> None:
    made = build(graph_of(scaled), structure(2, 512, 2))
    first = made.source.index("gdc_wait()", made.source.index("def consumer"))
    text = made.source[:first] + "pass" + made.source[first + len("gdc_wait()") :]
    assert case(made.graph, 3).fault(text, SEEDS) is not None


def test_what_is_rounded_and_computed_with_is_rounded_in_pairs() -> None:
    for s in (structure(2, 512), replace(structure(2, 512), persistent=False, occupancy=4)):
        made = build(graph_of(residual), s)
        assert made.source.count("round_bf16(") == 2, "its definition, and h; y is only stored"
        assert case(made.graph, 3).fault(made.source, SEEDS) is None


def test_one_sum_of_narrow_numbers_is_left_to_the_compiler() -> None:
    made = build(graph_of(summed), structure(2, 512))
    assert "round_bf16" not in made.source
    assert case(made.graph, 3).fault(made.source, SEEDS) is None


def test_each_tile_is_loaded_once() -> None:
    """A tensor that a later phase reads alone is loaded before that phase, and not before the first as well."""

    def late(g: GraphBuilder) -> Symbol:
        x, r = g.input("x", (37, 512), "bf16"), g.input("r", (37, 512), "bf16")
        return g.cast(g.softmax(x) + r, dtype="bf16", name="y")

    made = build(graph_of(late), replace(structure(2, 512), persistent=False, occupancy=4))
    assert made.source.count("r_value = gl.load") == 1
    assert case(made.graph, 3).fault(made.source, SEEDS) is None


def test_columns_lie_together_where_rows_are_summed() -> None:
    made = build(graph_of(over_rows_graphs.saved_backward), structure(4, 512, 1, 8))
    assert "gl.BlockedLayout([1, 8], [1, 32], [4, 2], [1, 0])" in made.source, (
        "512 columns are two warps' only"
    )
    whole = build(graph_of(over_rows_graphs.saved_backward), structure(2, 512, 1, 4))
    assert "gl.BlockedLayout([1, 8], [1, 32], [2, 2], [1, 0])" in whole.source
    wide = build(graph_of(lambda g: over_rows_graphs.saved_backward(g, 37, 2048)), structure(4, 2048, 1, 8))
    assert "gl.BlockedLayout([1, 8], [1, 32], [1, 8], [1, 0])" in wide.source
    assert "+= gl.sum(" in wide.source
    assert "gl.full([TILE_COLUMNS]" in wide.source
    assert case(wide.graph, 3).fault(wide.source, SEEDS) is None
