"""What arithmetic costs by pipe: instructions an element, cycles of each pipe, alone and beside other consumers."""

from __future__ import annotations

from wsopt.machine.cost import InstructionMix
from wsopt.machine.types import Machine
from wsopt.machine.types import Unit as MachineUnit
from wsopt.program.program import Unit

PIPES = {MachineUnit.ALU: Unit.ALU, MachineUnit.FMA: Unit.FMA, MachineUnit.MUFU: Unit.MUFU}
"""The units of the model that are pipes of the arithmetic."""


def pipe_cycles(
    mix: InstructionMix, elements: int, machine: Machine
) -> tuple[dict[Unit, float], dict[Unit, float]]:
    """Cycles of each pipe for a mix on so many elements: of one warpgroup alone, and where all keep at it."""
    alone: dict[Unit, float] = {}
    contended: dict[Unit, float] = {}
    for kind, count in mix.items():
        pipe = PIPES.get(machine.scalar_unit[kind])
        if pipe is not None:
            alone[pipe] = alone.get(pipe, 0.0) + count * elements / machine.scalar_alone[kind]
            contended[pipe] = contended.get(pipe, 0.0) + count * elements / machine.scalar[kind]
    return alone, contended
