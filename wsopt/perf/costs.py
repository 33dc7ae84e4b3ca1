"""What the operations of a tile program cost on a machine, in cycles, bytes and registers.

Arithmetic is counted from instruction mixes; waits and hand-overs from the machine's latencies. Every figure
that these functions read stands in the machine's file with its source.
"""

from __future__ import annotations

import math

from wsopt.frontend.types import Region
from wsopt.machine.cost import InstructionMix, alu_cycles, unit_cycles
from wsopt.machine.types import Machine
from wsopt.machine.types import Unit as MachineUnit
from wsopt.perf.pipes import element_mix
from wsopt.program.program import EpilogueCost
from wsopt.program.staging import lent_bytes, staged_bytes
from wsopt.program.structures import column_role, row_role
from wsopt.program.types import Structure
from wsopt.tensors.statements import Reduction
from wsopt.tensors.views import FULL, Role, View

_SWIZZLE_BYTES = 128
_ROWS_OF_A_MATRIX, _COLUMNS_OF_A_MATRIX = 8, 8
"""An accumulator lies over threads in matrices of 8 x 8: each thread has two neighbours of a row (PTX ISA, wgmma)."""
_LEAST_BITS = {"store": 8, "load": 16}
"""Elements of fewer bits are counted as these: narrower ones were not measured."""

PROMOTION = InstructionMix({"add": 1})
"""What adding a partial sum takes, an element."""


def mma_cycles(region: Region, s: Structure, machine: Machine) -> int:
    """Cycles of the tensor core for one product of one consumer's rows, all columns, one K-block.

    Two warpgroups in one partition start every product together, and lose a little by it.
    """
    macs = s.rows * s.columns * s.depth
    joint = s.consumer_warps > machine.warps_per_warpgroup
    rate = machine.tensor[region.operand_dtype.value] * (1 - machine.joint_warpgroups_loss * joint)
    return math.ceil(macs / rate)


