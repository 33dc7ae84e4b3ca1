"""Cycles that reductions of rows take besides their elements: threads of a warp exchange results, then warps do."""

from __future__ import annotations

import math
from collections.abc import Sequence

from wsopt.machine.types import Machine
from wsopt.program.facts import RowReduction

_MEASURED_EXCHANGES = 2
_MEASURED_ROWS = 2
"""Exchanges between threads in a reduction of the accumulators' layout, whose start was measured, and rows of which
each thread has elements there.
"""

_ROWS_A_TRIP = 4
"""Rows of f32 that a thread's widest store to shared memory moves."""


def starts(reductions: Sequence[RowReduction], machine: Machine) -> float:
    """Cycles of all reductions of a phase. What stays apart in the threads is not exchanged."""
    apart = sum(one.apart for one in reductions)
    cycles = math.fsum(_start(one, machine) for one in reductions)
    return cycles - _MEASURED_EXCHANGES * machine.latency.shuffle * apart


def _start(reduction: RowReduction, machine: Machine) -> float:
    """Exchanges within a warp, then between warps.

    A warp's start was measured with two exchanges of two rows; further rows are instructions. Warps that share a row
    meet at two barriers, around a trip of their results through shared memory, a vector of rows at a time.
    """
    exchanges, latency = math.log2(reduction.lanes), machine.latency
    cycles = machine.tile_start[f"row_{reduction.kind}"] * exchanges / _MEASURED_EXCHANGES
    cycles += _further_exchanges(reduction) / machine.scalar_alone["shuffle"]
    if reduction.warps > 1:
        trip = 2 * latency.barrier + latency.smem_store + latency.smem_load
        trip += math.log2(reduction.warps) * latency.shuffle
        cycles += trip * math.ceil(reduction.rows / _ROWS_A_TRIP)
    return cycles * reduction.share


def _further_exchanges(reduction: RowReduction) -> float:
    """Exchanges, by all threads, of rows beyond those whose cost a reduction's start has."""
    return max(0, reduction.rows - _MEASURED_ROWS) * reduction.threads * math.log2(reduction.lanes)
