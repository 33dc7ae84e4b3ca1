"""Equal shares of all K-blocks, cut by hand: the busiest block's work, and what is left for others to add up."""

from __future__ import annotations

import itertools

import pytest

from wsopt.lowering.equal_shares import begin_of, of_products, shares_of
from wsopt.program.facts import Shares


@pytest.mark.parametrize(("total", "blocks"), [(0, 3), (2, 3), (7, 3), (9, 3), (1000, 132)])
def test_shares_cover_all_and_differ_by_one(total: int, blocks: int) -> None:
    cuts = [begin_of(block, blocks, total) for block in range(blocks + 1)]
    shares = {after - before for before, after in itertools.pairwise(cuts)}
    assert (cuts[0], cuts[-1]) == (0, total)
    assert max(shares) - min(shares) <= 1


def test_tiles_that_fit_their_blocks_leave_nothing() -> None:
    assert shares_of([5, 5, 5], 3) == Shares(1, 5, parts=0, most=1)
    assert shares_of([5, 5, 5, 5], 2) == Shares(2, 10, parts=0, most=1)


def test_a_long_tile_is_cut_and_short_ones_are_not() -> None:
    """Twelve K-blocks for three blocks: nine of the first tile make two whole shares and a K-block of the last one,
    which has the three short tiles whole.
    """
    assert shares_of([9, 1, 1, 1], 3) == Shares(4, 4, parts=3, most=3)


def test_a_tile_without_k_blocks_counts_for_one() -> None:
    assert shares_of([0, 0, 4], 2) == Shares(3, 3, parts=2, most=2)


def test_a_part_of_a_k_block_counts_as_a_whole_one() -> None:
    assert shares_of([2.5], 1) == Shares(1, 3, parts=0, most=1)


def test_more_blocks_than_k_blocks() -> None:
    assert shares_of([2, 1], 5) == Shares(1, 1, parts=2, most=2)


def test_of_products_whole_waves_stay_whole() -> None:
    """Seven tiles for three blocks: two each, and a third of the last one's twelve iterations."""
    assert of_products(7, 12, 3) == Shares(3, 28, parts=3, most=3, cut=4 / 28)
    assert of_products(6, 12, 3) == Shares(2, 24, parts=0, most=1, cut=0.0)
    assert of_products(2, 12, 3) == Shares(2, 8, parts=4, most=2)
