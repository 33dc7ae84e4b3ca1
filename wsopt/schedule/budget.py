"""Shared memory and registers that a schedule takes: the arithmetic that the model and the checker share.

The emitter allocates exactly these buffers, so a kernel that needs more than this is a fault.
"""

from __future__ import annotations

from wsopt.machine.types import Machine
from wsopt.tile.types import Sharing, Structure, TileProgram

SHARED_MEMORY_RESERVE = 1024
"""Bytes kept for what the compiler adds: barriers' padding, partition state, alignment. Seen: 144 to 340."""

BARRIER_BYTES = 8
LOADER_REGISTERS = 24
"""A loader counts tiles and slots and starts copies; ptxas fits it in the least that setmaxnreg takes."""


def warpgroup_warps(warps: int, machine: Machine) -> int:
    """Warps that a partition takes up: registers are dealt out by warpgroups."""
    size = machine.warps_per_warpgroup
    return -(-warps // size) * size


def base_registers(structure: Structure, machine: Machine) -> int:
    """Registers a thread that the kernel is launched with, before roles trade them.

    All partitions start with the same number, a multiple of the granularity; they must fit the file.
    """
    size = machine.warps_per_warpgroup
    warps = structure.consumers * structure.consumer_warps + size
    fair = machine.registers_per_sm // (warps * machine.threads_per_warp)
    granularity = machine.register_granularity
    return min(fair, machine.max_registers_per_thread) // granularity * granularity


def consumer_registers(structure: Structure, machine: Machine) -> int:
    """Registers a thread that every consumer can have when the loader keeps the least."""
    size = machine.warps_per_warpgroup
    warps = structure.consumers * structure.consumer_warps
    total = base_registers(structure, machine) * (warps + size) - LOADER_REGISTERS * size
    granularity = machine.register_granularity
    return min(total // warps // granularity * granularity, machine.setmaxnreg_max_registers)


def needed_registers(program: TileProgram, margin: int) -> int:
    """Registers a thread that a consumer's live tiles take, with `margin` for addresses and temporaries."""
    return program.accumulator_registers + program.epilogue.registers + margin


def input_buffers(program: TileProgram) -> int:
    """Full tiles that one consumer's epilogue reads: each has a buffer and a barrier a piece."""
    full = [s for s in program.region.sources if len(s.spans) == 2]
    return len(full) * program.structure.pieces


def shared_memory(program: TileProgram, depth: int, staging: int) -> int:
    """Bytes of shared memory of a block with rings of `depth` slots and `staging` buffers a consumer."""
    s = program.structure
    ring = sum(plan.slot_bytes for plan in program.rings) * depth
    epilogue = s.consumers * (program.epilogue.staged_bytes * staging + program.epilogue.input_bytes)
    barriers = 2 * len(program.rings) * depth + s.consumers * input_buffers(program)
    if s.sharing is Sharing.TURNS:
        barriers += s.consumers
    return ring + epilogue + barriers * BARRIER_BYTES + SHARED_MEMORY_RESERVE
