"""Cycles that reductions over all rows cost behind a block's last tile: its parts' way to the workspace, and back.

What a consumer carries it leaves as one value a column. Who arrives last of a bundle of parts adds them up, and who
arrives last of all bundles their sums: of the kernel's time both are behind the last tile of the block that ends last.
"""

from __future__ import annotations

import math

from wsopt.machine.types import Machine
from wsopt.perf.costs import load_cycles
from wsopt.program.over_rows import bundle_parts, column_blocks, part_bytes
from wsopt.program.program import TileProgram

_TRIPS, _TRIP_CYCLES = 2, 700
"""To L2 and back before an arrival is known; and the cycles of a trip, as those of split sums."""

_IN_FLIGHT = 16
"""Bytes that a thread has asked for at a time are those of so many elements, at least."""


def parts_of(program: TileProgram, machine: Machine) -> int:
    """Parts that are brought together: one of each consumer of each block whose tiles are of the same columns."""
    blocks = min(column_blocks(program, machine), program.grid.row_tiles)
    return blocks * program.structure.consumers


def left_bytes(program: TileProgram, machine: Machine) -> int:
    """Bytes of all parts and of their bundles' sums; 0 where nothing is carried."""
    parts, each = parts_of(program, machine), part_bytes(program)
    return (parts + math.ceil(parts / bundle_parts(program, machine))) * each * program.grid.column_tiles


def end_cycles(program: TileProgram, machine: Machine) -> int:
    """Cycles from a block's last tile to the results; 0 where nothing is carried."""
    each = part_bytes(program)
    if not each:
        return 0
    parts, bundle = parts_of(program, machine), bundle_parts(program, machine)
    arrival = load_cycles(each, machine) + _TRIPS * _TRIP_CYCLES + machine.latency.barrier
    steps = (min(parts, bundle), math.ceil(parts / bundle))
    return math.ceil(sum(arrival + _added_up(program, count, machine) for count in steps))


def _added_up(program: TileProgram, count: int, machine: Machine) -> float:
    """Cycles in which a consumer loads so many parts: by bytes, and by trips of what its threads ask for at a time."""
    threads = program.structure.consumer_warps * machine.threads_per_warp
    elements = count * part_bytes(program) / 4 / threads
    trips = math.ceil(elements / (8 * _IN_FLIGHT))
    return trips * _TRIP_CYCLES + count * part_bytes(program) / machine.tma_bytes_per_cycle
