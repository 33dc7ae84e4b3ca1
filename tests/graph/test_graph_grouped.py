"""Products of groups of rows that offsets cut: types, the reference by groups in f64, errors, offsets to try."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from wsopt.errors import InputError
from wsopt.graph.agreement import agreement, expectations
from wsopt.graph.builder import GraphBuilder
from wsopt.graph.grouped import OFFSET_KINDS, group_ends, grouped_rows, offsets_to_try
from wsopt.graph.reference import evaluate, random_inputs
from wsopt.graph.types import Graph

ROWS, DEPTH, COLUMNS, GROUPS = 50, 24, 12, 5


def product(dtype: str = "bf16", *, transpose_b: bool = True) -> Graph:
    g = GraphBuilder("grouped")
    x = g.input("x", (ROWS, DEPTH), dtype)
    shape = (GROUPS, COLUMNS, DEPTH) if transpose_b else (GROUPS, DEPTH, COLUMNS)
    w, offsets = g.input("w", shape, dtype, constant=True), g.input("offsets", (GROUPS,), "i32")
    g.output(g.grouped_matmul(x, w, offsets, transpose_b=transpose_b, name="y"))
    return g.build()


def by_rows(inputs: dict[str, Any], *, transpose_b: bool) -> Any:
    """Each row by the matrix of the first group whose end lies behind it, in f64; zeros where there is none."""
    x, w = (inputs[name].astype(np.float64) for name in "xw")
    found = np.zeros((ROWS, COLUMNS))
    for row in range(ROWS):
        first = next((g for g, offset in enumerate(inputs["offsets"]) if offset > row), None)
        if first is not None:
            found[row] = x[row] @ (w[first].T if transpose_b else w[first])
    return found


@pytest.mark.parametrize("transpose_b", [True, False])
@pytest.mark.parametrize("draw", range(OFFSET_KINDS))
def test_a_row_is_its_groups(draw: int, transpose_b: bool) -> None:
    graph = product(transpose_b=transpose_b)
    inputs = random_inputs(graph, draw)
    found = evaluate(graph, inputs)["y"]
    np.testing.assert_allclose(found, by_rows(inputs, transpose_b=transpose_b), rtol=1e-4, atol=1e-5)


def test_whole_numbers_are_summed_exactly() -> None:
    graph = product("i8")
    inputs = random_inputs(graph, 0)
    found = evaluate(graph, inputs)["y"]
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, by_rows(inputs, transpose_b=True))


@pytest.mark.parametrize(
    ("offsets", "ends"),
    [
        ([3, 3, 7], [3, 3, 7]),
        ([5, 2, 9], [5, 5, 9]),
        ([-4, 20, 6], [0, 10, 10]),
        ([-(2**31), 2**31 - 1, 0], [0, 10, 10]),
    ],
)
def test_ends_stay_within_the_rows_and_never_go_back(offsets: list[int], ends: list[int]) -> None:
    assert group_ends(np.array(offsets, np.int32), 10).tolist() == ends


@pytest.mark.parametrize("dtype", ["bf16", "f8e4m3"])
def test_bounds_hold_another_order_and_not_another_matrix(dtype: str) -> None:
    graph = product(dtype)
    inputs = random_inputs(graph, 0)
    expected = expectations(graph, inputs)["y"]
    exact = by_rows(inputs, transpose_b=True).astype(np.float32)
    assert agreement(exact, expected, 1e-4).accepted
    other = exact.copy()
    first = int(inputs["offsets"][0])
    other[first] = inputs["x"][first].astype(np.float32) @ inputs["w"][0].astype(np.float32).T
    assert not agreement(other, expected, 1e-4).accepted
    behind = random_inputs(graph, 1)
    left = evaluate(graph, behind)["y"]
    assert (left[behind["offsets"][-1] :] == 0).all()
    left[-1, 0] = 1e-6  # rows of no group are zeros, to the bit
    assert not agreement(left, expectations(graph, behind)["y"], 1e-4).accepted


def test_draws_have_every_kind() -> None:
    rng = np.random.default_rng(0)
    ragged, some, one, back, outside, few = (
        offsets_to_try((6,), 90, seed, rng) for seed in range(OFFSET_KINDS)
    )
    assert ragged[-1] == 90
    assert (np.diff(some) == 0).any()
    assert some[-1] < 90
    assert {*one.tolist()} <= {0, 90}
    assert (np.diff(back) < 0).any()
    assert outside.min() < 0
    assert outside.max() > 90
    assert np.diff(few).max() < 8
    assert grouped_rows(product()) == {"offsets": ROWS}


def built(x: tuple[int, ...], w: tuple[int, ...], offsets: tuple[int, ...], dtype: str = "i32") -> None:
    g = GraphBuilder("wrong")
    g.grouped_matmul(g.input("x", x, "bf16"), g.input("w", w, "bf16"), g.input("offsets", offsets, dtype))


@pytest.mark.parametrize(
    ("shapes", "dtype", "told"),
    [
        (((2, 8, 4), (3, 4, 5), (3,)), "i32", r"grouped_matmul wants a of shape \[rows, k\]"),
        (((8, 4), (4, 5), (3,)), "i32", r"grouped_matmul wants b of shape \[groups, k, n\]"),
        (((8, 4), (3, 5, 4), (3,)), "i32", "the contracted extents are 4 and 5 .transpose_b is false"),
        (((8, 4), (3, 4, 5), (4,)), "i32", "3 groups and 4 offsets"),
        (((8, 4), (3, 4, 5), (3,)), "f32", "dtype f32; wants i32: where each group's rows end"),
    ],
)
def test_what_does_not_fit_is_told(shapes: Any, dtype: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        built(*shapes, dtype)
