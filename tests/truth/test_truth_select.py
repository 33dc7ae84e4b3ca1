"""The selection: deterministic, diverse, spread over the range of predicted time."""

from __future__ import annotations

import itertools

import pytest

from wsopt.graph.builder import GraphBuilder
from wsopt.machine.load import load_machine
from wsopt.solve.bound import max_depth
from wsopt.tile.region import find_region
from wsopt.tile.types import Region
from wsopt.truth.select import (
    NEXT_BEST,
    REACH,
    SHALLOW_RING,
    SPREAD,
    Entry,
    choose,
    held_to,
    pool,
    wishes,
)

MACHINE = load_machine("h200")
MARGIN = 24


@pytest.fixture(scope="module")
def region() -> Region:
    g = GraphBuilder("small")
    p = g.matmul(g.input("x", (2048, 1024), "bf16"), g.input("w", (2048, 1024), "bf16"), transpose_b=True)
    g.output(g.cast(p, dtype="bf16", name="y"))
    return find_region(g.build())


@pytest.fixture(scope="module")
def entries(region: Region) -> tuple[Entry, ...]:
    return pool(region, MACHINE, MARGIN)


def chosen(entries: tuple[Entry, ...], count: int) -> list[Entry]:
    taken = [entries[0]]
    for wish in wishes(count - 1, entries[0].bound_us):
        found = choose([e for e in entries if e not in taken], taken, wish)
        assert found is not None
        taken.append(found)
    return taken


def test_the_pool_begins_with_the_best(entries: tuple[Entry, ...]) -> None:
    bounds = [entry.bound_us for entry in entries]
    assert min(bounds) == bounds[0]
    assert max(bounds) <= REACH * bounds[0]
    assert {entry.slots for entry in entries} == {0, 1, 2, 3}


def test_a_ring_is_held_to_its_slots(entries: tuple[Entry, ...]) -> None:
    for slots in (1, 2, 3):
        entry = next(entry for entry in entries if entry.slots == slots)
        assert max_depth(entry.program, held_to(entry.program, MACHINE, slots)) == slots


def test_the_same_every_time(region: Region, entries: tuple[Entry, ...]) -> None:
    names = [entry.describe for entry in chosen(entries, 12)]
    assert names == [entry.describe for entry in chosen(pool(region, MACHINE, MARGIN), 12)]
    assert len(set(names)) == 12


def test_diverse(entries: tuple[Entry, ...]) -> None:
    taken = chosen(entries, 12)
    for name in ("consumers", "consumer_warps", "sharing", "persistent", "rows"):
        assert len({getattr(entry.structure, name) for entry in taken}) >= 2, name
    for name in ("columns", "depth", "pieces", "group"):
        assert len({getattr(entry.structure, name) for entry in taken}) >= 3, name
    assert sum(entry.slots > 0 for entry in taken) == 2


def test_spread_over_the_range(entries: tuple[Entry, ...]) -> None:
    ratios = sorted(entry.bound_us / entries[0].bound_us for entry in chosen(entries, 12))
    assert ratios[0] == 1
    assert ratios[-1] > 2
    assert max(later / earlier for earlier, later in itertools.pairwise(ratios)) < 1.6


@pytest.mark.parametrize(
    ("count", "kinds"), [(1, (1, 0, 0)), (2, (1, 0, 1)), (11, (3, 6, 2)), (23, (6, 13, 4))]
)
def test_places(count: int, kinds: tuple[int, int, int]) -> None:
    found = [wish.why for wish in wishes(count, 10.0)]
    assert tuple(found.count(why) for why in (NEXT_BEST, SPREAD, SHALLOW_RING)) == kinds


def test_nothing_left() -> None:
    (wish,) = wishes(1, 10.0)
    assert choose([], [], wish) is None
