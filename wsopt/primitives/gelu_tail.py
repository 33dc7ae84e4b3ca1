"""What gelu is below max(x, 0): |x| times what the normal distribution has beyond |x|, and what kernels have for it.

|x| P(|x|) / Q(|x|) exp(-x**2 / 2), with |x| held to `LAST`, from where on the exponential is zero in f32. It is
2**-15.1 of itself off at most up to |x| = 10, which a gelu that is rounded to eight significant bits does not show.
It takes two thirds of the instructions that the error function does, and keeps its digits where erf is near -1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

UPPER = (0.50001205, 0.2782411, 0.06251211)
LOWER = (1.0, 1.35511591, 0.70253064, 0.15651812)
"""Of |x|**0 on: fitted to exp(x**2 / 2) times the distribution's tail on [0, 10] by reweighted least squares (Lawson
1961).
"""

LAST = 16.0
"""Where |x| is held: exp2(LAST**2 EXPONENT) is below the least f32."""

EXPONENT = -0.5 * math.log2(math.e)
"""exp(-x**2 / 2) is 2 to the power of so many times x**2."""

MIX: Mapping[str, float] = MappingProxyType({"mul": 5, "max": 1, "fma": 5, "rcp": 1, "exp2": 1})
"""Instructions an element: |x| and its end, two polynomials, their ratio, the exponential, four products."""
