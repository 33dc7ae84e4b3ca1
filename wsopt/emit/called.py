"""Functions and constants of a kernel's own that its text calls, and so its template has to write."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from wsopt.emit import choices, roundings

_NUMBERS = (("NEG_INF", 'float("-inf")', ""), ("INF", 'float("inf")', ""))
"""Numbers that Python has no literal for."""


def called(names: Set[str]) -> dict[str, Any]:
    """Names for the template: helper functions and constants that a kernel's arithmetic calls.

    Functions of an angle are the kernel's own, for Triton's need a stack, for angles of any size.
    """
    comparisons = ((choices.helper(name), name) for name in choices.INSTRUCTIONS)
    rounded = ((roundings.helper(name), name) for name in roundings.ROUNDINGS.values())
    return {
        "uses_tanh": "tanh_approx" in names,
        "turns": [name for name in ("sin", "cos") if f"{name}_approx" in names],
        "choices": [one for one in comparisons if one[0] in names],
        "roundings": [one for one in rounded if one[0] in names],
        "uses_language": "tl" in names,
        "uses_lane_sums": "lane_sums" in names,
        "uses_by_lanes": "by_lanes" in names,
    }


def numbers(names: Set[str]) -> list[tuple[str, str, str]]:
    """The constants among them."""
    return [one for one in _NUMBERS if one[0] in names]
