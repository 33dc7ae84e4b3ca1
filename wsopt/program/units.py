"""The units that tile operations compete for: an entry each. A new unit with its cost is one more.

The lowering counts the cycles of the hardware's units with an operation's other costs. A unit that is added
counts its own, once the operations are there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from wsopt.entries import Table
from wsopt.machine.types import Machine
from wsopt.program.changed import changed
from wsopt.program.program import TileOp, TileProgram, Unit

Cycles = Callable[[TileOp, TileProgram, Machine], int]


@dataclass(frozen=True, slots=True)
class UnitEntry:
    """A unit that one operation holds at a time, and what reports call it.

    `cycles(op, program, machine)` is for how many cycles of an SM an operation of the loop holds it, 0 for one that
    does not; without it the lowering has counted them with the operation's other costs.
    """

    name: str
    words: str
    cycles: Cycles | None = None


UNITS = Table(
    "unit",
    UnitEntry(Unit.TENSOR, "tensor core"),
    UnitEntry(Unit.TMA, "TMA path"),
    UnitEntry(Unit.ALU, "ALU"),
    UnitEntry(Unit.FMA, "FMA pipe"),
    UnitEntry(Unit.MUFU, "MUFU pipe"),
    UnitEntry(Unit.SHARED, "shared memory"),
    UnitEntry(Unit.MEMORY, "device memory"),
)
"""Every unit by name, in the order of reports."""


def with_units(program: TileProgram, machine: Machine) -> TileProgram:
    """The program with the cycles for which its operations hold units that count them by their entries."""
    counted = [(unit.name, unit.cycles) for unit in UNITS.values() if unit.cycles is not None]
    if not counted:
        return program
    held = (tuple((name, cycles(op, program, machine)) for name, cycles in counted) for op in program.ops)
    ops = (replace(op, pipes=op.pipes + own) for op, own in zip(program.ops, held, strict=True))
    return changed(program, ops=tuple(ops))
