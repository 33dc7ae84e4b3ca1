"""How long an iteration holds units and threads, and what several such bounds come to together."""

from __future__ import annotations

from wsopt.program.program import TileProgram
from wsopt.program.units import UNITS


def held_cycles(program: TileProgram) -> dict[str, int]:
    """Cycles an iteration for which each unit is held."""
    return {unit: sum(c for op in program.loop for held, c in op.held if held == unit) for unit in UNITS}


def issue_cycles(program: TileProgram) -> dict[int, int]:
    """Cycles an iteration for which each consumer's own thread is held."""
    return {consumer: sum(op.issue for op in own) for consumer, own in program.by_consumer.items()}


def norm(parts: tuple[float, ...], knee: float) -> float:
    """What bounds come to that get into one another's way: their norm with the exponent `knee`, in their unit.

    Far apart the largest alone counts; two that are alike come to more than each. The largest is positive.
    """
    largest = max(parts)
    return float(largest * sum([(part / largest) ** knee for part in parts]) ** (1 / knee))
