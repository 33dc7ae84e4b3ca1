"""Kernels whose masks end every row before the streamed axis does, and axes of one element, at other extents."""

from __future__ import annotations

import functools

import attention_graphs as a
import pytest
from emit_builds import Emitted, build, case, structure

from wsopt.simulation import simulate


def limited(p: a.Parts, x: a.Symbol) -> a.Symbol:
    """No key from the 136th on, which are all that there are where it is compiled."""
    return a.masked(p, p.columns <= 135, x)


def causal(p: a.Parts, x: a.Symbol) -> a.Symbol:
    """No key after the query, whatever the lengths."""
    return a.masked(p, p.columns <= p.rows, x)


SCORES = {"limited": limited, "causal": causal}


@functools.cache
def emitted(name: str) -> Emitted:
    sizes = a.Sizes(queries=136, keys=136)
    return build(a.attention(SCORES[name], sizes), structure(32, 64))


@pytest.mark.parametrize(
    ("name", "queries", "keys"),
    [("limited", 136, 136), ("limited", 72, 300), ("causal", 72, 72), ("causal", 72, 200)],
)
def test_computes_where_masks_end_every_row(name: str, queries: int, keys: int) -> None:
    graph = a.attention(SCORES[name], a.Sizes(queries=queries, keys=keys))
    assert case(graph).fault(emitted(name).source, 2) is None


@pytest.mark.parametrize(("name", "queries", "keys"), [("limited", 136, 72), ("causal", 200, 136)])
def test_a_shorter_axis_than_masks_keep_is_refused_at_the_call(name: str, queries: int, keys: int) -> None:
    """Elements of a K-block beyond the axis's end would count as zeros that are kept."""
    graph = a.attention(SCORES[name], a.Sizes(queries=queries, keys=keys))
    told = case(graph).fault(emitted(name).source, 1) or ""
    assert (
        f"with {queries} rows and {keys} elements of the streamed axis the masks do not end every row" in told
    )
    assert "as they do at 136 and 136: compile the graph at these extents" in told


def near(p: a.Parts, x: a.Symbol) -> a.Symbol:
    """Keys from 40 before the query on; a number stands for minus infinity, and every row keeps a key."""
    return p.g.where(p.rows - p.columns <= 40, x, -1e9)


def test_rows_that_keep_nothing_are_refused_at_the_call() -> None:
    """With a number for minus infinity such a row is the mean of all values, which the kernel does not compute."""
    made = build(a.attention(near, a.Sizes(queries=136, keys=136)), structure(32, 64))
    assert case(a.attention(near, a.Sizes(queries=136, keys=96))).fault(made.source, 1) is None
    told = case(a.attention(near, a.Sizes(queries=136, keys=95))).fault(made.source, 1) or ""
    assert (
        "with 136 rows and 95 elements of the streamed axis the masks leave rows without an element" in told
    )


@pytest.mark.parametrize(
    ("score", "queries", "keys"),
    [
        (a.bias("queries", "keys"), 1, 136),
        (a.bias("one", "keys"), 1, 136),
        (a.causal, 1, 136),
        (a.causal, 136, 1),
    ],
)
def test_axes_of_one_element_are_axes(score: a.Score, queries: int, keys: int) -> None:
    """They have more at the extents that some lines of the kernel are for, and tensors read along them too."""
    graph = a.attention(score, a.Sizes(queries=queries, keys=keys))
    made = build(graph, structure(32, 64))
    found = simulate(graph, made.verified, made.source, 2)
    assert (found.seeds, found.lines_run) == (2, found.lines)
