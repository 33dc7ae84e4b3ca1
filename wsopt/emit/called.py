"""Functions of a kernel's own that its text calls, and so its template has to write."""

from __future__ import annotations

from typing import Any

from wsopt.emit import choices, roundings
from wsopt.primitives import NAN_RULE


def called(written: str) -> dict[str, Any]:
    """What a template needs to know of a kernel's arithmetic, from the text of it."""
    return {
        "uses_tanh": "tanh_approx(" in written,
        "turns": _turns(written),
        "choices": [(choices.helper(name), name) for name in choices.helpers(written)],
        "roundings": [(roundings.helper(name), name) for name in roundings.helpers(written)],
        "uses_language": NAN_RULE in written,
    }


def _turns(written: str) -> list[str]:
    """Functions of an angle that a kernel's text calls; those of Triton need a stack, for angles of any size."""
    return [name for name in ("sin", "cos") if f"{name}_approx(" in written]
