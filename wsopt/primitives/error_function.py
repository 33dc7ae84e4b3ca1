"""The error function as a ratio of polynomials: arithmetic that kernels have for it, and its cost.

erf(x) = x P(x**2) / Q(x**2), held to [-1, 1]. From `LAST` on the ratio is that of `LAST` itself, so that it grows
with x and is cut off at one. The library's function has a branch for large numbers, and takes three times as many
instructions. This one has none, is 2**-20.9 off at most, and NaN for NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

UPPER = (
    1.1283791065216064,
    0.19040797650814056,
    0.0527489073574543,
    0.003765678498893976,
    0.0002848834847100079,
    2.0500669961620588e-06,
)
LOWER = (
    1.0,
    0.5020774006843567,
    0.11410972476005554,
    0.014969339594244957,
    0.0011625493643805385,
    3.809154804912396e-05,
)
"""Of x**0, x**2, to x**10, each an f32: fitted to erf on [0, 3.92] by reweighted least squares (Lawson 1961). The fit
is 2**-25.6 off; the rest comes of f32.
"""

LAST = 3.92**2
"""The square from which on erf is one in f32."""

MIX: Mapping[str, float] = MappingProxyType({"mul": 3, "max": 3, "fma": 11, "rcp": 1})
"""Instructions an element: the square and its end, two polynomials, their ratio, two ends of that."""
