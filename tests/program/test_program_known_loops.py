"""Loops over K-blocks at extents that are known: those that run for some tile there, and no others."""

from __future__ import annotations

import itertools

import pytest
from test_program_live_loops import BOUNDS, CAUSAL, part_of, ranges, structure

from wsopt.program.ranges import Bounds, LiveLoops, live_loops
from wsopt.program.types import Structure
from wsopt.tensors.views import K_BLOCK, Bound, Role

KNOWN = {name: bounds for name, bounds in BOUNDS.items() if not any(bound.terms for bound in bounds)}


def at(bounds: tuple[Bound, ...], rows: int, stream: int) -> Bounds:
    last = Bound(0, -1, stream - 1)
    return Bounds((*bounds, last), rows, stream, last, known=K_BLOCK)


def seen(bounds: Bounds, s: Structure) -> LiveLoops:
    """What runs for any tile, found as a kernel finds it."""
    found, rowless = list[tuple[list[int], list[int]]](), False
    for tile in range(0, bounds.rows, s.tile_rows):
        end = tile + s.tile_rows if s.splits > 1 and any(b.row for b in bounds.every) else bounds.rows
        whole = ranges(bounds.every, s, tile, s.tile_rows, (0, -(-bounds.stream // s.depth)), end, 0)
        for part, consumer in itertools.product(range(s.splits), range(s.consumers)):
            own = parted = part_of(whole, part, s.splits)
            if s.consumers > 1:
                row, span = tile + consumer * s.rows, (parted[0], parted[3])
                own = ranges(bounds.every, s, row, s.rows, span, bounds.rows, 0)
                rowless |= row >= bounds.rows
            found.append((parted, own))
    counts = [own[2] - own[1] for _, own in found]
    return LiveLoops(
        max(counts),
        min(filter(None, counts), default=0),
        begins=any(own[0] < own[1] for _, own in found),
        ends=any(own[2] < own[3] for _, own in found),
        waits=any(own[0] > whole[0] for whole, own in found),
        rests=any(own[3] < whole[3] for whole, own in found),
        rowless=rowless,
    )


@pytest.mark.parametrize("name", ["nothing", *KNOWN])
def test_what_runs_is_live_and_nothing_else(name: str) -> None:
    cuts = ((64, 64, 1, 1), (64, 128, 2, 1), (64, 64, 2, 1), (64, 32, 3, 1), (64, 64, 1, 4), (64, 32, 2, 3))
    for (rows, stream), cut in itertools.product(((512, 512), (320, 500), (500, 320), (1, 40)), cuts):
        bounds, s = at(KNOWN.get(name, ()), rows, stream), structure(*cut)
        assert live_loops(bounds, s) == seen(bounds, s), (rows, stream, cut)


def test_a_known_end_that_cuts_no_k_block_has_no_loop_with_masks() -> None:
    one, two = structure(64, 64, 1), structure(64, 64, 2)
    found = live_loops(at((), 512, 512), two)
    assert (found.most_whole, found.least_whole) == (8, 8)
    assert (found.ends, found.rests, found.rowless) == (False, False, False)
    assert live_loops(at((), 320, 320), two).rowless  # the second consumer's rows of the last tile
    assert live_loops(at((), 500, 500), one).ends
    assert live_loops(at((CAUSAL,), 512, 512), one).ends


def test_an_end_that_is_known_beside_rows_that_are_not_is_a_constant() -> None:
    last = Bound(0, -1, 511)
    known = Bounds((last,), 64, 512, last, known=frozenset({Role.STREAM}))
    found = live_loops(known, structure(64, 64, 1))
    assert (found.most_whole, found.ends) == (8, False)
    assert live_loops(known, structure(64, 96, 1)).ends
