"""Cycles that reductions over all rows cost behind a block's last tile: their parts' way to the workspace, and back.

Behind its last tile a consumer stores its part of each such reduction, one value a column. Parts are bundled: the
last consumer of a bundle to arrive combines its parts, and the last of all combines the bundles. Both come after the
last tile of the block that ends last.
"""

from __future__ import annotations

import math

from wsopt.machine.types import Machine
from wsopt.perf.copies import load_cycles
from wsopt.program.over_rows import (
    bundle_parts,
    carried,
    column_blocks,
    columns_of_thread,
    part_bytes,
    parts_together,
)
from wsopt.program.program import TileProgram
from wsopt.schedule.budget import consumer_registers

_TRIPS, _TRIP_CYCLES = 2, 700
"""To L2 and back before an arrival is known; and the cycles of a trip, as for split sums (`perf/splits.py`)."""


def parts_of(program: TileProgram, machine: Machine) -> int:
    """Parts that are combined: one of each consumer of every block whose tiles are of the same columns."""
    blocks = min(column_blocks(program, machine), program.grid.row_tiles)
    return blocks * program.structure.consumers


def left_bytes(program: TileProgram, machine: Machine) -> int:
    """Bytes of all parts and of the bundles' results in the workspace; 0 without reductions over all rows."""
    parts, each = parts_of(program, machine), part_bytes(program)
    return (parts + math.ceil(parts / bundle_parts(program, machine))) * each * program.grid.column_tiles


def end_cycles(program: TileProgram, machine: Machine) -> int:
    """Cycles from a block's last tile to the results; 0 without reductions over all rows."""
    each = part_bytes(program)
    if not each:
        return 0
    parts, bundle = parts_of(program, machine), bundle_parts(program, machine)
    arrival = load_cycles(each, machine) + _TRIPS * _TRIP_CYCLES + machine.latency.barrier
    steps = (min(parts, bundle), math.ceil(parts / bundle))
    return math.ceil(math.fsum(arrival + _together(program, count, machine) for count in steps))


def _together(program: TileProgram, count: int, machine: Machine) -> float:
    """Cycles in which a consumer loads `count` parts: the trips to L2 of its loads, and their bytes."""
    s = program.structure
    at_once = parts_together(columns_of_thread(s, machine), consumer_registers(s, machine))
    trips = len(carried(program)) * (1 + math.ceil((count - 1) / at_once))
    return trips * _TRIP_CYCLES + count * part_bytes(program) / machine.tma_bytes_per_cycle
