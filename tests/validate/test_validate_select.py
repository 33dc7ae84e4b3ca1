"""The selection: deterministic, diverse, spread over the range of predicted time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
from fewer_structures import one_of

from wsopt.frontend.region import find_region
from wsopt.frontend.types import Region
from wsopt.graph.builder import GraphBuilder
from wsopt.graph.types import Graph
from wsopt.machine.load import load_machine
from wsopt.program.conditions import Overlap
from wsopt.solve.bound import max_depth
from wsopt.solve.optimum import solve
from wsopt.validate.select import (
    NEXT_BEST,
    PUBLISHED,
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
    p = g.matmul(g.input("x", (256, 512), "bf16"), g.input("w", (256, 512), "bf16"), transpose_b=True)
    g.output(g.cast(p, dtype="bf16", name="y"))
    return find_region(g.build())


@pytest.fixture(scope="module", autouse=True)
def fewer_structures() -> Iterator[None]:
    """An eleventh of the structures: a whole pool takes many seconds at each call."""
    with one_of(11):
        yield


@pytest.fixture(scope="module")
def entries(region: Region) -> tuple[Entry, ...]:
    return pool(region, MACHINE, MARGIN)


def attention(g: GraphBuilder) -> None:
    q, k, v = (g.input(name, (16, 4096, 128), "bf16") for name in "qkv")
    scores = g.matmul(q, k, transpose_b=True, name="scores")
    g.output(g.cast(g.matmul(g.cast(g.softmax(scores, axis=-1), dtype="bf16"), v), dtype="bf16", name="o"))


def graph_of(build: Callable[[GraphBuilder], None]) -> Graph:
    g = GraphBuilder("attention")
    build(g)
    return g.build()


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
    for name in ("columns", "depth", "subtiles", "group"):
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


def test_published_schedules_come_first() -> None:
    found = wishes(11, 10.0, computes=True)
    assert [wish.overlap for wish in found[:2]] == [overlap for _, overlap in PUBLISHED]
    assert all(wish.overlap is Overlap.ANY for wish in found[2:])
    assert len(found) == 11
    assert wishes(1, 10.0, computes=True) == found[:1]


@pytest.mark.solver
def test_published_schedules_are_candidates_of_loops_that_compute() -> None:
    region = find_region(graph_of(attention))
    entries = pool(region, MACHINE, MARGIN)
    for (consumers, overlap), wish in zip(PUBLISHED, wishes(2, 0.0, computes=True), strict=True):
        left = list(entries)
        for _ in range(3):  # as candidates are made: a loop that has no such schedule is left out
            found = choose(left, [], wish)
            assert found is not None
            asked = solve(found.program, MACHINE, MARGIN)
            if asked.schedule is not None:
                break
            left = [one for one in left if one.loop != found.loop]
        assert found.overlap is overlap
        assert found.structure.consumers == consumers
        assert not found.free
        assert found.describe.endswith(f", {overlap}")
        assert asked.schedule is not None
        when = {one.op: one.stage * asked.schedule.ii + one.cycle for one in asked.schedule.of("consumer0")}
        first = next(name for name in when if name.startswith("mma:scores"))
        values = min(start for name, start in when.items() if name.startswith("phase"))
        later = when[first] + asked.schedule.ii
        assert (later <= values) is (overlap is Overlap.NEXT_FIRST)


def test_loops_of_products_have_no_published_form(entries: tuple[Entry, ...]) -> None:
    assert all(entry.overlap is Overlap.ANY for entry in entries)


def test_nothing_left() -> None:
    (wish,) = wishes(1, 10.0)
    assert choose([], [], wish) is None
