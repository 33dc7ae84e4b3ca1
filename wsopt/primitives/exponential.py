"""exp2 by a polynomial: arithmetic that a kernel may have for it instead of the hardware's instruction, and its cost.

x is cut off at both ends and rounded down to a whole n, by adding a large number. 2**x = 2**n P(x - n), where P is
the polynomial of least relative error on [0, 1] that is 1 at 0. The sum with the large number has n + 127 in its last
bits; moved up, they are 2**n. The result is 0 from -127 down and for what is below the least normal f32, infinity
from 128 up, and NaN for NaN. Its error is below that of `ex2.approx`, so nothing that reads it has to know of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

COEFFICIENTS = (
    1.0,
    0.6931512951850891,
    0.2401645928621292,
    0.055799514055252075,
    0.009017481468617916,
    0.001866951584815979,
)
"""Of f**0 to f**5, each an f32: fitted to 2**f by reweighted least squares (Lawson 1961), rounded one after another.
In exact arithmetic 2**-23.5 off at most, in f32 2**-22.7.
"""

LEAST, MOST = -127.0, 128.0
"""Where x is cut off: 2**LEAST is no normal f32, 2**MOST is infinity."""

ROUNDER = 1.5 * 2.0**23 + 127
"""Added to x it leaves no room for a fraction, and n + 127 in the last eight bits."""

MIX: Mapping[str, float] = MappingProxyType({"max": 2, "add": 3, "fma": 5, "logic": 1, "mul": 1})
"""Instructions an element, as the machine code has them: ends, whole part, polynomial, shift, product with 2**n."""

CHAIN = 11
"""Instructions that wait for one another: all but the shift."""

PACK = 8
"""Elements of a thread that one piece of assembly takes; some of them by the polynomial."""
