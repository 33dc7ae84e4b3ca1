"""The tail of gelu as kernels compute it: its error, its ends, and that a fault in it would show."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from wsopt.emit.called import called
from wsopt.primitives import PRIMITIVES
from wsopt.primitives.gelu_tail import EXPONENT, LAST, LOWER, UPPER

Array = npt.NDArray[np.float32]

NEAR = np.concatenate([np.linspace(-20, 20, 40001), np.logspace(-30, 0, 4000), -np.logspace(-30, 0, 4000)])
X = NEAR.astype(np.float32)
EXACT = np.array([abs(x) * math.erfc(abs(x) / math.sqrt(2)) / 2 for x in X.astype(float)])


def horner(coefficients: tuple[float, ...], size: Array) -> Array:
    """A polynomial in steps of f32."""
    total = np.full_like(size, np.float32(coefficients[-1]))
    for one in coefficients[-2::-1]:
        total = total * size + np.float32(one)
    return total


def tail(x: Array, ulps: int = 0) -> Array:
    """The function's arithmetic in f32, with an inverse and an exponential that are so many units off."""
    size = np.fmin(np.abs(x), np.float32(LAST))
    off = np.float32(1 + ulps * 2.0**-23)
    power = np.exp2((x * np.float32(EXPONENT)) * x) * off
    return size * horner(UPPER, size) * (off / horner(LOWER, size)) * power


@pytest.mark.parametrize("ulps", [-2, 0, 2])
def test_its_error_is_what_the_table_says(ulps: int) -> None:
    relative, absolute = PRIMITIVES["gelu_tail"].error
    off = np.abs(tail(X, ulps) - EXACT)
    assert (off <= relative * EXACT + absolute).all()
    near = (EXACT > 0) & (np.abs(X) <= 10)
    assert (off[near] / EXACT[near]).max() < 2.0**-15.1


def test_gelu_is_as_near_as_eight_significant_bits_can_show() -> None:
    x = X[np.abs(X) > 1e-20].astype(float)
    gelu = np.array([one * math.erfc(-one / math.sqrt(2)) / 2 for one in x])
    found = np.maximum(x, 0) - tail(x.astype(np.float32))
    near = np.abs(x) <= 8
    assert (np.abs(found - gelu)[near] <= 2.0**-15 * np.abs(gelu)[near]).all()


def test_ends_are_zero_and_not_a_number_stays() -> None:
    with np.errstate(all="ignore"):
        for function in (tail, PRIMITIVES["gelu_tail"].function):
            found = function(np.array([np.inf, -np.inf, 1e30, -40, 0, np.nan], np.float32))
            assert found[:5].tolist() == [0, 0, 0, 0, 0]
            assert np.isnan(found[5])


def test_a_coefficient_that_is_off_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "LOWER", (*LOWER[:2], LOWER[2] * (1 + 2.0**-11), *LOWER[3:]))
    near = (EXACT > 0) & (np.abs(X) <= 10)
    assert (np.abs(tail(X) - EXACT)[near] / EXACT[near]).max() > 2.0**-14.5


def test_the_text_has_all_coefficients_from_the_highest_down() -> None:
    values = called(frozenset({"gelu_tail_by_ratio"}))["gelu_tail"]
    assert values == {"last": LAST, "upper": UPPER[::-1], "lower": LOWER[::-1], "exponent": EXPONENT}
    assert called(frozenset())["gelu_tail"] is None
