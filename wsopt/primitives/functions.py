"""NumPy functions of f32 that NumPy itself lacks."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# erf(x) = x P(x^2) / Q(x^2) on [-4, 4], highest power first; outside, erf is +-1 in f32. Coefficients of
# the f32 erf of Eigen (unsupported/Eigen/src/SpecialFunctions), a rational minimax fit.
_ERF_P = (
    -2.72614225801306e-10,
    2.77068142495902e-08,
    -2.10102402082508e-06,
    -5.69250639462346e-05,
    -7.34990630326855e-04,
    -2.95459980854025e-03,
    -1.60960333262415e-02,
)
_ERF_Q = (
    -1.45660718464996e-05,
    -2.13374055278905e-04,
    -1.68282697438203e-03,
    -7.37332916720468e-03,
    -1.42647390514189e-02,
)
_ERF_BLOCK = 2**16


def rsqrt(x: Array) -> Array:
    """1 / sqrt(x)."""
    return np.asarray(np.float32(1) / np.sqrt(x), np.float32)


def erf(x: Array) -> Array:
    """The error function, within 1e-7."""
    x = np.asarray(x, dtype=np.float32, order="C")
    result = np.empty_like(x)
    source, target = x.reshape(-1), result.reshape(-1)
    for start in range(0, source.size, _ERF_BLOCK):
        block = slice(start, start + _ERF_BLOCK)
        target[block] = _erf_f64(source[block].astype(np.float64))
    return result


def gelu_tail(x: Array) -> Array:
    """|x| times what the normal distribution has beyond |x|: max(x, 0) - gelu(x), within 1e-6."""
    size = np.minimum(np.abs(np.asarray(x, np.float64)), 16.0)
    return np.asarray(size * (1 - _erf_f64(size * np.sqrt(0.5))) / 2, np.float32)


def _erf_f64(x: Array) -> Array:
    # In f32 the quotient of the polynomials would be off by 4e-7.
    x = np.clip(x, -4, 4)
    square = x * x
    return np.asarray(np.clip(x * _horner(_ERF_P, square) / _horner(_ERF_Q, square), -1, 1))


def _horner(coefficients: tuple[float, ...], x: Array) -> Array:
    total = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total *= x
        total += coefficient
    return total
