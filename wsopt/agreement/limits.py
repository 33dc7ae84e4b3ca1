"""Error bounds of the arithmetic that kernels and references are made of, each with its source."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from wsopt.primitives import FromTable

CONFIDENCE = 8.0
"""A sum of independent errors, none above r_i, exceeds this times the root of the sum of r_i**2 with a chance of
2 exp(-32) = 3e-14 (Hoeffding 1963; for roundings: Higham and Mary, SIAM J. Sci. Comput. 41, 2019).
"""

F32_ROUNDING = 2.0**-22
"""Relative error of one f32 operation: a rounding of 2**-24 in the kernel and one in the reference, and as much
again where the kernel takes sums and products in another order or fuses them.
"""

F32_UNIT = 2.0**-24
"""Unit roundoff of f32."""

FLUSHED = 2.0**-126
"""What `ex2.approx.ftz.f32` makes zero: results below the least normal f32 (PTX ISA)."""

TANH_APPROX = 2.0**-10
"""Twice the largest relative error of `tanh.approx.f32` (PTX ISA: 2**-11): sigmoid, silu and gelu add it to one."""

TENSOR_F8 = 2.0**-13
"""Products of f8 are cut at the 14th bit of the largest addend of an instruction (DeepSeek-AI, "DeepSeek-V3
Technical Report", arXiv:2412.19437, section 3.3.2: "around 14 bits").
"""

F8_INSTRUCTION = 32
"""Elements of the contracted axis that one tensor instruction on f8 takes."""

F8_RUN = 128
"""Elements after which sums of f8 products are promoted to f32, unless the graph says `accumulate: fast`."""

TF32_OPERAND = 2.0**-10
"""Relative error of an f32 operand that a tensor core rounds to tf32, where the reference cuts it."""

SOFTMAX = 2.0**-19
"""Relative error of a softmax beyond those of its exponents and its sum: two `ex2.approx` (2 ulp), a division, and
the rescalings of an online softmax, which a row's maximum causes about as often as its length has bits.
"""

FUNCTIONS: Mapping[str, tuple[float, float]] = FromTable(
    lambda entry: entry.error,
    {
        # rcp.approx 1 ulp; tanh = 1 - 2 / (1 + exp(2x)) is exact to f32's last bits of one.
        "reciprocal": (2.0**-21, 0.0),
        "tanh": (2.0**-21, 2.0**-21),
        "sigmoid": (2.0**-21, 2.0**-23),
        "silu": (2.0**-20, 0.0),
        "gelu": (2.0**-20, 0.0),
    },
)
"""Relative and absolute errors of functions of exact arguments, the kernel's and the reference's together."""

SLOPES: Mapping[str, float] = FromTable(
    lambda entry: entry.slope, {"tanh": 1.0, "sigmoid": 0.25, "silu": 1.1, "gelu": 1.13}
)
"""Largest magnitude of a function's derivative."""


@dataclass(frozen=True, slots=True)
class Format:
    """A floating-point type: unit roundoff, half its least step, and from where on it rounds to infinity.

    Kernels may flush what is subnormal in f32. A `largest` stands where the type saturates.
    """

    unit: float
    floor: float
    overflow: float
    largest: float = math.inf


FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        "f32": Format(2.0**-24, 2.0**-126, (2 - 2.0**-24) * 2.0**127),
        "f16": Format(2.0**-11, 2.0**-25, 65520.0),
        "bf16": Format(2.0**-8, 2.0**-126, (2 - 2.0**-8) * 2.0**127),
        "f8e4m3": Format(2.0**-4, 2.0**-10, math.inf, 448.0),
        "f8e5m2": Format(2.0**-3, 2.0**-17, math.inf, 57344.0),
    }
)
"""Every float of the graph format (IEEE 754; OCP 8-bit Floating Point Specification 1.0)."""
