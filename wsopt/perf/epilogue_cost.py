"""Cost of one consumer's epilogue, from its items, its tensors and the machine's figures."""

from __future__ import annotations

import math

from wsopt.machine.cost import unit_cycles
from wsopt.machine.types import TILE_ROWS, Machine
from wsopt.machine.types import Unit as MachineUnit
from wsopt.program.program import Epilogue, EpilogueCost
from wsopt.program.staging import lent_bytes, staged_bytes
from wsopt.program.types import Structure, column_role, row_role
from wsopt.tensors.views import Reduction, View

_ROWS_OF_A_MATRIX, _COLUMNS_OF_A_MATRIX = 8, 8
"""An accumulator lies over threads in matrices of 8 x 8: each thread has two neighbours of a row (PTX ISA, wgmma)."""
_LEAST_BITS = {"store": 8, "load": 16}
"""Elements of fewer bits are counted as these: narrower ones were not measured."""


def _arithmetic(after: Epilogue, s: Structure, machine: Machine) -> float:
    """Cycles of the epilogue's arithmetic for one consumer alone.

    The pipes are added up: with two or three warps a scheduler one does not run under another.
    """
    pipes = unit_cycles(machine, after.mix, s.rows * s.columns)
    pipes.pop(MachineUnit.ISSUE, None)
    return sum(pipes.values())


def _moved_cycles(what: str, view: View, s: Structure, machine: Machine, contention: int) -> float:
    """Cycles in which one consumer of `contention` moves a subtile between registers and shared memory.

    Its warpgroups take rows of their own; a transposed tile meets every bank twice.
    """
    groups = s.consumer_warps // machine.warps_per_warpgroup
    name = f"shared_{what}_{max(view.dtype.bits, _LEAST_BITS[what])}"
    columns = s.subtile_columns * s.rows / TILE_ROWS / groups * (2 if s.swap else 1)
    slowest = max(machine.tile_alone[name], contention * groups * machine.tile_crowded[name])
    return machine.tile_start[name] + columns * slowest


def staging_cycles(view: View, s: Structure, machine: Machine, contention: int) -> float:
    """Cycles of a subtile's values on their way into shared memory, while `contention` consumers are at it, with the
    fence and the barrier behind it.
    """
    return _moved_cycles("store", view, s, machine, contention) + machine.latency.barrier


def _column_vectors(after: Epilogue, s: Structure) -> list[View]:
    """The vectors along the accumulator's columns that a consumer holds in shared memory."""
    return [x.view for x in after.vectors if column_role(s.swap) in x.spans] if after.prefetched else []


def _prefetched_registers(after: Epilogue, s: Structure, machine: Machine) -> int:
    """Registers a thread that rows, columns and scalars take, from the start of the loop on."""
    row, column, found = row_role(s.swap), column_role(s.swap), 0
    threads = s.consumer_warps * machine.threads_per_warp
    for source in after.vectors if after.prefetched else ():
        by_row = s.rows // s.consumer_warps // _ROWS_OF_A_MATRIX if row in source.spans else 1
        found += max(1, s.columns // threads) if column in source.spans else by_row
    return found


def _cycles(after: Epilogue, s: Structure, machine: Machine, contention: int, arithmetic: float) -> int:
    """Cycles of a consumer's epilogue while `contention` are at theirs: by subtiles, and once a tile.

    Prefetched vectors were loaded before, those along the columns through shared memory, from which a thread reads
    two neighbours at a time. Where they come late their latency shows.
    """
    latency, count = machine.latency, len(_column_vectors(after, s))
    threads = s.consumer_warps * machine.threads_per_warp
    reads = contention * threads * s.subtile_columns / _COLUMNS_OF_A_MATRIX / machine.scalar["ldst"]
    once = count * (latency.smem_store + latency.barrier)
    subtile = latency.tma_load_l2 / 2 if after.late else count * (latency.smem_load + reads)
    subtile += sum(
        latency.mbarrier_wait + _moved_cycles("load", source.view, s, machine, contention)
        for source in after.full
    )
    stored = [staging_cycles(output.view, s, machine, contention) for output in after.tile_outputs]
    subtile += sum(stored) + len(stored) * machine.tma_store_box_cycles
    starts = (machine.tile_start[f"row_{i.kind}"] for i in after.items if isinstance(i, Reduction))
    once += latency.mma_latency + s.rows / TILE_ROWS * sum(starts)
    return math.ceil(arithmetic + s.subtiles * subtile + once)


def _sums_cycles(after: Epilogue, s: Structure, machine: Machine) -> float:
    """Cycles in which a tile's sums come from tensor memory into registers; 0 where they are there already."""
    if not after.sum_bytes:
        return 0.0
    return s.subtiles * machine.latency.smem_load + after.sum_bytes / machine.tensor_memory_bytes_per_cycle


def epilogue_cost(after: Epilogue, s: Structure, machine: Machine) -> EpilogueCost:
    """The epilogue of one consumer's tile."""
    alone = _arithmetic(after, s, machine) + _sums_cycles(after, s, machine)
    threads = s.consumer_warps * machine.threads_per_warp
    subtile, full = s.rows * s.subtile_columns // threads, len(after.full)
    live = subtile * (1 + full) // 2 if s.subtiles > 1 or full else subtile // 4
    inputs = (s.rows * s.subtile_columns * source.view.dtype.bits // 8 for source in after.full)
    return EpilogueCost(
        alone=_cycles(after, s, machine, 1, alone),
        together=_cycles(after, s, machine, s.at_once, alone * s.at_once),
        staged_bytes=staged_bytes(after, s),
        input_bytes=sum(inputs),
        registers=min(live, 64) + _prefetched_registers(after, s, machine),
        stores=s.subtiles * len(after.tile_outputs),
        lent_bytes=lent_bytes(after, s),
        vector_bytes=sum(s.columns * view.dtype.bits // 8 for view in _column_vectors(after, s)),
    )
