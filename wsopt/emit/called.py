"""Device functions and constants that a kernel's template writes only where the kernel's lines name them."""

from __future__ import annotations

import struct
from collections.abc import Set
from typing import Any

from wsopt.primitives import PRIMITIVES, error_function, gelu_tail
from wsopt.primitives.error_function import LOWER, UPPER
from wsopt.primitives.exponential import COEFFICIENTS, LEAST, MOST, PACK, ROUNDER

CHOICES = {
    f"where_{entry.comparison.instruction}": entry.comparison.instruction
    for entry in PRIMITIVES.values()
    if entry.comparison
}
"""The functions that choose by a comparison of whole numbers, with the comparison as instructions name it."""

ROUNDINGS = {"round_f16": "f16", "round_bf16": "bf16"}
"""The functions that round two elements at a time, by the primitive that they stand for, with their type."""

WIDEN = "widen_bf16"
"""The function that makes f32 of bf16, two neighbours at a time."""

LARGER = "larger"
"""The function that gives the larger of two numbers, or NaN if one of them is NaN."""


def reduction(kind: str, values: str, axis: int, *, keeps_nan: bool = False) -> str:
    """The call that reduces values along an axis to a sum or a maximum. A maximum drops NaN unless it `keeps_nan`."""
    return f"gl.reduce({values}, {axis}, {LARGER})" if keeps_nan else f"gl.{kind}({values}, axis={axis})"


OWN = "own"
"""The function that returns its argument by way of assembly: the compiler does not move what depends on that."""

COLUMNS_FROM = "columns_from"
"""The function that gives the numbers of a part's columns."""

BRANCH_COLUMNS = "own_columns"
"""The numbers of a part's columns in a branch that few parts take."""

KEPT_BRANCH = f"{OWN}(column)  # keeps the branch: else the compiler chooses element by element in every part"
"""The first line of a branch that few parts take, where all parts number their columns."""

BRANCH = f"{BRANCH_COLUMNS} = {COLUMNS_FROM}({OWN}(column))  # numbered here, for few parts come here"
"""The first line of a branch that few parts take. Without `OWN`, LLVM would number the columns in every part, and
turn the branch into choices, one for each element of all tiles.
"""

LARGEST_OF_GROUPS = "largest_of_groups"
"""The function that gives for each element of a row the largest of its group."""

RUNNING_SUMS = "running_sums"
"""The function that gives for each element of a row its sum with all elements before it."""

TO_I8 = "round_i8"
"""The function that rounds to i8, and saturates."""

FIRST_OF = "first_of"
"""The function that gives every thread the first of some numbers in shared memory."""

FOR_ELEMENTS = "for_elements"
"""The function that gives all elements of a row that a thread has the thread's own value of that row."""

_NUMBERS = (("NEG_INF", 'float("-inf")', ""), ("INF", 'float("inf")', ""))
"""Numbers that Python has no literal for."""


def called(names: Set[str]) -> dict[str, Any]:
    """Names for the template: helper functions and constants that a kernel's arithmetic calls.

    Functions of an angle are the kernel's own, for Triton's need a stack, for angles of any size.
    """
    return {
        "uses_tanh": "tanh_approx" in names,
        "turns": [name for name in ("sin", "cos") if f"{name}_approx" in names],
        "choices": [one for one in CHOICES.items() if one[0] in names],
        "roundings": [one for one in ROUNDINGS.items() if one[0] in names],
        "erf": error_function_of(names),
        "gelu_tail": gelu_tail_of(names),
        "uses_language": bool(names & {"tl", "erf_by_ratio"}),
        "uses_widen": WIDEN in names,
        "uses_larger": LARGER in names,
        "uses_first_of": FIRST_OF in names,
        "uses_groups": LARGEST_OF_GROUPS in names,
        "uses_i8": TO_I8 in names,
        "uses_running_sums": RUNNING_SUMS in names,
        "uses_place_of": "place_of" in names,
        "uses_lane_sums": "lane_sums" in names,
        "uses_by_lanes": "by_lanes" in names,
        "uses_for_elements": FOR_ELEMENTS in names,
    }


def error_function_of(names: Set[str]) -> dict[str, Any] | None:
    """What the text of erf is made of, if a kernel calls it; coefficients from the highest down."""
    if "erf_by_ratio" not in names:
        return None
    return {"last": error_function.LAST, "upper": UPPER[::-1], "lower": LOWER[::-1]}


def gelu_tail_of(names: Set[str]) -> dict[str, Any] | None:
    """What the text of gelu's tail is made of, if a kernel calls it; coefficients from the highest down."""
    if "gelu_tail_by_ratio" not in names:
        return None
    upper, lower = gelu_tail.UPPER[::-1], gelu_tail.LOWER[::-1]
    return {"last": gelu_tail.LAST, "upper": upper, "lower": lower, "exponent": gelu_tail.EXPONENT}


def exponential(names: Set[str], eighths: int) -> dict[str, Any] | None:
    """What the text of exp2 on both pipes is made of, if a kernel calls it: how many elements of a pack take the
    polynomial, and its numbers as instructions have them; coefficients from the highest down.
    """
    if "exp2_on_both_pipes" not in names:
        return None

    def bits(value: float) -> str:
        return f"0f{struct.unpack('<I', struct.pack('<f', value))[0]:08X}"

    return {
        "pack": PACK,
        "taken": eighths,
        "least": bits(LEAST),
        "most": bits(MOST),
        "rounder": bits(ROUNDER),
        "coefficients": [bits(one) for one in reversed(COEFFICIENTS)],
    }


def numbers(names: Set[str]) -> list[tuple[str, str, str]]:
    """Name, value and comment of the constants among these names."""
    return [one for one in _NUMBERS if one[0] in names]
