"""Masks by lengths and offsets that come at run time: bounds with scalars, right whatever those hold."""

from __future__ import annotations

import math
from collections.abc import Callable

import attention_graphs as a
import numpy as np
import pytest
from attention_graphs import Parts, Sizes, attention, causal
from region_numpy import evaluate_region

from wsopt.frontend.needed import end_is_masked, every_row_counts, kept
from wsopt.frontend.region import find_region
from wsopt.graph.builder import Symbol
from wsopt.graph.reference import evaluate, random_inputs, relative_error
from wsopt.tensors.views import Bound

LARGEST, LEAST = 2**31 - 1, -(2**31)
VALUES = (0, 1, -1, 16, 37, 72, 73, 500, -500, 2**28 + 1, -(2**28) - 1, LARGEST, LEAST, LEAST + 40)

Condition = Callable[[Parts, Symbol], Symbol]


def hidden(condition: Condition, *, by_batch: bool = False, low: float = -math.inf) -> a.Score:
    """A mask by a condition on an i32 input `n`, a scalar or one number a batch element."""

    def score(p: Parts, x: Symbol) -> Symbol:
        shape = (p.sizes.batch, 1, 1, 1) if by_batch else ()
        return p.g.where(condition(p, p.g.input("n", shape, "i32")), x, low)

    return score


def by_view(p: Parts, x: Symbol) -> Symbol:
    """Lengths of shape [batch], seen as [batch, 1, 1, 1]."""
    n = p.g.reshape(p.g.input("n", (p.sizes.batch,), "i32"), shape=(p.sizes.batch, 1, 1, 1))
    return p.g.where(p.columns < n, x, -math.inf)


def window(p: Parts, n: Symbol) -> Symbol:
    return p.g.logical_and(p.columns <= p.rows + n, p.columns >= p.rows + n - 20)


FORMS: dict[str, a.Score] = {
    "length": hidden(lambda p, n: p.columns < n),
    "length by batch": hidden(lambda p, n: p.columns < n, by_batch=True),
    "length by view": by_view,
    "length less one": hidden(lambda p, n: p.columns <= n - 1),
    "the other way round": hidden(lambda p, n: p.g.greater(n, p.columns)),
    "from a length on": hidden(lambda p, n: p.columns >= n),
    "chunk": hidden(lambda p, n: p.columns <= p.rows + n),
    "chunk by difference": hidden(lambda p, n: p.columns - p.rows <= n),
    "window of a chunk": hidden(window),
    "length and causal": hidden(lambda p, n: p.g.logical_and(p.columns < n, p.columns <= p.rows)),
    "within a distance": hidden(lambda p, n: p.g.abs(p.columns - p.rows) < n),
    "from a magnitude on": hidden(lambda p, n: p.g.less_equal(p.g.abs(n), p.columns)),
    "negated": hidden(lambda p, n: p.g.logical_not(p.g.logical_or(p.columns >= n, p.columns > p.rows))),
    "between two": lambda p, x: hidden(lambda p, n: p.columns < n)(
        p, p.g.where(p.columns >= p.g.input("first", (), "i32"), x, -math.inf)
    ),
    "a finite number": hidden(lambda p, n: p.columns < n, low=-1e30),
    "nested": lambda p, x: hidden(lambda p, n: p.columns < n)(p, causal(p, x)),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_value_gives_what_the_graph_means(form: str) -> None:
    graph = attention(FORMS[form], Sizes(queries=24, heads=1))
    region, shape, skipped = find_region(graph), graph.type_of("n").shape, 0
    assert any(bound.terms for bound in region.bounds) == (form != "a finite number")
    for number, _ in enumerate(VALUES):
        inputs = random_inputs(graph, number)
        own = [VALUES[(number + place) % len(VALUES)] for place in range(math.prod(shape))]
        inputs["n"] = np.array(own, np.int32).reshape(shape)
        wanted = evaluate(graph, inputs)["o"].astype(np.float32)
        found, counts = evaluate_region(graph, region, inputs, split=True)
        assert relative_error(found["o"].astype(np.float32), wanted) < 8e-3, own
        skipped += counts.skipped
    assert bool(skipped) == (form != "a finite number")


def bounds(condition: Condition, **options: bool) -> set[Bound]:
    """The bounds of a mask by a condition, without the end of the axis."""
    end = Bound(0, -1, 71)
    return {*find_region(attention(hidden(condition, **options))).bounds} - {end}


def test_bounds_name_their_scalar_and_know_whether_the_graph_adds_to_it() -> None:
    name = "less_0:1"
    assert bounds(lambda p, n: p.columns < n) == {Bound(0, -1, -1, ((1, name),))}
    assert bounds(lambda p, n: p.columns < n, by_batch=True) == {Bound(0, -1, -1, ((1, name),))}
    name = "add_0:1"
    assert bounds(lambda p, n: p.columns <= p.rows + n) == {Bound(1, -1, 0, ((1, name),), wraps=True)}
    lower = Bound(-1, 1, 20, ((-1, name),), wraps=True)
    assert bounds(window) == {Bound(1, -1, 0, ((1, name),), wraps=True), lower}


@pytest.mark.parametrize(
    "condition",
    [
        lambda p, n: p.rows < n,  # which K-blocks count does not depend on it
        lambda p, n: p.columns * 2 < n,
        lambda p, n: p.g.cast(p.columns, dtype="f32") < p.g.cast(n, dtype="f32"),  # rounded
        lambda p, n: p.columns < n * n,
        lambda p, n: p.columns < n + n + n + n + n,  # in i32 five numbers that are not far may overflow
        lambda p, n: p.columns < n + 2**27,
    ],
)
def test_what_is_no_such_bound_stays_a_mask(condition: Condition) -> None:
    assert not any(bound.terms for bound in bounds(condition))


def test_a_length_by_row_is_a_mask() -> None:
    def score(p: Parts, x: Symbol) -> Symbol:
        n = p.g.input("n", (p.sizes.batch, 1, p.sizes.queries, 1), "i32")
        return p.g.where(p.columns < n, x, -math.inf)

    assert not any(bound.terms for bound in find_region(attention(score)).bounds)


def test_nothing_is_taken_for_granted_of_a_length() -> None:
    """A length may be zero, so a number is none for minus infinity; and it may be too long to end a row."""
    some = (Bound(1, -1, 0), Bound(0, -1, -1, ((1, "n"),)))
    assert every_row_counts(some[:1], 8, 8)
    assert not every_row_counts(some, 8, 8)
    assert end_is_masked((Bound(0, -1, 5),), 8, 8)
    assert not end_is_masked((Bound(0, -1, 5, ((1, "n"),)),), 8, 8)
    whole, masked = find_region(attention()), find_region(attention(FORMS["length"]))
    assert kept(whole) == kept(masked)
    assert not find_region(attention(FORMS["a finite number"])).full_rows


def test_a_length_beside_a_single_row_is_one_by_batch() -> None:
    length = hidden(lambda p, n: p.columns < n, by_batch=True)
    region = find_region(attention(length, Sizes(queries=1)))
    assert any(bound.terms for bound in region.bounds)


@pytest.mark.parametrize("heads", [1, 2])
def test_a_length_by_batch_or_by_head_stands_beside_groups(heads: int) -> None:
    def by(*shape: int) -> a.Score:
        return lambda p, x: p.g.where(
            p.columns <= p.rows + p.g.input("n", (*shape, 1, 1, 1), "i32"), x, -math.inf
        )

    assert any(bound.terms for bound in find_region(a.grouped("inputs", by(2, heads))).bounds)
