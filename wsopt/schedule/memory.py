"""Shared memory of a block: rings, tiles that it holds, epilogue buffers, barriers, what warps exchange."""

from __future__ import annotations

from collections.abc import Sequence

from wsopt.graph.types import DType
from wsopt.machine.types import Machine
from wsopt.program.facts import Arithmetic
from wsopt.program.ids import ValueKind
from wsopt.program.program import OpKind, TileProgram
from wsopt.program.types import Sharing, Space, Structure
from wsopt.schedule.types import EpilogueBuffers

SHARED_MEMORY_RESERVE = 1024
"""Bytes kept for what the compiler adds: barriers' padding, partition state, alignment. Seen: 144 to 340."""

RESERVED_EXCHANGE = 128
"""Of these, bytes for warps that exchange the results of few rows that they share: an f32 of each row and warp."""

BARRIER_BYTES = 8
"""Of an mbarrier."""


def shared_capacity(s: Structure, machine: Machine) -> int:
    """Bytes of shared memory that a block may take: all that the hardware gives one, or of several the SM's share, of
    which the system keeps some for each.
    """
    if s.blocks_an_sm == 1:
        return machine.shared_memory_per_block_bytes
    share = machine.shared_memory_per_sm_bytes // s.blocks_an_sm - machine.shared_memory_reserved_bytes
    return min(machine.shared_memory_per_block_bytes, share)


def buffer_bytes(program: TileProgram, buffers: EpilogueBuffers) -> int:
    """Bytes of one consumer's epilogue buffers. Each kind of output has one at least, unless inputs lend theirs."""
    cost = program.epilogue
    staged = cost.staged_bytes * buffers.staging if buffers.staging else cost.staged_bytes - cost.lent_bytes
    return staged + cost.input_bytes * buffers.inputs + cost.vector_bytes


def shared_memory(program: TileProgram, depth: int | Sequence[int], buffers: EpilogueBuffers) -> int:
    """Bytes of shared memory of a block with these buffers a consumer, and rings of `depth` slots: one number
    for all rings, or one for each.
    """
    s = program.structure
    slots = [depth] * len(program.rings) if isinstance(depth, int) else depth
    rings = sum(plan.slot_bytes * count for plan, count in zip(program.rings, slots, strict=True))
    held = program.stationary_bytes * s.stationary_sets + s.consumers * buffer_bytes(program, buffers)
    held += sum(v.nbytes for v in program.values if (v.id.kind, v.space) == (ValueKind.OPERAND, Space.SHARED))
    reserve = SHARED_MEMORY_RESERVE + exchange_beyond_reserve(program)
    reserve += s.consumers * (program.over_rows_bytes + program.turning_bytes)
    reserve += number_bytes(program, slots)
    return rings + held + barrier_bytes(program, slots, buffers) + reserve


def number_bytes(program: TileProgram, slots: Sequence[int]) -> int:
    """Bytes of the numbers of the tiles that rings' slots belong to, in whole runs of 16 bytes; none where tiles are
    taken in turns.
    """
    runs = (-(-count * DType.I32.bits // 128) for count in slots)
    return 16 * sum(runs) if program.structure.dynamic else 0


def exchange_beyond_reserve(program: TileProgram) -> int:
    """Bytes of exchanges between warps beyond those that the reserve for the compiler covers."""
    return max(0, exchange_bytes(program) - RESERVED_EXCHANGE)


def exchange_bytes(program: TileProgram) -> int:
    """Bytes through which the warps of all consumers that share rows exchange what they have reduced of them: an f32
    of each row and warp. So do those whose rows lie in another way in tensor memory, with an f32 of each row.
    """
    s, counts = program.structure, (op.counts for op in program.loop)
    warps = [one.warps for work in counts if isinstance(work, Arithmetic) for one in work.reductions]
    turned = int(program.tensor_columns > 0 and program.computes)
    shared = max((number for number in warps if number > 1), default=turned)
    return s.consumers * s.rows * shared * DType.F32.bits // 8


def barrier_bytes(program: TileProgram, slots: Sequence[int], buffers: EpilogueBuffers) -> int:
    """Bytes of a block's barriers: two a slot of each ring and of held tiles, one for each buffer of inputs, or two
    where the loading warp fills it, two for each store that a store warp starts, two for each set of sums in tensor
    memory, of which blocks of one tile hand back none, and one for each turn.
    """
    s = program.structure
    held = 2 * s.stationary_sets if s.persistent else 1
    barriers = (
        2 * sum(slots)
        + s.consumers * len(program.after.full) * buffers.inputs * (1 + buffers.inputs_by_loader)
        + 2 * s.consumers * program.epilogue.stores * buffers.store_warp
        + (
            _value_barriers(program)
            if program.values_apart
            else (1 + s.persistent) * buffers.sums * (program.tensor_columns > 0)
        )
        + held * (program.stationary_bytes > 0)
        + s.consumers * (s.sharing is Sharing.PING_PONG)
    )
    return barriers * BARRIER_BYTES


def _value_barriers(program: TileProgram) -> int:
    """Barriers of a loop whose values go through tensor memory: one for each product's end, one for each operand, and
    one for scores that are handed back by their reader.
    """
    products = program.of(OpKind.MMA)
    fed = sum(any(value.kind is ValueKind.OPERAND for value in op.inputs) for op in products)
    shared = any(value.within is not None for value in program.values)
    handed = sum(
        op.apart for op in program.of(OpKind.RESCALE)
    )  # sums that are rescaled, a factor that comes and goes
    return len(products) + fed + (0 if shared else len(program.of(OpKind.READ))) + 3 * handed
