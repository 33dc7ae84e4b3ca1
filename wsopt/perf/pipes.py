"""What arithmetic costs by pipe: instructions an element, cycles of each pipe, alone and beside other consumers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from wsopt.machine.cost import InstructionMix
from wsopt.machine.types import Machine
from wsopt.machine.types import Unit as MachineUnit
from wsopt.primitives import PRIMITIVES, Family, family_of
from wsopt.program.program import Unit
from wsopt.tensors.statements import Reduction, Statement
from wsopt.tensors.views import Role

PIPES = {MachineUnit.ALU: Unit.ALU, MachineUnit.FMA: Unit.FMA, MachineUnit.MUFU: Unit.MUFU}
"""The units of the model that are pipes of the arithmetic."""


def statement_mix(item: Statement) -> InstructionMix:
    """Instructions an element of a statement."""
    return InstructionMix(PRIMITIVES[item.primitive].mix)


def element_mix(
    items: Iterable[Statement | Reduction],
    spans: frozenset[Role],
    fused: Callable[[Statement], bool] = lambda item: False,
) -> InstructionMix:
    """Instructions an element of a tile that spans these axes; what is `fused` is part of another instruction.

    Rounding takes two elements at a time; what spans fewer axes is too little to count.
    """
    mix = InstructionMix()
    for item in items:
        if isinstance(item, Reduction):
            mix = mix + InstructionMix({"max" if item.kind == "max" else "add": 1})
        elif item.spans == spans and not fused(item):
            pairs = 0.5 if family_of(item.primitive) is Family.ROUNDING else 1.0
            mix = mix + statement_mix(item) * pairs
    return mix


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
