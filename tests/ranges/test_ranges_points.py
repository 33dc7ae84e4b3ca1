"""Classes of extents, their weights, and the samples among them."""

from __future__ import annotations

import itertools
import math

import pytest

from wsopt.graph.dims import Dim
from wsopt.ranges.points import class_ends, grid_of, samples_of

TOKENS = Dim("tokens", 1, 8192, ((1, 1.0), (16, 1.0), (500, 2.0), (4096, 4.0)))
BATCH = Dim("batch", 2, 20)


def test_tiles_of_a_class_are_as_many_at_both_ends() -> None:
    ends = class_ends(TOKENS)
    for before, end in itertools.pairwise([0, *ends]):
        for tile in (64, 128, 192, 256, 384):
            assert math.ceil((before + 1) / tile) == math.ceil(end / tile)


def test_ends_and_typical_extents_are_classes_by_themselves() -> None:
    ends = class_ends(TOKENS)
    assert {1, 16, 500, 4096, 8192} <= {*ends}
    assert ends == sorted(set(ends))
    assert class_ends(Dim("one", 7, 7)) == [7]
    assert class_ends(Dim("long", 100, 10**6))[-1] == 10**6
    assert len(class_ends(Dim("long", 1, 10**6))) < 700


def test_weights_go_by_typical_extents_and_a_little_by_octaves() -> None:
    grid = grid_of([TOKENS])
    weights = dict(zip(grid.cells, grid.weights(), strict=True))
    assert math.isclose(sum(weights.values()), 1.0)
    assert weights[(4096,)] > weights[(500,)] > weights[(16,)] > weights[(512,)] > 0
    plain = grid_of([BATCH]).weights()
    assert math.isclose(sum(plain), 1.0)


def test_cells_of_two_dimensions_and_their_neighbours() -> None:
    grid = grid_of([BATCH, Dim("tokens", 1, 40)])
    assert grid.ends == ((2, 16, 20), (1, 16, 32, 40))
    assert grid.cells[5] == (16, 16)
    assert grid.first((16, 16)) == (3, 2)
    assert grid.first((2, 1)) == (2, 1)
    assert (5, 6) in grid.neighbours
    assert (5, 9) in grid.neighbours
    assert (3, 4) not in grid.neighbours
    assert len(grid.neighbours) == 3 * 3 + 2 * 4


def test_cells_of_several_dimensions_are_thinned_out() -> None:
    grid = grid_of([TOKENS, Dim("batch", 1, 4096, ((8, 1.0),))])
    assert len(grid.cells) < 800
    assert {1, 16, 500, 4096, 8192} <= {*grid.ends[0]}
    assert {1, 8, 4096} <= {*grid.ends[1]}


@pytest.mark.parametrize("most", [4, 12, 24])
def test_samples_are_cells_and_hold_what_is_typical(most: int) -> None:
    grid = grid_of([TOKENS])
    samples = samples_of(grid, most)
    assert {*samples} <= {*grid.cells}
    assert {(1,), (16,), (500,), (4096,), (8192,)} <= {*samples}
    assert len(samples) <= max(most, 5)


def test_samples_of_two_dimensions_are_combinations() -> None:
    grid = grid_of([TOKENS, BATCH])
    samples = samples_of(grid, 24)
    assert {(1, 2), (1, 20), (8192, 2), (8192, 20)} <= {*samples} <= {*grid.cells}
    assert len(samples) <= 30
