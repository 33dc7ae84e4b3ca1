"""The order of tiles: K-blocks counted one by one, tiles dealt out as they are said to be."""

from __future__ import annotations

import ast
import inspect
import random

import pytest

from wsopt.program import tile_order
from wsopt.program.ranges import k_blocks_between
from wsopt.program.tile_order import deal, k_block_counts, order_table, rasterization_order, tiles_together


def counted(bounds: list[tuple[int, int, int]], first: int, last: int, k_block: range) -> bool:
    """Whether every bound lets some element of the K-block count for some of the rows."""
    return all(
        any(row * i + stream * j + constant >= 0 for i in range(first, last + 1) for j in k_block)
        for row, stream, constant in bounds
    )


@pytest.mark.parametrize("seed", range(40))
def test_k_blocks_are_those_in_which_an_element_counts(seed: int) -> None:
    drawn = random.Random(seed)
    rows, stream, tile_rows, depth = (drawn.randint(1, most) for most in (40, 60, 16, 12))
    bounds = [
        (drawn.randint(-2, 2), drawn.choice((-1, 1)), drawn.randint(-50, 50))
        for _ in range(drawn.randint(0, 3))
    ]
    expected = []
    for first in range(0, rows, tile_rows):
        last = min(first + tile_rows, rows) - 1
        k_blocks = [range(start, start + depth) for start in range(0, stream, depth)]
        expected.append(sum(counted(bounds, first, last, k_block) for k_block in k_blocks))
    found = k_block_counts(
        rows, tile_rows, lambda row, last: k_blocks_between(bounds, row, last, 0, -(-stream // depth), depth)
    )
    assert found == expected


def test_the_last_waves_go_by_length() -> None:
    counts = [5, 3, 8]
    assert tiles_together(counts, 30, 2) == 6
    assert tiles_together(counts, 30, 5) == 15
    assert tiles_together(counts, 9, 5) == 9
    assert rasterization_order(counts, 9, 6) == [0, 1, 2, 5, 8, 3, 6, 4, 7]
    assert rasterization_order(counts, 6, 0) == list(range(6))


def test_a_tile_is_for_the_block_that_comes_free_first() -> None:
    # After the first two the blocks are free at 6 and 4, then at 6 and 13: a tile takes its K-blocks and one more.
    assert deal([5, 3, 8], [0, 1, 2, 3], 2) == [[0, 3], [1, 2]]
    assert order_table([5, 3, 8], 3, 2) == [3, 4, 6, 2, 0, 1]


def test_the_text_stands_by_itself() -> None:
    found = ast.parse(inspect.getsource(tile_order))
    imported = {
        name.name if isinstance(node, ast.Import) else f"{node.module}.{name.name}"
        for node in ast.walk(found)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    assert imported == {"heapq", "typing.Any"}, "templates/kernel.py.jinja imports these and no others for it"
