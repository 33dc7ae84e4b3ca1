"""Which reductions of a graph go over the rows of its kernel, what follows them, and what is refused."""

from __future__ import annotations

import over_rows_graphs as graphs
import pytest
from tile_graphs import region_of

from wsopt.errors import LoweringError
from wsopt.frontend.types import Region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.tensors.statements import Reduction, Statement
from wsopt.tensors.views import Role


def carried(region: Region) -> list[Reduction]:
    return [item for item in region.statements if isinstance(item, Reduction) and item.over_rows]


def inside(region: Region) -> int:
    return sum(isinstance(item, Statement) and item.primitive == "inside_row" for item in region.statements)


def test_a_norm_backward_is_one_region() -> None:
    region = region_of(graphs.norm_backward)
    assert region.whole_rows
    assert [one.kind for one in carried(region)] == ["sum"]
    assert [item.primitive for item in region.ending] == ["round_bf16"]
    assert [(output.name, output.over_rows) for output in region.outputs] == [
        ("dx", False),
        ("dweight", True),
    ]
    assert region.outputs[1].view.roles == (Role.COLUMN,)


def test_rows_beyond_the_end_are_left_out_where_they_would_count() -> None:
    """r of a row of zeros is 1000, so that dy * x * r is zero there; exp(0 - 9) is not."""
    assert inside(region_of(graphs.norm_backward)) == 0
    assert inside(region_of(graphs.centred_backward)) == 0
    assert inside(region_of(graphs.extremes)) == 1


def test_a_reciprocal_of_zero_is_left_out() -> None:
    def divided(g: GraphBuilder) -> tuple[Symbol, ...]:
        x, dy = g.input("x", (64, 512), "bf16"), g.input("dy", (64, 512), "bf16")
        y = g.softmax(dy) * x / dy
        return g.cast(y, dtype="bf16", name="y"), g.reduce_sum(y, axis=0, name="total")

    assert inside(region_of(divided)) == 1


def test_statistics_that_were_kept_are_read() -> None:
    """As frameworks write it: one root a row is an input, whose rows lie next to each other."""

    def kept(g: GraphBuilder) -> tuple[Symbol, ...]:
        x, dy = g.input("x", (640, 512), "bf16"), g.input("dy", (640, 512), "bf16")
        r = g.input("r", (640, 1), "f32")
        slope = g.reduce_mean(dy * x, axis=-1, keepdims=True)
        dx = g.cast((dy - x * slope) * r, dtype="bf16", name="dx")
        return dx, g.reduce_sum(dy * x * r, axis=0, name="dweight")

    region = region_of(kept)
    assert len(carried(region)) == 1
    assert inside(region) == 0


def test_what_follows_has_columns_of_its_own() -> None:
    region = region_of(graphs.gated_bias)
    assert not region.whole_rows
    (times,) = region.ending
    assert times.primitive == "mul"
    assert carried(region)[0].name in times.reads


@pytest.mark.parametrize(
    ("rows", "columns", "over"), [(5000, 512, True), (300, 512, False), (5000, 4096, False)]
)
def test_sums_alone_are_carried_of_many_rows_of_few_columns(rows: int, columns: int, over: bool) -> None:
    region = region_of(lambda g: graphs.bias(g, rows, columns))
    assert bool(carried(region)) is over


def dependent(g: GraphBuilder) -> Symbol:
    x = g.input("x", (5000, 512), "bf16")
    y = g.softmax(x) * g.reduce_sum(x, axis=0, name="total")
    return g.cast(y, dtype="bf16", name="y")


def summed_again(g: GraphBuilder) -> tuple[Symbol, ...]:
    x = g.input("x", (5000, 512), "bf16")
    total = g.reduce_sum(x, axis=0, name="total")
    return g.cast(g.softmax(x), dtype="bf16", name="y"), g.reduce_max(total, axis=0, name="all")


def batched(g: GraphBuilder) -> tuple[Symbol, ...]:
    x = g.input("x", (4, 500, 512), "bf16")
    return g.cast(g.softmax(x), dtype="bf16", name="y"), g.reduce_sum(x, axis=1, name="total")


def of_vectors(g: GraphBuilder) -> tuple[Symbol, ...]:
    x, v = g.input("x", (5000, 512), "bf16"), g.input("v", (5000, 1), "f32")
    return g.cast(g.softmax(x) * v, dtype="bf16", name="y"), g.reduce_sum(v, axis=0, name="total")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (dependent, "it depends on total, complete when all rows have been seen; compute total before"),
        (summed_again, "node all: it depends on total"),
        (batched, "reduces one of several axes of rows"),
        (of_vectors, "over the rows of what is one value a row"),
    ],
)
def test_what_is_refused(body: graphs.GraphBuilder, told: str) -> None:
    with pytest.raises(LoweringError, match=told):
        region_of(body)
