"""Cost of scalar instructions on an SM: counts for each element, and the cycles that they hold each shared unit."""

from __future__ import annotations

import math
from collections.abc import Mapping

from wsopt.machine.frozen import FrozenMap
from wsopt.machine.types import INSTRUCTION_KINDS, Machine, Unit


class InstructionMix(FrozenMap[float]):
    """Instructions an element, by kind. Mixes add up, and scale by a number.

    A count may be fractional: `convert` packs two elements, so converting one counts 0.5. Kinds with
    count zero are left out, so two mixes that cost the same compare equal. ValueError for a kind that no
    card knows, and for a count that is negative or not finite.
    """

    __slots__ = ()

    def __init__(self, counts: Mapping[str, float] | None = None) -> None:
        given = counts or {}
        for kind, count in given.items():
            if kind not in INSTRUCTION_KINDS:
                raise ValueError(f"no instruction kind {kind!r}; there are {', '.join(INSTRUCTION_KINDS)}")
            if not (math.isfinite(count) and count >= 0):
                raise ValueError(f"count of {kind} is {count}, not a finite number of instructions")
        super().__init__({kind: float(count) for kind, count in given.items() if count})

    def __add__(self, other: InstructionMix) -> InstructionMix:
        return InstructionMix({kind: self.get(kind, 0) + other.get(kind, 0) for kind in {*self, *other}})

    def __mul__(self, factor: float) -> InstructionMix:
        return InstructionMix({kind: count * factor for kind, count in self.items()})

    __rmul__ = __mul__

    @property
    def instructions(self) -> float:
        """Instructions of all kinds an element."""
        return math.fsum(self.values())


def unit_cycles(machine: Machine, mix: InstructionMix, elements: float) -> dict[Unit, float]:
    """SM cycles for which `elements` times `mix` holds each shared unit, the issue slots among them.

    A scheduler issues one warp instruction a cycle, so the issue slots take `schedulers x threads a warp`
    thread instructions a cycle; a pipe takes its rate. Units that the mix does not use are left out.
    """
    if elements < 0:
        raise ValueError(f"{elements} elements")
    if not mix:
        return {}
    slots = machine.schedulers_per_sm * machine.threads_per_warp
    cycles = {Unit.ISSUE: mix.instructions * elements / slots}
    for kind, count in mix.items():
        unit = machine.scalar_unit[kind]
        cycles[unit] = cycles.get(unit, 0.0) + count * elements / machine.scalar[kind]
    return dict(sorted(cycles.items()))


def alu_cycles(machine: Machine, mix: InstructionMix, elements: float) -> float:
    """SM cycles of `elements` times `mix` when one warpgroup has the SM to itself: its busiest unit's.

    The four warps of a warpgroup sit on the four schedulers, so one warpgroup can fill every unit. This
    bounds from below: it takes dependent instructions to be far enough apart to hide their latency.
    """
    return max(unit_cycles(machine, mix, elements).values(), default=0.0)
