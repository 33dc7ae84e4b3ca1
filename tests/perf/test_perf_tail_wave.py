"""The tail wave against tiles counted by hand, on a card of round figures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tile_graphs import plain

from wsopt.frontend.types import Region
from wsopt.machine import Machine
from wsopt.perf.effective_ii import path_cycles, steady_loop
from wsopt.perf.price import lower
from wsopt.program.demand import Demand
from wsopt.program.types import Sharing, Structure

CUT = Structure(64, 128, 64, 2, 4, Sharing.COOPERATIVE, True, False, 1, 4)
TILE = 128 * 128
"""Bytes of the K-block of 128 rows, as of 128 columns."""


@pytest.fixture(scope="module")
def card(h200: Machine) -> Machine:
    """100 SMs at 1000 MHz, 64 bytes a cycle each from L2 and 32 as a share of a GPC; 128 to one alone."""
    return replace(
        h200,
        sm_count=100,
        clock_mhz=1000.0,
        sustained_clock_mhz=1000.0,
        power_clock_mhz=10_000.0,
        l2_bandwidth=6.4e12,
        l2_distinct_bandwidth=3.2e12,
        tma_bytes_per_cycle=128.0,
    )


def demands(region: Region, cut: Structure, card: Machine) -> tuple[Demand, Demand]:
    """What a K-block asks for in the tail wave, and in others."""
    program = lower(region, cut, card)
    assert program.last_demand is not None
    assert program.demand is not None
    return program.last_demand, program.demand


def test_a_whole_wave_asks_for_what_all_do(card: Machine) -> None:
    region = plain(1280, 1280, 512)
    last, whole = demands(region, CUT, card)
    assert last == whole


def test_the_sms_that_are_left(card: Machine) -> None:
    region = plain(1280, 1536, 512)
    last, whole = demands(region, CUT, card)
    assert last == replace(whole, active=0.2)


@pytest.mark.parametrize(
    ("rows", "columns", "group", "down", "across"),
    [
        # 11 x 10 tiles, of which the last ten are the last row's: a quarter of one is inside.
        (1280 + 32, 1280, 1, 0.25, 1.0),
        # 10 x 11 tiles in groups of ten rows: the last ten are the last column's.
        (1280, 1280 + 64, 10, 1.0, 0.5),
        # In groups of one row they are columns 1 to 10 of the last row, one of which is cut.
        (1280, 1280 + 64, 1, 1.0, 0.95),
        # Groups of four rows: of the last group's two rows the last five columns, one of which is cut.
        (1280, 1280 + 64, 4, 1.0, 0.9),
    ],
)
def test_the_last_tiles_end_with_the_tensor(
    card: Machine, rows: int, columns: int, group: int, down: float, across: float
) -> None:
    region, cut = plain(rows, columns, 512), replace(CUT, group=group)
    found, whole = demands(region, cut, card)
    assert whole.lines == 2 * TILE
    assert found.active == 0.1
    assert found.lines == pytest.approx((down + across) * TILE)
    assert found.gpc / whole.gpc == pytest.approx(found.lines / whole.lines)
    assert found.data / whole.data == pytest.approx(found.lines / whole.lines)
    assert (found.tensor, found.energy) == (whole.tensor, whole.energy)


@pytest.mark.parametrize(
    ("active", "cycles"),
    [
        # 32 KiB: 512 cycles of an SM's own share; 10 % of the card has ten times as much, one SM 128 a cycle.
        (1.0, 512),
        (0.75, 384),
        (0.25, 256),
        (0.01, 256),
    ],
)
def test_few_sms_have_a_larger_share_of_the_paths(card: Machine, active: float, cycles: int) -> None:
    demand = Demand(
        lines=2 * TILE, data=2 * TILE, touched=2 * TILE, gpc=0, tensor=1, energy=0, between=0, alone=False,
        active=active,
    )  # fmt: skip
    assert path_cycles(demand, card, 1000.0) == cycles
    # Neighbours that are gone share no copies: a GPC's SMs fetch all that each of them reads, but not more.
    wide = replace(demand, gpc=TILE)
    assert path_cycles(wide, card, 1000.0) == max(cycles, min(512, round(1024 * active)))
    # Of rows that straddle lines an SM takes whole lines, however few there are.
    straddling = replace(demand, data=TILE)
    assert path_cycles(straddling, card, 1000.0) == cycles


def test_a_loop_of_few_sms_is_no_slower(card: Machine) -> None:
    for region in (plain(1280 + 32, 1280, 512), plain(1280, 1280 + 64, 512)):
        for slots in (1, 2, 8):
            last, whole = (steady_loop(one, card, slots) for one in demands(region, CUT, card))
            assert last.k_block <= whole.k_block
            assert last.ahead <= whole.ahead
