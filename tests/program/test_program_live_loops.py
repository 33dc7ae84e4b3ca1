"""Which loops over K-blocks can run: held against the K-blocks of every tile at many extents."""

from __future__ import annotations

import itertools
import math

import pytest

from wsopt.program.ranges import Bounds, LiveLoops, k_iteration_counts, live_loops
from wsopt.program.types import Sharing, Structure
from wsopt.tensors.views import Bound

CAUSAL = Bound(1, -1, 0)
N, MINUS_N = ((1, "n"),), ((-1, "n"),)
SCALARS = (*range(-200, 400, 37), 0, 64, 128, 900)
LENGTHS = (*range(1, 20), *range(20, 700, 13), 700)


def structure(rows: int, depth: int, consumers: int, splits: int = 1) -> Structure:
    return Structure(rows, 64, depth, consumers, 4, Sharing.COOPERATIVE, True, False, 1, 1, splits=splits)


def within(*bounds: Bound, stream: int = 4096) -> Bounds:
    last = Bound(0, -1, stream - 1)
    return Bounds(bounds, 4096, stream, last if bounds[-1:] == (last,) else None)


def ranges(
    bounds: tuple[Bound, ...], s: Structure, row: int, height: int, span: tuple[int, int], end: int, n: int
) -> list[int]:
    """As a kernel works them out: the first K-block, the first whole one, and those behind the last of each."""
    first, last = span
    begin, whole_begin, stop, whole_end = first, first, last, last
    last_row = min(row + height, end) - 1
    for b in bounds:
        if abs(b.stream) != 1:
            whole_end = 0
            continue
        constant = b.constant + sum(k * n for k, _ in b.terms)
        ends = (b.row * row + constant, b.row * last_row + constant)
        least, most = ends if b.row >= 0 else ends[::-1]
        if b.stream < 0:
            stop = min(stop, max(most + s.depth, 0) // s.depth)
            whole_end = min(whole_end, max(least + 1, 0) // s.depth)
        else:
            begin = max(begin, max(-most, 0) // s.depth)
            whole_begin = max(whole_begin, (max(-least, 0) + s.depth - 1) // s.depth)
    begin = min(begin, last)
    stop = max(min(stop, last), begin)
    stop = begin if last_row < row else stop
    whole_begin = min(max(whole_begin, begin), stop)
    return [begin, whole_begin, max(min(whole_end, stop), whole_begin), stop]


def part_of(own: list[int], part: int, splits: int) -> list[int]:
    """A part's K-blocks out of a tile's."""
    first, last = (own[0] + number * (own[3] - own[0]) // splits for number in (part, part + 1))
    begin = min(max(own[1], first), last)
    return [first, begin, max(min(own[2], last), begin), last]


def seen(bounds: tuple[Bound, ...], s: Structure) -> LiveLoops:
    """What ran for any tile at these lengths of rows and streamed axis."""
    most, least, begins, ends, waits = 0, len(LENGTHS), False, False, False
    scalars = SCALARS if any(bound.terms for bound in bounds) else (0,)
    rows_of = LENGTHS if len(scalars) == 1 else LENGTHS[::4]
    for rows, stream, n in itertools.product(rows_of, (64, 300, 704), scalars):
        k_blocks = -(-stream // s.depth)
        for tile in range(0, rows, s.tile_rows):
            end = tile + s.tile_rows if s.splits > 1 else rows
            whole = ranges(bounds, s, tile, s.tile_rows, (0, k_blocks), end, n)
            for part, consumer in itertools.product(range(s.splits), range(s.consumers)):
                own = part_of(whole, part, s.splits)
                span = own[0], own[3]
                if s.consumers > 1:
                    own = ranges(bounds, s, tile + consumer * s.rows, s.rows, span, rows, n)
                begins |= own[0] < own[1]
                most = max(most, own[2] - own[1])
                least = min(least, own[2] - own[1])
                ends |= own[2] < own[3]
                waits |= own[0] > span[0]
    return LiveLoops(most, least, begins, ends, waits)


BOUNDS = {
    "causal": (CAUSAL,),
    "window": (Bound(-1, 1, 127), CAUSAL),
    "narrow window": (Bound(-1, 1, 31), CAUSAL),
    "both sides": (Bound(-1, 1, 100), Bound(1, -1, 100)),
    "from a K-block's first": (Bound(0, 1, -128), CAUSAL),
    "from inside a K-block": (Bound(0, 1, -100), CAUSAL),
    "to a K-block's last": (Bound(0, -1, 127),),
    "to inside a K-block": (Bound(0, -1, 99),),
    "between constants": (Bound(0, 1, -70), Bound(0, -1, 200)),
    "against the rows": (Bound(1, 1, -200),),
    "both against the rows": (Bound(1, 1, -200), Bound(-1, -1, 500)),
    "a wide band": (Bound(1, -1, 200),),
    "always": (Bound(1, 1, 5),),
    "rows alone": (Bound(1, 0, -5), CAUSAL),
    "a length": (Bound(0, -1, -1, N),),
    "from a length on": (Bound(0, 1, 0, MINUS_N),),
    "a chunk": (Bound(1, -1, 0, N),),
    "a chunk's window": (Bound(-1, 1, 127, MINUS_N), Bound(1, -1, 0, N)),
    "a length and causal": (Bound(0, -1, -1, N), CAUSAL),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_what_runs_is_live(name: str) -> None:
    for rows, depth, consumers in ((64, 64, 1), (64, 64, 2), (64, 128, 2), (64, 32, 3), (128, 64, 2)):
        s = structure(rows, depth, consumers)
        found, live = seen(BOUNDS[name], s), live_loops(within(*BOUNDS[name]), s)
        assert found.most_whole <= live.most_whole, s
        assert live.least_whole <= found.least_whole, s
        for part in ("begins", "ends", "waits"):
            assert getattr(live, part) or not getattr(found, part), (part, s)


@pytest.mark.parametrize("name", BOUNDS)
def test_what_runs_of_a_part_is_live(name: str) -> None:
    """The bound on whole K-blocks of a part is at most one above what is seen."""
    for rows, depth, consumers, splits in ((64, 64, 1, 2), (64, 32, 2, 3), (64, 128, 1, 4)):
        s = structure(rows, depth, consumers, splits)
        found, live = seen(BOUNDS[name], s), live_loops(within(*BOUNDS[name]), s)
        assert found.most_whole <= live.most_whole, s
        assert math.isinf(live.most_whole) or live.most_whole - found.most_whole <= 1, s


def test_parts_of_a_long_axis_that_a_mask_ends_have_whole_k_blocks() -> None:
    """As where few queries see all keys before them; a launch takes no fewer keys than the first query sees."""
    bounds = (Bound(1, -1, 2047),)

    def least(s: Structure) -> int:
        """Whole K-blocks of a part, at least, over tiles and lengths."""
        tiles = (
            ranges(bounds, s, row, s.tile_rows, (0, -(-stream // s.depth)), row + s.tile_rows, 0)
            for row, stream in itertools.product(range(0, 1024, s.tile_rows), range(2048, 3200, 50))
        )
        parts = (part_of(tile, number, s.splits) for tile in tiles for number in range(s.splits))
        return min(own[2] - own[1] for own in parts)

    for depth, splits in itertools.product((32, 64, 128), (2, 4, 7, 8, 16, 32)):
        s = structure(64, depth, 1, splits)
        assert not live_loops(within(*bounds), s).least_whole or least(s) > 0, s
    assert live_loops(within(*bounds), structure(64, 64, 1, 7)).least_whole
    assert not live_loops(within(*bounds), structure(64, 64, 1, 32)).least_whole


def test_what_cannot_run_is_not() -> None:
    two, wide = structure(64, 64, 2), structure(64, 128, 2)
    assert live_loops(within(*BOUNDS["narrow window"]), two).most_whole == 0
    assert (
        live_loops(within(*BOUNDS["window"]), wide).most_whole == 0
    )  # a K-block of 128 would have to begin on row + 1
    assert live_loops(within(*BOUNDS["window"]), two).most_whole == 1
    assert live_loops(within(*BOUNDS["between constants"]), two).most_whole == 1
    assert live_loops(within(*BOUNDS["rows alone"]), two).most_whole == 0
    assert live_loops(within(*BOUNDS["to a K-block's last"]), two).most_whole == 2
    assert live_loops(within(*BOUNDS["both against the rows"]), two).most_whole == 3
    assert not live_loops(within(*BOUNDS["to a K-block's last"]), two).least_whole  # a consumer without rows
    for name in ("to a K-block's last", "a wide band"):
        assert live_loops(within(*BOUNDS[name]), structure(64, 64, 1)).least_whole
    assert not live_loops(within(*BOUNDS["from a K-block's first"]), two).begins
    assert not live_loops(within(*BOUNDS["to a K-block's last"]), two).ends
    assert not live_loops(within(*BOUNDS["window"]), structure(64, 64, 1)).waits
    assert not live_loops(
        within(Bound(-1, 1, 1023), CAUSAL), wide
    ).waits  # all of a tile begins in one K-block
    assert live_loops(within(Bound(-1, 1, 1023), CAUSAL), two).waits
    assert live_loops(within(*BOUNDS["against the rows"]), two).waits
    assert not live_loops(within(Bound(1, 1, -32)), two).waits


def test_an_axis_of_whole_pages_never_ends_inside_of_a_k_block_that_divides_them() -> None:
    def end(depth: int, *more: Bound, splits: int = 1, whole: int = 256) -> LiveLoops:
        last = Bound(0, -1, 1023)
        return live_loops(Bounds((*more, last), 64, 1024, last, whole=whole), structure(64, depth, 1, splits))

    for depth in (64, 128, 256):
        assert (end(depth).ends, end(depth).least_whole) == (False, 256 // depth)
    assert (end(64, whole=32).ends, end(64, whole=32).least_whole) == (True, 0)
    assert end(64, splits=4).least_whole == 0  # a part of few may have none
    assert end(64, CAUSAL).ends
    assert end(64, CAUSAL).least_whole == 0


def test_a_scalar_may_ask_for_any_loop_but_keeps_the_width_of_a_window() -> None:
    one, two = structure(64, 64, 1), structure(64, 64, 2)
    found = live_loops(within(*BOUNDS["a length"]), one)
    assert found == LiveLoops(float("inf"), least_whole=0, begins=False, ends=True, waits=False)
    window = live_loops(within(*BOUNDS["a chunk's window"]), two)
    assert window == LiveLoops(2, least_whole=0, begins=True, ends=True, waits=True)
    other = Bound(-1, 1, 127, ((-1, "m"),)), Bound(1, -1, 0, N)
    assert live_loops(within(*other), two).most_whole == float("inf")
    assert live_loops(within(*BOUNDS["from a length on"]), two).begins


def test_the_host_counts_as_if_scalars_left_nothing_out() -> None:
    s = structure(64, 64, 2)
    for bound in (Bound(0, -1, -1, N), Bound(1, -1, 0, N)):
        assert k_iteration_counts(within(bound), s) == k_iteration_counts(within(), s)
    assert k_iteration_counts(within(Bound(0, -1, -1, N), CAUSAL), s) == k_iteration_counts(within(CAUSAL), s)


def test_the_end_of_the_stream_is_no_constant() -> None:
    end = Bound(0, -1, 4095)
    found = live_loops(within(Bound(0, 1, -128), end), structure(64, 64, 2))
    assert (found.most_whole, found.ends) == (float("inf"), True)