def mma_instructions(region: Region, s: Structure, machine: Machine) -> int:
    """Tensor instructions of that product, a warpgroup."""
    groups = s.consumer_warps // machine.warps_per_warpgroup
    deep = s.depth * region.operand_dtype.bits // 8 // machine.mma_k_bytes
    return (s.rows // machine.mma_rows) * deep // groups


def promotion_cycles(region: Region, s: Structure, machine: Machine) -> float:
    """Cycles of the arithmetic units in which one consumer adds a K-block's partial sums to its sums."""
    promoted = sum(c.promote for c in region.contractions)
    return promoted * alu_cycles(machine, PROMOTION, s.rows * s.columns)


def load_cycles(nbytes: float, machine: Machine, clock_mhz: float | None = None) -> int:
    """Cycles for which bytes hold the SM's path from L2, at the bandwidth that all SMs share.

    The bandwidth does not go with the SMs' clock; without one, cycles are of the sustained clock.
    """
    return _share_cycles(nbytes, machine.l2_bandwidth, machine, clock_mhz)


def gpc_cycles(nbytes: float, machine: Machine, clock_mhz: float) -> int:
    """Cycles for which bytes hold an SM's share of its GPC's path, which fetches once what several SMs read."""
    return _share_cycles(nbytes, machine.l2_distinct_bandwidth, machine, clock_mhz)


def _share_cycles(nbytes: float, bandwidth: float, machine: Machine, clock_mhz: float | None) -> int:
    clock = clock_mhz or machine.sustained_clock_mhz
    return math.ceil(nbytes * machine.sm_count * clock * 1e6 / bandwidth)


def line_bytes(rows: int, row_bytes: int, pitch_bytes: int, machine: Machine) -> float:
    """Bytes of the L2 lines that a box touches: `rows` rows, `pitch_bytes` apart in memory.

    A row narrower than a line still costs one; rows that do not start with a line straddle another, on the
    average over the places where they can start, and where they do not start with a sector either, each line
    costs more. A row wider than a swizzle is copied in pieces of one, and each of them straddles.
    """
    line = machine.l2_line_bytes
    step = math.gcd(pitch_bytes, line)
    pieces = math.ceil(row_bytes / _SWIZZLE_BYTES)
    width = row_bytes / pieces
    lines = max(1.0, width / line + 1 - step / line)
    if step < machine.l2_sector_bytes:
        lines *= machine.sector_split_factor
    return rows * pieces * lines * line


def tile_shape(s: Structure, view: View) -> tuple[int, ...]:
    """Extents of a streamed tensor's tile for one copy, the batch left out."""
    across = s.rows if row_role(s.swap) in view.roles else s.columns
    return tuple(s.depth if role is Role.STREAM else across for role in view.roles if role is not Role.BATCH)


def view_lines(s: Structure, view: View, machine: Machine) -> float:
    """Bytes of L2 lines that one copy of a streamed tensor's tile touches."""
    rows, columns = tile_shape(s, view)
    width = view.dtype.bits // 8
    return line_bytes(rows, columns * width, view.strides[-2] * width, machine)


def _straddled(s: Structure, view: View, machine: Machine) -> float:
    """Bytes of lines that a copy of a tile touches where its rows do not start with one; else 0."""
    pitch = view.strides[-2] * view.dtype.bits // 8
    return view_lines(s, view, machine) if pitch % machine.l2_line_bytes else 0.0


def _copies(region: Region, s: Structure) -> tuple[tuple[View, int], ...]:
    """The streamed tensors with how many copies of a tile one K-block of a block takes of each."""
    rows = s.at_once
    return tuple((view, rows if row_role(s.swap) in view.roles else 1) for view in region.operands)


def k_block_lines(region: Region, s: Structure, machine: Machine) -> float:
    """Bytes of L2 lines that one K-block of a block touches."""
    return sum(view_lines(s, view, machine) * count for view, count in _copies(region, s))


def side_lines(region: Region, s: Structure, machine: Machine, side: Role) -> float:
    """Bytes of those that are of the operands along a tile's rows, or along its columns, by the axis' role."""
    copies = _copies(region, s)
    return sum(view_lines(s, view, machine) * count for view, count in copies if side in view.roles)


def slot_bytes(region: Region, s: Structure) -> int:
    """Bytes of one slot of a block's ring."""
    return sum(math.prod(tile_shape(s, v)) * v.dtype.bits // 8 * count for v, count in _copies(region, s))


def operand_bytes(region: Region, s: Structure, machine: Machine) -> int:
    """Bytes that the products of one K-block read from shared memory, for one consumer.

    Every tensor instruction reads its rows and its columns anew.
    """
    deep = s.depth * region.operand_dtype.bits // 8
    blocks = s.rows // machine.mma_rows
    return len(region.contractions) * blocks * (machine.mma_rows + s.columns) * deep


def accumulator_registers(region: Region, s: Structure, machine: Machine) -> int:
    """Registers a thread that accumulators take; a promoted product has its partial sums beside them."""
    threads = s.consumer_warps * machine.threads_per_warp
    tiles = sum(1 + s.copies if c.promote else 1 for c in region.contractions)
    return tiles * s.rows * s.columns // threads


def epilogue_mix(region: Region) -> InstructionMix:
    """Instructions an element of the tile; those on rows or columns alone are too few to count."""
    return element_mix(region.statements, FULL)


def _arithmetic(region: Region, s: Structure, machine: Machine) -> tuple[float, float]:
    """Cycles of the epilogue's arithmetic for one consumer: alone, and with all consumers at it.

    The pipes are added up: with two or three warps a scheduler one does not run under another.
    """
    loads = len(region.full_sources)
    mix = epilogue_mix(region) + InstructionMix({"convert": 0.5 * loads})
    pipes = unit_cycles(machine, mix, s.rows * s.columns)
    pipes.pop(MachineUnit.ISSUE, None)
    alone = sum(pipes.values())
    return alone, alone * s.at_once


def _moved_cycles(what: str, view: View, s: Structure, machine: Machine, contention: int) -> float:
    """Cycles in which one consumer of `contention` moves a piece between registers and shared memory.

    Its warpgroups take rows of their own; a transposed tile meets every bank twice.
    """
    name, groups = f"shared_{what}_{max(view.dtype.bits, _LEAST_BITS[what])}", _warpgroups(s, machine)
    columns = s.piece_columns * s.rows / machine.mma_rows / groups * (2 if s.swap else 1)
    slowest = max(machine.tile_alone[name], contention * groups * machine.tile_crowded[name])
    return machine.tile_start[name] + columns * slowest


def _warpgroups(s: Structure, machine: Machine) -> int:
    return s.consumer_warps // machine.warps_per_warpgroup


def staging_cycles(view: View, s: Structure, machine: Machine, contention: int) -> float:
    """Cycles of a piece's values on their way into shared memory, while `contention` consumers are at it, with the
    fence and the barrier behind it.
    """
    return _moved_cycles("store", view, s, machine, contention) + machine.latency.barrier


def _reading_cycles(view: View, s: Structure, machine: Machine, contention: int) -> float:
    """Cycles in which a full input's piece is waited for, though it is there, and read."""
    return machine.latency.mbarrier_wait + _moved_cycles("load", view, s, machine, contention)


def column_vectors(region: Region, s: Structure) -> tuple[View, ...]:
    """The vectors along the accumulator's columns that a consumer of products holds in shared memory."""
    if region.body or region.streams_rows:
        return ()
    vectors = [source for source in region.sources if source.spans != FULL]
    return tuple(source.view for source in vectors if column_role(s.swap) in source.spans)


def held_registers(region: Region, s: Structure, machine: Machine) -> int:
    """Registers a thread that rows, columns and scalars take, from the start of a loop of products on."""
    if region.body or region.streams_rows:
        return 0
    row, column, found = row_role(s.swap), column_role(s.swap), 0
    for source in (source for source in region.sources if source.spans != FULL):
        threads = s.consumer_warps * machine.threads_per_warp
        by_row = s.rows // s.consumer_warps // _ROWS_OF_A_MATRIX if row in source.spans else 1
        found += max(1, s.columns // threads) if column in source.spans else by_row
    return found


def _vector_cycles(region: Region, s: Structure, machine: Machine, contention: int) -> tuple[float, float]:
    """Cycles that vectors take once a tile, and for each piece.

    A loop of products has them loaded beforehand, those along the columns through shared memory, from which a
    thread reads two neighbours at a time. Behind a loop that computes values their latency shows.
    """
    if region.body:
        vectors = any(source.spans != FULL for source in region.sources)
        return 0.0, machine.latency.tma_load_l2 / 2 if vectors else 0.0
    count = len(column_vectors(region, s))
    threads = s.consumer_warps * machine.threads_per_warp
    reads = contention * threads * s.piece_columns / _COLUMNS_OF_A_MATRIX / machine.scalar["ldst"]
    once = machine.latency.smem_store + machine.latency.barrier
    return count * once, count * (machine.latency.smem_load + reads)


def _epilogue_cycles(
    region: Region, s: Structure, machine: Machine, arithmetic: float, contention: int
) -> int:
    """Cycles of a consumer's epilogue while `contention` are at theirs: by pieces, and once a tile."""
    once, piece = _vector_cycles(region, s, machine, contention)
    piece += sum(_reading_cycles(source.view, s, machine, contention) for source in region.full_sources)
    stored = [staging_cycles(output.view, s, machine, contention) for output in region.tile_outputs]
    piece += sum(stored) + len(stored) * machine.tma_store_box_cycles
    starts = (machine.tile_start[f"row_{i.kind}"] for i in region.statements if isinstance(i, Reduction))
    once += machine.latency.wgmma_latency + s.rows / machine.mma_rows * sum(starts)
    return math.ceil(arithmetic + s.pieces * piece + once)


def epilogue_cost(region: Region, s: Structure, machine: Machine) -> EpilogueCost:
    """The epilogue of one consumer's tile."""
    alone, together = _arithmetic(region, s, machine)
    contention = s.at_once
    full = [source.view for source in region.full_sources]
    threads = s.consumer_warps * machine.threads_per_warp
    piece = s.rows * s.piece_columns // threads
    live = piece * (1 + len(full)) // 2 if s.pieces > 1 or full else piece // 4
    return EpilogueCost(
        alone=_epilogue_cycles(region, s, machine, alone, 1),
        together=_epilogue_cycles(region, s, machine, together, contention),
        staged_bytes=staged_bytes(region, s),
        input_bytes=sum(s.rows * s.piece_columns * view.dtype.bits // 8 for view in full),
        registers=min(live, 64) + held_registers(region, s, machine),
        stores=s.pieces * len(region.tile_outputs),
        lent_bytes=lent_bytes(region, s),
        vector_bytes=sum(s.columns * view.dtype.bits // 8 for view in column_vectors(region, s)),
    )


def _reloads(extent: int, tile: int, group: int) -> int:
    return math.ceil(math.ceil(extent / tile) / group)


def rows_at_once(region: Region, s: Structure, machine: Machine) -> int:
    """Tile rows that the blocks of all SMs are in together: a group, and as many more as they reach into."""
    columns = math.ceil(region.extent(column_role(s.swap)) / s.columns)
    return s.group * max(1, machine.sm_count // (s.group * columns))


def dram_bytes(region: Region, s: Structure, machine: Machine) -> int:
    """Bytes from and to device memory, by how the tiles are walked.

    Groups of tile rows are walked column by column. What fits in half of L2 is read once; else the operand
    along the columns is read again for each set of rows that are walked at once, and the other one again for
    each column of tiles if a whole group does not stay in L2.
    """
    row, column = row_role(s.swap), column_role(s.swap)
    groups = _reloads(region.extent(row), s.tile_rows, rows_at_once(region, s, machine))
    total = region.compulsory_bytes
    budget = machine.l2_bytes // 2
    width = region.operand_dtype.bits // 8
    k_block = s.group * s.tile_rows * region.extent(Role.STREAM) * width
    for view in region.operands:
        if view.nbytes <= budget:
            continue
        if column in view.roles:
            total += view.nbytes * (groups - 1)
        elif row in view.roles and k_block > budget:
            total += view.nbytes * (_reloads(region.extent(column), s.columns, 4) - 1)
    return total


def gpc_bytes(region: Region, s: Structure, machine: Machine, *, waited_for: bool = False) -> int:
    """Bytes of one K-block that the SMs of a GPC ask for, each tile counted once, an SM.

    Blocks with consecutive numbers walk down a group of rows, so `group` neighbours share a column's tile.
    Rows that straddle lines count with those; half a line asks for half of one.

    Where all columns are fewer tiles than the card has SMs, several groups are walked at once, by one GPC each, and
    their GPCs ask for the same columns at about one time. Of those bytes a GPC has to wait for its share alone
    (`waited_for`); all of them take power.
    """
    row, column = row_role(s.swap), column_role(s.swap)
    rows = math.ceil(region.extent(row) / s.tile_rows)
    height = min(s.group, rows, machine.sms_per_gpc)
    across = machine.sms_per_gpc / height
    if waited_for:
        at_once = machine.sm_count / (height * math.ceil(region.extent(column) / s.columns))
        across /= max(1.0, min(at_once, rows / height, machine.sm_count / machine.sms_per_gpc))
    total = 0.0
    for view in region.operands:
        tile = max(math.prod(tile_shape(s, view)) * view.dtype.bits // 8, _straddled(s, view, machine))
        if row in view.roles:
            total += height * (s.tile_rows // s.rows) * tile
        if column in view.roles:
            total += across * tile
    return math.ceil(total / machine.sms_per_gpc)
