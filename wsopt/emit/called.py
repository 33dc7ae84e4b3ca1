"""Functions and constants of a kernel's own that its text may call, and then its template has to write."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from wsopt.primitives import PRIMITIVES

CHOICES = {
    f"where_{entry.comparison.instruction}": entry.comparison.instruction
    for entry in PRIMITIVES.values()
    if entry.comparison
}
"""The functions that choose by a comparison of whole numbers, with the comparison as instructions name it."""

ROUNDINGS = {"round_f16": "f16", "round_bf16": "bf16"}
"""The functions that round two elements at a time, by the primitive that they stand for, with their type."""

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
        "uses_language": "tl" in names,
        "uses_lane_sums": "lane_sums" in names,
        "uses_by_lanes": "by_lanes" in names,
    }


def numbers(names: Set[str]) -> list[tuple[str, str, str]]:
    """The constants among them."""
    return [one for one in _NUMBERS if one[0] in names]
