"""Figures known by hand."""

from __future__ import annotations

import math

import pytest

from wsopt.validate.statistics import kendall_tau, mean_error, regret, relative_errors, tau_apart


@pytest.mark.parametrize(
    ("one", "other", "tau"),
    [
        ((1, 2, 3, 4), (10, 20, 30, 40), 1.0),
        ((1, 2, 3, 4), (4, 3, 2, 1), -1.0),
        ((1, 2, 3, 4), (1, 2, 4, 3), 4 / 6),
        ((1, 2, 3), (1, 1, 2), 2 / math.sqrt(6)),
        ((1, 1, 2, 2), (1, 1, 2, 2), 1.0),
        ((1, 1, 2, 3), (1, 2, 2, 3), 4 / 5),
    ],
)
def test_tau(one: tuple[float, ...], other: tuple[float, ...], tau: float) -> None:
    assert kendall_tau(one, other) == pytest.approx(tau)
    assert kendall_tau(other, one) == pytest.approx(tau)


def test_tau_of_a_constant() -> None:
    assert math.isnan(kendall_tau((1, 1, 1), (1, 2, 3)))


@pytest.mark.parametrize(
    ("predicted", "measured", "tau"),
    [
        ((1, 2, 3), (10, 20, 30), 1.0),
        ((1, 2, 3), (10, 30, 20), 1 / 3),
        ((2, 1, 3), (100, 104, 200), 1.0),  # 4 % apart: either order will do
        ((2, 1, 3), (100, 106, 200), 1 / 3),
        ((1, 1, 3), (100, 106, 200), 2 / 3),  # predicted alike
    ],
)
def test_only_times_that_are_apart_have_an_order(
    predicted: tuple[float, ...], measured: tuple[float, ...], tau: float
) -> None:
    assert tau_apart(predicted, measured, 0.05) == pytest.approx(tau)
    assert tau_apart(predicted[::-1], measured[::-1], 0.05) == pytest.approx(tau)


def test_no_times_that_are_apart() -> None:
    assert math.isnan(tau_apart((1, 2), (100, 104), 0.05))


def test_errors() -> None:
    assert relative_errors((11.0, 8.0), (10.0, 10.0)) == pytest.approx((0.1, -0.2))
    assert mean_error((11.0, 8.0), (10.0, 10.0)) == pytest.approx(0.15)


def test_regret() -> None:
    assert regret(10.5, (10.5, 10.0, 30.0)) == pytest.approx(0.05)
    assert regret(10.0, (10.0, 30.0)) == 0
