"""Cycles that split sums cost a consumer: its part's way to the workspace, and all parts' way back.

Every part of a tile is stored, also the one that comes last: the parts are then added up in their own order, whoever
that is, so that the sum's bits do not depend on who came when. A store is there for others when the arrival behind
it is, two trips to L2 and back. By atomics L2 adds each part to those before, and the last one reads one sum.

What a loop that computes values leaves is rescaled as it is added up, some rows at a time, and goes to the epilogue
by way of the workspace; of rows that no tensor has nothing is stored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from wsopt.graph.types import DType
from wsopt.machine.types import Machine
from wsopt.perf.copies import load_cycles
from wsopt.program.program import TileProgram
from wsopt.program.types import Structure
from wsopt.tensors.views import Role, pow2

_TRIPS, _TRIP_CYCLES = 2, 700
"""To L2 and back before an arrival is known, the stores' fence and the counter; and the cycles of a trip while others
copy from device memory, fitted on an H200 (`docs/model/h200_few_tiles.json`).
"""

_ADDITIONS = 3
"""Times the bytes of a part's stores that its atomics take of the way to L2: so that what they gain is predicted as
it was measured on an H200, of two parts next to nothing, of five 1.6 us (`docs/calibration/h200_atomic_sums.json`).
"""

_COUNT_CYCLES = 400
"""Of so many tiles' K-blocks their running sum and its ends, at most _MOST_COUNTED at a time: instructions and the
meetings of warps, an estimate.
"""
_LEAST_COUNTED, _MOST_COUNTED = 128, 256

_IN_FLIGHT = 160
"""Elements that a thread has asked for at a time: the registers that its sums have left."""


_LEAST_ROWS, _TOGETHER = 8, 96
"""Rows that are brought together at least, since workspaces have eight of them side by side; elements that a thread
loads together, beside what it rescales them with.
"""


@dataclass(frozen=True, slots=True)
class SplitCost:
    """Cycles of one consumer: to store its `part` of a tile and to arrive, and to add up `all` parts of one."""

    part: int
    all: int


def _rows(program: TileProgram) -> int:
    """Rows of a consumer's tile that are stored: of a loop that computes values no more than the tensor has."""
    rows = program.structure.rows
    return min(rows, program.whole.extent(Role.ROW)) if program.work is not None else rows


def partial_bytes(program: TileProgram) -> int:
    """Bytes of one consumer's sums of one part of a tile; 0 where no sums are split."""
    s = program.structure
    return len(program.summed) * _rows(program) * s.columns * DType.F32.bits // 8 if s.parted else 0


def moved_bytes(program: TileProgram) -> int:
    """Bytes of partial sums that go to L2 and come back: all parts of all tiles, of equal shares those that are left
    for others. Of sums that atomics add up one comes back, and places are left as they were found.
    """
    s, tile = program.structure, partial_bytes(program) * program.structure.at_once
    if s.atomics:
        return tile * (_ADDITIONS * program.tiles + 2 * program.tiles // s.splits)
    return 2 * tile * (program.tiles if program.shares is None else program.shares.parts)


def parts_of_a_tile(program: TileProgram) -> int:
    """Parts that are brought together, at most."""
    return program.structure.splits if program.shares is None else program.shares.most


def counting_cycles(program: TileProgram) -> int:
    """Cycles in which a block finds its share: it adds up the K-blocks of all tiles, then those before its own."""
    s = program.structure
    if not s.shares or program.work is None:
        return 0
    return 2 * math.ceil(program.tiles / counted_at_once(program)) * (_TRIP_CYCLES + _COUNT_CYCLES)


def counted_at_once(program: TileProgram) -> int:
    """Tiles whose K-blocks are counted at a time: a power of two."""
    return min(_MOST_COUNTED, max(_LEAST_COUNTED, pow2(program.grid.tiles)))


def rows_at_once(program: TileProgram, machine: Machine) -> int:
    """Rows of a consumer whose parts are brought together at a time: as many as the tensor may have, if the loads of
    all parts fit the registers.
    """
    s, rows = program.structure, _LEAST_ROWS
    while (
        2 * rows <= s.rows
        and rows < program.whole.extent(Role.ROW)
        and _each(s, 2 * rows, machine) * parts_of_a_tile(program) <= _TOGETHER
    ):
        rows *= 2
    return rows


def parts_at_once(program: TileProgram, machine: Machine) -> int:
    """Parts whose loads are under way together: all, or a power of two that the registers hold."""
    s, parts = program.structure, parts_of_a_tile(program)
    fit = max(1, int(_TOGETHER // _each(s, rows_at_once(program, machine), machine)))
    if s.shares:  # of some tiles there are fewer, and of lengths that nobody expected more
        parts = pow2(parts)
    return parts if parts <= fit else 1 << fit.bit_length() - 1


def _each(s: Structure, rows: int, machine: Machine) -> float:
    """Registers of a thread for so many rows of one product's sums."""
    return rows * s.columns / (s.consumer_warps * machine.threads_per_warp)


def split_cost(program: TileProgram, machine: Machine) -> SplitCost:
    """Cycles that split sums cost one consumer of a tile; zeros where sums are not split."""
    nbytes, s = partial_bytes(program), program.structure
    if not nbytes:
        return SplitCost(0, 0)
    every = nbytes * s.at_once * s.loops_an_sm
    elements = nbytes // (s.consumer_warps * machine.threads_per_warp * DType.F32.bits // 8)
    part = load_cycles(every * (_ADDITIONS if s.atomics else 1), machine)
    arrival = _TRIPS * _TRIP_CYCLES + machine.latency.barrier
    parts = 1 if s.atomics else parts_of_a_tile(program)
    rounds = math.ceil(parts * elements / _IN_FLIGHT)
    if program.work is not None:  # rows after rows, parts after parts; and from the workspace to the epilogue
        rows = math.ceil(_rows(program) / rows_at_once(program, machine))
        # The maxima of all parts come first; where the compiler knows how many there are, with their sums.
        passes = 2 if s.shares else 1
        rounds = rows * passes * math.ceil(parts / parts_at_once(program, machine)) + 1
    back = rounds * _TRIP_CYCLES + parts * every / machine.tma_bytes_per_cycle
    return SplitCost(math.ceil(part + arrival), math.ceil(back))
