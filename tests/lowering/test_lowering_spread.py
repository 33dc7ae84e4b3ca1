"""Loops whose lengths are known at run time alone are taken to be spread evenly between none and all."""

from __future__ import annotations

import itertools
import math

import pytest
from emit_builds import graph_of

from wsopt.frontend.region import find_region
from wsopt.frontend.types import Region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.lowering.lower import unpriced
from wsopt.lowering.spread import mean_share, shares
from wsopt.machine import load_machine
from wsopt.program.types import Sharing, Structure

KEYS = 1024


def attention(g: GraphBuilder, of: tuple[int, ...] | None, batch: int = 6, heads: int = 2) -> Symbol:
    """Keys end at lengths of this shape; at none if there are no lengths."""
    q = g.input("q", (batch, heads, 4, 64), "bf16")
    k, v = (g.input(name, (batch, heads, KEYS, 64), "bf16") for name in "kv")
    s = g.matmul(q, k, transpose_b=True)
    if of is not None:
        index = g.iota(shape=(batch, heads, 4, KEYS), axis=3)
        s = g.where(g.less(index, g.input("n", of, "i32")), s, -math.inf)
    p = g.cast(g.softmax(s, axis=-1), dtype="bf16")
    return g.cast(g.matmul(p, v), dtype="bf16", name="o")


def region(of: tuple[int, ...] | None) -> Region:
    return find_region(graph_of(lambda g: attention(g, of)))


def test_lengths_by_batch_are_those_of_all_its_heads() -> None:
    found = shares(region((6, 1, 1, 1)))
    assert len(found) == 12
    assert found[::2] == found[1::2]
    assert len({*found}) == 6


def test_lengths_by_the_outermost_of_three_axes_are_those_of_the_other_two() -> None:
    def apart(g: GraphBuilder) -> Symbol:
        q, k, v = (
            g.transpose(g.input(name, (4, n, 3, e, 64), "bf16"), perm=(0, 2, 3, 1, 4))
            for name, n, e in (("q", 2, 2), ("k", KEYS, 1), ("v", KEYS, 1))
        )
        s = g.matmul(q, k, transpose_b=True)
        index = g.iota(shape=(1, 1, 1, 1, KEYS), axis=4)
        s = g.where(g.less(index, g.input("n", (4, 1, 1, 1, 1), "i32")), s, -math.inf)
        o = g.cast(g.matmul(g.cast(g.softmax(s), dtype="bf16"), v), dtype="bf16")
        return g.transpose(o, perm=(0, 3, 1, 2, 4), name="o")

    found = shares(find_region(graph_of(apart)))
    assert len({*found}) == 4
    assert found == tuple(
        itertools.chain.from_iterable([one] * (len(found) // 4) for one in dict.fromkeys(found))
    )


def test_lengths_are_spread_evenly_and_neither_rise_nor_fall() -> None:
    found = shares(region((6, 1, 1, 1)))[::2]
    inside = sorted(found)
    assert 0 < inside[0] < 0.25
    assert 0.75 < inside[-1] < 1
    assert all(later - one < 0.4 for one, later in itertools.pairwise(inside))
    assert list(found) not in (inside, inside[::-1])
    assert mean_share(region((6, 1, 1, 1))) == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("of", [None, (), (1, 1, 1, 1)])
def test_what_is_one_for_all_tiles_leaves_nothing_out(of: tuple[int, ...] | None) -> None:
    assert shares(region(of)) == (1.0,)


def test_a_tile_program_counts_the_bytes_and_the_work_of_the_mean() -> None:
    s = Structure(64, 64, 64, 1, 4, Sharing.COOPERATIVE, True, False, 1, 1)
    whole, part = (unpriced(region(of), s, load_machine("h200")) for of in (None, (6, 1, 1, 1)))
    share = mean_share(region((6, 1, 1, 1)))
    keys = 2 * 6 * 2 * KEYS * 64 * 2
    assert whole.dram_bytes - part.dram_bytes == pytest.approx((1 - share) * keys, rel=1e-3)
    assert part.whole.needed_flops == pytest.approx(share * whole.whole.needed_flops)
    assert part.tile_l2_bytes == pytest.approx(share * whole.tile_l2_bytes, rel=0.1)
    # 12 tiles for 132 SMs: the busiest has the longest.
    assert whole.work is not None
    assert part.work is not None
    assert whole.work.k_iterations == KEYS / 64
    assert part.work.k_iterations == round(max(shares(region((6, 1, 1, 1)))) * KEYS / 64)
