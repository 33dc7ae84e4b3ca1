"""Cycles that split sums cost a consumer: its part's way to the workspace, and all parts' way back.

Every part of a tile is stored, also the one that comes last: the parts are then added up in their own order, whoever
that is, so that the sum's bits do not depend on who came when. A store is there for others when the arrival behind
it is, two trips to L2 and back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from wsopt.graph.types import DType
from wsopt.machine.types import Machine
from wsopt.perf.costs import load_cycles
from wsopt.program.ids import ValueKind
from wsopt.program.program import TileProgram

_TRIPS, _TRIP_CYCLES = 2, 770
"""To L2 and back before an arrival is known, the stores' fence and the counter; and the cycles of a trip while others
copy from device memory, fitted on an H200 (`docs/model/h200_few_tiles.json`).
"""

_IN_FLIGHT = 160
"""Elements that a thread has asked for at a time: the registers that its sums have left."""


@dataclass(frozen=True, slots=True)
class SplitCost:
    """Cycles of one consumer: to store its `part` of a tile and to arrive, and to add up `all` parts of one."""

    part: int
    all: int


def partial_bytes(program: TileProgram) -> int:
    """Bytes of one consumer's sums of one part of a tile; 0 where no sums are split."""
    s = program.structure
    sums = [v for v in program.values if v.id.kind is ValueKind.SUM and v.consumer == 0]
    return len(sums) * s.rows * s.columns * DType.F32.bits // 8 if s.splits > 1 else 0


def workspace_bytes(program: TileProgram) -> int:
    """Bytes of all parts of all tiles."""
    return partial_bytes(program) * program.structure.at_once * program.tiles


def split_cost(program: TileProgram, machine: Machine) -> SplitCost:
    """What one consumer of a tile takes for it; nothing where sums are not split."""
    nbytes, s = partial_bytes(program), program.structure
    if not nbytes:
        return SplitCost(0, 0)
    every = nbytes * s.at_once
    elements = nbytes // (s.consumer_warps * machine.threads_per_warp * DType.F32.bits // 8)
    part = load_cycles(every, machine) + _TRIPS * _TRIP_CYCLES + machine.latency.barrier
    rounds = math.ceil(s.splits * elements / _IN_FLIGHT)
    back = rounds * _TRIP_CYCLES + s.splits * every / machine.tma_bytes_per_cycle
    return SplitCost(math.ceil(part), math.ceil(back))
