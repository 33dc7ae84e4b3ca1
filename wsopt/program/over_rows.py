"""Reductions over all rows that blocks carry from tile to tile, and how their parts come together.

Each consumer leaves a part, one value a column. Parts are added up in bundles, whoever arrives last of a bundle, and
the bundles' sums by whoever arrives last of all: one SM alone would read too much, two steps are enough for the SMs
of any card.
"""

from __future__ import annotations

import math

from wsopt.graph.types import DType
from wsopt.machine.types import Machine
from wsopt.program.program import TileProgram
from wsopt.program.types import Structure
from wsopt.tensors.statements import Reduction

_KEPT = 64
"""Registers of a consumer that hold other things than parts while it adds them up."""

_MOST_TOGETHER = 8
"""Parts whose loads stand side by side in the text at most."""


def carried(program: TileProgram) -> tuple[Reduction, ...]:
    """The reductions over rows that a block carries from tile to tile."""
    return tuple(item for item in program.items if isinstance(item, Reduction) and item.over_rows)


def bundle_parts(program: TileProgram, machine: Machine) -> int:
    """Parts that are added up at a time: so many that there are about as many bundles."""
    return math.ceil(math.sqrt(column_blocks(program, machine) * program.structure.consumers))


def column_blocks(program: TileProgram, machine: Machine) -> int:
    """Blocks that take tiles of the same columns, at most: a block carries those of one tile of columns."""
    return max(1, machine.sm_count // program.grid.column_tiles)


def part_bytes(program: TileProgram) -> int:
    """Bytes of a consumer's part of all that it carries."""
    return len(carried(program)) * program.structure.columns * DType.F32.bits // 8


def columns_of_thread(s: Structure, machine: Machine) -> int:
    """Columns of a part that each of a consumer's threads has while parts are added up."""
    return max(1, s.columns // (s.consumer_warps * machine.threads_per_warp))


def parts_together(columns: int, registers: int) -> int:
    """Parts whose loads are under way together, a power of two: what the `registers` of a thread hold beside the
    sums, where a thread has so many `columns` of each.
    """
    most = min(_MOST_TOGETHER, max(1, (registers - _KEPT) // columns - 1))
    return 1 << most.bit_length() - 1
