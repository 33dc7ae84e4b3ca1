"""The covering problem, held against choices that are known or tried one by one."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from wsopt.errors import InfeasibleError
from wsopt.solve.cover import Losses, cover
from wsopt.solve.worker import spent

INF = math.inf


def _losses(
    rows: list[list[float]], kinds: tuple[str, ...] | None = None, **given: tuple[float, ...]
) -> Losses:
    cells = len(rows[0])
    weights = given.get("weights", (1.0,) * cells)
    neighbours = tuple(itertools.pairwise(range(cells)))
    return Losses(tuple(map(tuple, rows)), weights, neighbours, kinds or ("",) * len(rows))


def test_the_worst_loss_comes_before_the_mean() -> None:
    rows = [[0.0, 0.0, 0.0, 0.5], [0.2, 0.2, 0.2, 0.2], [INF, INF, INF, 0.0]]
    found = cover(_losses(rows), 1)
    assert found.serves == (1, 1, 1, 1)
    assert (found.worst, found.proved) == (0.2, (True, True, True))
    assert cover(_losses(rows), 2).serves == (0, 0, 0, 2)


def test_the_mean_is_weighed() -> None:
    rows = [[0.0, 0.1], [0.1, 0.0]]
    assert cover(_losses(rows, weights=(0.9, 0.1)), 1).serves == (0, 0)
    assert cover(_losses(rows, weights=(0.1, 0.9)), 1).serves == (1, 1)


def test_among_equals_there_are_few_switches() -> None:
    rows = [[0.0, 0.0, 0.001, 0.0, 0.3], [0.3, 0.001, 0.0, 0.002, 0.0]]
    found = cover(_losses(rows), 2)
    assert (found.serves, found.switches) == ((0, 0, 0, 0, 1), 1)


def test_fewer_kernels_are_taken_where_more_gain_nothing() -> None:
    assert len(cover(_losses([[0.0, 0.0], [0.0, 0.0]]), 2).chosen) == 1


def test_kernels_of_one_kind_alone_go_together() -> None:
    rows = [[0.0, INF], [INF, 0.0], [0.1, 0.1]]
    assert cover(_losses(rows, ("a", "b", "b")), 2).serves in ((2, 2), (2, 1))
    assert cover(_losses(rows, ("a", "b", "b")), 2).worst == 0.1
    assert cover(_losses(rows), 2).serves == (0, 1)


def test_cells_without_a_kernel_are_refused() -> None:
    with pytest.raises(InfeasibleError, match="no kernel at all"):
        cover(_losses([[0.0, INF]]), 1)


def test_too_few_kernels_are_told_how_many_do() -> None:
    apart = [[0.0 if cell in (k, k + 1) else INF for cell in range(6)] for k in range(5)]
    with pytest.raises(InfeasibleError, match=r"it takes 3 kernels .* at most 2 .* with --kernels 3"):
        cover(_losses(apart), 2)
    assert len(cover(_losses(apart), 3).chosen) == 3
    with pytest.raises(InfeasibleError, match="no kernels of one kind run"):
        cover(_losses([[0.0, INF], [INF, 0.0]], ("a", "b")), 2)


@pytest.mark.parametrize("seed", range(6))
def test_worst_losses_are_those_of_trying_all_choices(seed: int) -> None:
    draw = random.Random(seed)
    rows = [[round(draw.random(), 3) for _ in range(7)] for _ in range(6)]
    for most in (1, 2, 3):
        choices = itertools.combinations(range(6), most)
        least = min(max(min(rows[k][c] for k in chosen) for c in range(7)) for chosen in choices)
        found = cover(_losses(rows), most)
        assert found.worst == least
        assert len(found.chosen) <= most


@pytest.mark.parametrize("seed", range(4))
def test_means_are_those_of_trying_all_choices_with_the_least_worst(seed: int) -> None:
    draw = random.Random(seed)
    rows = [
        [draw.randrange(1, 100) / 200 if draw.random() < 0.8 else INF for _ in range(40)] for _ in range(12)
    ]
    rows.append([0.5] * 40)
    found = cover(_losses(rows), 3)
    served = (
        [min(rows[k][c] for k in chosen) for c in range(40)]
        for chosen in itertools.combinations(range(13), 3)
    )
    means = [math.fsum(best) / 40 for best in served if max(best) <= found.worst]
    assert found.mean == pytest.approx(min(means), abs=1e-9)
    assert found.proved == (True, True, True)


def test_the_mean_of_many_kernels_takes_little_work() -> None:
    """Thirty kernels and 210 cells on a plane, each kernel the better the nearer: 0.13 of work."""
    draw, before = random.Random(0), spent()
    cells = [*itertools.product(range(15), range(14))]
    rows = [
        [
            (abs(k % 6 / 2 - a / 5) + abs(k // 6 / 2 - b / 6)) / 8 + draw.randrange(100) / 2000
            for a, b in cells
        ]
        for k in range(30)
    ]
    assert cover(_losses(rows), 4).proved[:2] == (True, True)
    assert spent() - before < 1.0
