"""What it costs device memory that blocks share tiles of operands, against figures worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tile_graphs import plain

from wsopt.machine import Machine
from wsopt.perf.gpcs import asked_again_bytes
from wsopt.perf.price import lower
from wsopt.program.types import Sharing, Structure

CUT = Structure(64, 64, 64, 1, 4, Sharing.COOPERATIVE, True, False, 1, 1)


@pytest.fixture
def card(h200: Machine) -> Machine:
    """128 SMs in GPCs of 16."""
    return replace(h200, sm_count=128, sms_per_gpc=16)


def again(card: Machine, rows: int, columns: int, group: int = 1) -> float:
    """Bytes that sharing costs a product of so many rows and columns with K of 1024, in tiles of 64 x 64."""
    return asked_again_bytes(lower(plain(rows, columns, 1024), replace(CUT, group=group), card), card)


def test_a_tile_of_one_block_costs_nothing_more(card: Machine) -> None:
    assert again(card, 64, 64) == 0


def test_two_neighbours_share_rows(card: Machine) -> None:
    """An eighth of the rows' bytes, and a fifth where the two are of two GPCs, which is so of one pair in 16."""
    assert again(card, 64, 128) == pytest.approx(64 * 1024 * 2 * (0.125 + 0.2 / 16))


def test_the_height_of_a_group_says_how_far_apart_blocks_are_that_share(card: Machine) -> None:
    """16 tile rows of two columns: in groups of one the blocks of a row are neighbours, and those of a column two
    apart; in one group of 16 those of a column are neighbours, and those of a row of different GPCs.
    """
    rows, columns = 1024 * 1024 * 2, 128 * 1024 * 2
    alone = rows * (0.125 + 0.2 / 16) + columns * (0.25 * 15 / 16 + 0.2 * 15 * 2 / 16)
    together = rows * (0.125 + 0.2) + columns * (0.25 * 15 / 16 + 0.2 * 15 / 16)
    assert again(card, 1024, 128) == pytest.approx(alone)
    assert again(card, 1024, 128, group=16) == pytest.approx(together)
