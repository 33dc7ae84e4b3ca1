"""erf as kernels compute it: its error over all numbers, against the library's, and that a fault in it would show."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from wsopt.emit.called import called
from wsopt.primitives import PRIMITIVES
from wsopt.primitives.error_function import LAST, LOWER, UPPER

Array = npt.NDArray[np.float32]

NEAR = np.concatenate([np.linspace(-6, 6, 40001), np.logspace(-30, 0, 4000), -np.logspace(-30, 0, 4000)])
EXACT = np.array([math.erf(x) for x in NEAR.astype(np.float32)])


def horner(coefficients: tuple[float, ...], square: Array) -> Array:
    """A polynomial in steps of f32 that are rounded once each, as fused multiply-adds are."""
    total = np.full_like(square, np.float32(coefficients[-1]))
    for one in coefficients[-2::-1]:
        total = (total.astype(np.float64) * square + np.float64(np.float32(one))).astype(np.float32)
    return total


def ratio(x: Array, inverse_ulps: int = 0) -> Array:
    """The function's arithmetic in f32, with an inverse that is so many units in the last place off."""
    square = np.minimum(x * x, np.float32(LAST))
    inverse = (1 / horner(LOWER, square)) * np.float32(1 + inverse_ulps * 2.0**-23)
    return np.clip((x * horner(UPPER, square)) * inverse, -1, 1)


@pytest.mark.parametrize("ulps", [-1, 0, 1])
def test_its_error_is_what_the_table_says(ulps: int) -> None:
    relative, absolute = PRIMITIVES["erf"].error
    off = np.abs(ratio(NEAR.astype(np.float32), ulps) - EXACT)
    assert (off <= relative * np.abs(EXACT) + absolute).all()
    assert (off[EXACT != 0] / np.abs(EXACT[EXACT != 0])).max() < 2.0**-20.8


def test_ends_are_one_and_not_a_number_stays() -> None:
    x = np.array([np.inf, -np.inf, 1e30, -4.5, np.nan, 0.0], np.float32)
    with np.errstate(all="ignore"):
        found = ratio(x)
    assert found[:4].tolist() == [1, -1, 1, -1]
    assert np.isnan(found[4])
    assert found[5] == 0


def test_a_coefficient_that_is_off_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = (*UPPER[:2], UPPER[2] * (1 + 2.0**-14), *UPPER[3:])
    monkeypatch.setitem(globals(), "UPPER", wrong)
    assert np.abs(ratio(NEAR.astype(np.float32)) - EXACT).max() > 2.0**-19


def test_the_text_has_all_coefficients_from_the_highest_down() -> None:
    values = called(frozenset({"erf_by_ratio"}))
    assert values["erf"] == {"last": LAST, "upper": UPPER[::-1], "lower": LOWER[::-1]}
    assert called(frozenset())["erf"] is None
