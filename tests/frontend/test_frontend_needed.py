"""The least work of masked regions, held against masks that are written out element by element."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import attention_graphs as a
import numpy as np
import pytest
from attention_graphs import Score, Sizes, attention

from wsopt.frontend.needed import kept, needed_bytes, needed_flops, row_range
from wsopt.frontend.region import find_region
from wsopt.frontend.types import Region
from wsopt.graph.builder import GraphBuilder
from wsopt.graph.parse import load_graph
from wsopt.machine.load import load_machine
from wsopt.perf.price import lower
from wsopt.perf.timing import roofline_us
from wsopt.program.types import Sharing, Structure
from wsopt.tensors.views import Bound

PROBLEMS = Path(__file__).parents[2] / "problems"
Mask = Callable[[np.ndarray, np.ndarray], np.ndarray]
BOTH = Sizes()
CROSS = Sizes(queries=40, keys=72)
MORE = Sizes(queries=72, keys=40)
MASKS: dict[str, tuple[Score, Sizes, Mask]] = {
    "none": (lambda _, x: x, BOTH, lambda i, j: i >= 0),
    "causal": (a.causal, BOTH, lambda i, j: j <= i),
    "causal, fewer queries": (a.causal, CROSS, lambda i, j: j <= i + 32),
    "causal, rows without keys": (a.causal, MORE, lambda i, j: j <= i - 32),
    "window": (a.window, BOTH, lambda i, j: (j <= i) & (i - j <= 20)),
    "around": (a.around, BOTH, lambda i, j: abs(i - j) < 20),
    "limit": (a.key_limit, BOTH, lambda i, j: j < 37),
    "rows": (a.whole_rows, BOTH, lambda i, j: (i < 20) & (j <= i)),
    "cap in a window": (a.everything, BOTH, lambda i, j: (j <= i) & (i - j <= 20)),
    "a mask that no K-block is split by": (a.even, BOTH, lambda i, j: i >= 0),
}


@pytest.mark.parametrize("name", MASKS)
def test_what_counts_is_what_the_mask_leaves(name: str) -> None:
    score, sizes, mask = MASKS[name]
    region = find_region(attention(score, sizes))
    i, j = np.ogrid[: sizes.queries, : sizes.keys]
    seen = np.broadcast_to(mask(i, j), (sizes.queries, sizes.keys))
    found = kept(region)
    assert found.elements == seen.sum()
    assert found.rows == seen.any(axis=1).sum()
    assert found.stream == seen.any(axis=0).sum()
    heads = sizes.batch * sizes.heads
    assert needed_flops(region) == 2 * heads * seen.sum() * (sizes.inner + sizes.column)
    width = 2 * heads * sizes.inner
    assert needed_bytes(region) == width * (found.rows + 2 * found.stream + sizes.queries)


def test_a_bias_counts_where_its_scores_do() -> None:
    whole = find_region(attention(a.bias("heads", "queries", "keys")))
    masked = find_region(attention(lambda p, x: a.causal(p, a.bias("heads", "queries", "keys")(p, x))))
    assert needed_bytes(whole) == whole.compulsory_bytes
    assert needed_bytes(whole) - needed_bytes(masked) == 2 * 2 * (72 * 72 - 72 * 73 // 2)


def test_coefficients_of_the_streamed_index_round_inwards() -> None:
    assert row_range((Bound(1, -2, 1),), 4, 10) == (0, 3)  # 2 j <= 5
    assert row_range((Bound(0, 3, -4),), 0, 10) == (2, 10)  # 3 j >= 4
    assert row_range((Bound(0, 1, -10),), 0, 10) == (0, 0)


@pytest.mark.parametrize(
    ("masked", "whole"), [("attention_causal", "attention"), ("attention_window", "attention")]
)
def test_the_roofline_is_of_what_counts(masked: str, whole: str) -> None:
    card = replace(load_machine("h200"), sm_count=1)
    cut = Structure(64, 128, 128, 2, 4, Sharing.COOPERATIVE, False, False, 1, 1)
    few, all_ = (find_region(load_graph(PROBLEMS / f"{name}.json")) for name in (masked, whole))
    times = [roofline_us(lower(region, cut, card), card) for region in (few, all_)]
    assert times[0] / times[1] == pytest.approx(kept(few).elements / 4096**2)
    assert kept(all_).elements == 4096**2


def test_products_are_what_they_were() -> None:
    region = find_region(load_graph(PROBLEMS / "gemm_ragged.json"))
    assert (needed_flops(region), needed_bytes(region)) == (region.flops, region.compulsory_bytes)


def taps(count: int, apart: int) -> Region:
    """What neighbours of a sequence come to, each `apart` from the next; zeros are before it."""
    g = GraphBuilder("taps")
    reach = (count - 1) * apart
    padded = g.pad(g.input("x", (4, 256, 64), "bf16"), low=(0, reach, 0), high=(0, 0, 0))
    found = [g.slice(padded, axis=1, start=i * apart, stop=i * apart + 256) for i in range(count)]
    g.output(g.cast(sum(found[1:], found[0] * 1.0), "bf16"))
    return find_region(g.build())


def test_slices_that_overlap_are_read_once() -> None:
    for region in (taps(2, 1), taps(4, 3)):
        assert needed_bytes(region) == region.compulsory_bytes == 2 * 4 * 256 * 64 * 2


def test_slices_that_do_not_are_read_each() -> None:
    g = GraphBuilder("ends")
    x = g.input("x", (4, 256, 64), "bf16")
    first, last = g.slice(x, axis=1, stop=64), g.slice(x, axis=1, start=192)
    g.output(g.cast(first * last, "bf16"))
    region = find_region(g.build())
    assert needed_bytes(region) == region.compulsory_bytes == 3 * 4 * 64 * 64 * 2


def test_rows_that_are_looked_up_in_several_places_count_for_each() -> None:
    g = GraphBuilder("looked_up")
    table = g.input("t", (5000, 256), "bf16")
    a, b = (g.gather(table, g.input(name, (64,), "i32")) for name in ("i", "j"))
    g.output(g.cast(g.add(a, b), "bf16"))
    region = find_region(g.build())
    assert needed_bytes(region) == 3 * 64 * 256 * 2 + 2 * 64 * 4
