"""Launches whose grid has an axis for each of the tiles' axes: a block's numbers along them say where its tile is."""

from __future__ import annotations

import pytest
from element_graphs import positions
from emit_builds import Body, build, check_computes, check_shows, graph_of

from wsopt.emit.integers import named
from wsopt.emit.recipe import Recipe
from wsopt.emit.recipe_of import launch_recipe
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.program.launch_grid import launch_axes
from wsopt.program.types import Sharing, Structure
from wsopt.tensors.views import Role


def turned(g: GraphBuilder) -> Symbol:
    """Halves of heads, turned by their position's angles: every call has as many columns."""
    x = g.input("x", (2, 5, 3, 128), "bf16")
    cos, sin = g.input("c", (5, 1, 64), "bf16"), g.input("s", (5, 1, 64), "bf16")
    a, b = g.slice(x, axis=3, stop=64), g.slice(x, axis=3, start=64)
    return g.cast(g.concat(a * cos - b * sin, b * cos + a * sin, axis=3), "bf16", name="y")


def of_heads(g: GraphBuilder) -> Symbol:
    """Tables of batches and of heads: four axes, of whose columns a call may have more."""
    x, table = g.input("x", (2, 3, 6, 520), "bf16"), g.input("t", (2, 1, 6, 520), "bf16")
    return g.cast(x + table + g.input("u", (3, 1, 520), "bf16"), "bf16", name="y")


def many_rows(g: GraphBuilder) -> Symbol:
    x, z = g.input("x", (16384, 1032), "bf16"), g.input("z", (16384, 1032), "bf16")
    return g.cast(x * z, "bf16", name="y")


def cut(rows: int, columns: int) -> Structure:
    return Structure(rows, columns, 1, 1, 4, Sharing.COOPERATIVE, False, False, 1, 1, occupancy=8)


def recipe(body: Body, s: Structure) -> Recipe:
    return launch_recipe(build(graph_of(body), s).verified)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "s"), [(positions, cut(2, 256)), (turned, cut(4, 64)), (of_heads, cut(2, 256))]
)
def test_it_computes_what_the_graph_means(body: Body, s: Structure) -> None:
    check_computes(build(graph_of(body), s))


@pytest.mark.slow
def test_a_run_shows_blocks_that_take_an_axis_for_another() -> None:
    made = build(graph_of(positions), cut(2, 256))
    place = "batch, row_tile, column_tile = gl.program_id(2), gl.program_id(1), gl.program_id(0)"
    check_shows(made, place, place.replace("id(2)", "id(1)"))
    check_shows(made, place, place.replace("id(0)", "id(2)"))


def test_neighbours_in_memory_are_the_first_axis() -> None:
    grid = recipe(positions, cut(2, 256)).grid
    assert grid == (named("column_tiles"), named("row_tiles"), named("batches"))


def test_columns_of_which_every_call_has_as_many_need_no_axis() -> None:
    assert recipe(turned, cut(4, 64)).grid == (named("row_tiles"), named("groups"), named("batches"))
    source = build(graph_of(turned), cut(4, 64)).source
    assert "column_extent" not in source.split("OPTIONS")[0]
    assert "ROW_LENGTH = gl.constexpr(64)" in source


@pytest.mark.parametrize(("body", "s"), [(of_heads, cut(2, 256)), (many_rows, cut(2, 1024))])
def test_numbers_are_divided_where_a_grid_has_too_few_axes_or_too_short_ones(
    body: Body, s: Structure
) -> None:
    made = build(graph_of(body), s)
    assert recipe(body, s).grid == (named("blocks"),)
    assert "tile_coordinates(gl.program_id(0)" in made.source


def test_a_launch_refuses_more_tiles_than_an_axis_has() -> None:
    asked = [
        (str(check.left), check.right)
        for check in recipe(positions, cut(2, 256)).checks
        if check.relation == "at_most"
    ]
    assert (str(named("row_tiles")), 65535) in asked
    assert (str(named("batches")), 65535) in asked
    assert str(named("column_tiles")) not in dict(asked), "the first axis has as many as a tensor can"


def test_blocks_that_take_several_tiles_have_one_axis() -> None:
    extents = {Role.BATCH: 4, Role.ROW: 64, Role.COLUMN: 512}
    assert launch_axes(extents, cut(2, 256), columns=True) == (Role.COLUMN, Role.ROW, Role.BATCH)
    assert not launch_axes(
        extents, Structure(2, 256, 1, 1, 4, Sharing.COOPERATIVE, True, False, 1, 1), columns=True
    )
    assert not launch_axes({**extents, Role.BATCH: 4096 + 1}, cut(2, 256), columns=True), (
        "16 times as many are too many"
    )
