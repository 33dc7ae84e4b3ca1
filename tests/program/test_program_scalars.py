"""Values of run-time scalars at which a bound's edge is that of a K-block."""

from __future__ import annotations

import pytest

from wsopt.program.ranges import Bounds
from wsopt.program.scalars import aligned_scalars
from wsopt.program.types import Sharing, Structure
from wsopt.tensors.views import Bound

S = Structure(64, 64, 32, 2, 4, Sharing.COOPERATIVE, False, False, 1, 1)


@pytest.mark.parametrize(
    "bound",
    [
        Bound(0, -1, -1, ((1, "n"),)),
        Bound(1, -1, 3, ((1, "n"),)),
        Bound(-1, 1, 100, ((-1, "n"),)),
        Bound(1, 1, -5, ((1, "n"),)),
        Bound(0, -1, 7, ((-1, "n"),)),
    ],
)
@pytest.mark.parametrize("rows", [1, 40, 200])
def test_the_edge_of_a_row_is_that_of_a_k_block(bound: Bound, rows: int) -> None:
    found = [*aligned_scalars(Bounds((bound,), rows, 4096), S, rows)]
    assert {name for name, _ in found} == {"n"}
    edges = set[tuple[int, int]]()
    for _, value in found:
        for row in {rows - 1, min(rows, 64) - 1}:
            inside = [
                j
                for j in range(-800, 800)
                if bound.row * row + bound.stream * j + bound.constant + bound.terms[0][0] * value >= 0
            ]
            edge = inside[0] if bound.stream > 0 else inside[-1] + 1
            if edge in (32, 96):
                edges.add((row, edge))
    assert {(rows - 1, 32), (rows - 1, 96), (min(rows, 64) - 1, 96)} <= edges


def test_what_more_than_one_scalar_decides_is_left_to_chance() -> None:
    bounds = Bound(0, -1, 0, ((1, "a"), (1, "b"))), Bound(0, -1, 0, ((2, "a"),)), Bound(1, -1, 0)
    assert [*aligned_scalars(Bounds(bounds, 64, 64), S, 64)] == []
