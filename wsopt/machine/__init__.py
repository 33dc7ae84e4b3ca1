"""The machine room: one frozen, self-checking record a card, and what an instruction mix costs on it.

`load_machine("h200")` or `load_machine("my_card.toml")` reads a data file into a `Machine`. Rooms further
down the line read that record and nothing else: no architecture is named outside the data files.
"""

from wsopt.machine.cost import InstructionMix, alu_cycles, unit_cycles
from wsopt.machine.frozen import FrozenMap
from wsopt.machine.load import load_machine, machines, require_target
from wsopt.machine.table import MachineRow, machine_rows
from wsopt.machine.types import INSTRUCTION_KINDS, OPERAND_DTYPES, TILE_KINDS, Latency, Machine, Origin, Unit

__all__ = [
    "INSTRUCTION_KINDS",
    "OPERAND_DTYPES",
    "TILE_KINDS",
    "FrozenMap",
    "InstructionMix",
    "Latency",
    "Machine",
    "MachineRow",
    "Origin",
    "Unit",
    "alu_cycles",
    "load_machine",
    "machine_rows",
    "machines",
    "require_target",
    "unit_cycles",
]
