"""Time of a kernel's bytes on the paths that all SMs share: device memory, and the way from L2."""

from __future__ import annotations

import math
from dataclasses import dataclass
from graphlib import TopologicalSorter

from wsopt.machine.types import Machine
from wsopt.perf.copies import outside_cycles
from wsopt.perf.gpcs import asked_again_bytes
from wsopt.perf.over_rows import left_bytes
from wsopt.perf.splits import counting_cycles, moved_bytes, split_cost
from wsopt.program.facts import Copy
from wsopt.program.ids import OpId, OpKind
from wsopt.program.known import of_loop
from wsopt.program.over_rows import carried, column_blocks
from wsopt.program.program import Iteration, TileOp, TileProgram


def waves_of(program: TileProgram, machine: Machine) -> int:
    """Tiles, or parts of tiles, of the block that takes most; equal shares of all K-blocks are one wave."""
    if program.structure.shares:
        return 1
    if carried(program):
        return math.ceil(program.grid.row_tiles / column_blocks(program, machine))
    # The parts of a long row are one block's.
    parts = program.tiles // (program.grid.tiles // program.grid.column_tiles) if program.long_rows else 1
    return math.ceil(program.tiles // parts / program.structure.places(machine.sm_count)) * parts


@of_loop
def longest_path(program: TileProgram, others: int = 0) -> int:
    """Cycles from the first load of an iteration to the end of its last operation, at least; what a consumer does
    waits for so many `others` that hold the unit which it holds the longest.
    """
    held = {op.id: max((cycles for _, cycles in op.held), default=0) for op in program.ops if _own(op)}
    latency = {op.id: op.latency + others * held.get(op.id, 0) for op in program.ops}
    ready = dict[OpId, int]()
    edges = [edge for edge in program.edges if edge.distance == 0]
    before = {one: [edge.source for edge in edges if edge.target == one] for one in latency}
    for one in TopologicalSorter(before).static_order():
        ready[one] = max((ready[source] for source in before[one]), default=0) + latency[one]
    return max(ready.values(), default=0)


def _own(op: TileOp) -> bool:
    """Whether a consumer does an operation itself."""
    return op.consumer is not None and not op.apart


def chain_of(program: TileProgram, others: int = 0) -> int:
    """Cycles from the first K-block's arrival to the end of its last operation, at least, beside so many `others`."""
    return longest_path(program, others) - max(op.latency for op in program.of(OpKind.TMA_LOAD))


def memory_us(program: TileProgram, nbytes: float, machine: Machine) -> float:
    """Microseconds of so many bytes of device memory: the outputs once, and else reads."""
    written = sum(output.view.nbytes for output in program.after.outputs)
    return machine.memory_seconds(nbytes - written, written) * 1e6


@dataclass(frozen=True, slots=True)
class Paths:
    """The paths that all SMs share, in whatever order tiles are taken: microseconds in which device memory is `idle`,
    factors of the time of its bytes for `short` rows and for SMs with `uneven` work, and microseconds of the bytes
    from L2 to the SMs.
    """

    idle_us: float
    short: float
    uneven: float
    l2_us: float


def paths_of(program: TileProgram, machine: Machine) -> Paths:
    """The paths of a tile program's bytes.

    Device memory is idle until the first blocks have asked and the first bytes are there, while the parts of a tile
    come together, and behind the last stores, and it is not asked for as evenly where SMs have nothing to do. A loop
    that computes values has its last K-block's way to the sums behind the last bytes. Where tiles of rows are the
    iterations of a loop, their time has that already.
    """
    through_l2 = (
        program.tiles * program.tile_l2_bytes + program.whole.once_bytes + moved_bytes(program)
    ) + 2 * left_bytes(program, machine)
    l2_us = through_l2 / machine.l2_bandwidth * 1e6
    if program.iteration is not Iteration.K_BLOCKS:
        return Paths(0.0, 1.0, 1.0, l2_us)
    latency, waves = machine.latency, waves_of(program, machine)
    places = program.structure.places(machine.sm_count)
    idle = machine.block_start_cycles + latency.tma_load_dram + latency.tma_store
    split = split_cost(program, machine)
    # The trips of a part that another follows take as long as what is asked for meanwhile.
    idle += (waves - 1) * (split.part + split.all / program.structure.splits)
    idle += counting_cycles(program)
    idle += split.part + split.all
    if program.work is not None:  # what follows the last bytes
        idle += chain_of(program)
    without = 0.0 if program.structure.shares else 1 - program.tiles / (waves * places)
    idle_us = machine.seconds(idle + waves * _outside(program, machine)) * 1e6
    uneven = 1 + _UNEVEN * without + _SEVERAL_BLOCKS * (program.structure.loops_an_sm > 1)
    return Paths(idle_us, 1 + _short_rows(program, machine), uneven, l2_us)


def memory_floors_us(
    program: TileProgram, machine: Machine, paths: Paths | None = None
) -> tuple[float, float]:
    """Microseconds that the bytes of device memory, and those from L2 to the SMs, take at least; `paths` are the
    program's, if they are known.
    """
    paths = paths or paths_of(program, machine)
    nbytes = program.dram_bytes + asked_again_bytes(program, machine)
    bytes_us = memory_us(program, nbytes, machine) * paths.short
    return paths.idle_us + bytes_us * paths.uneven, paths.l2_us


def _short_rows(program: TileProgram, machine: Machine) -> float:
    """Share of its time by which device memory takes longer for rows that are read in short pieces, far apart, or of
    which little is asked for at a time.
    """
    copied = [ring for ring in program.rings if ring.copied]
    members = [member for ring in copied for member in ring.members]
    slot_bytes = sum(ring.slot_bytes for ring in copied)
    if not slot_bytes:  # threads read what is read
        return 0.0
    slots = max(1, machine.shared_memory_per_block_bytes // slot_bytes)

    def slower(row_bytes: int) -> float:
        return (_ROW_PIECE / row_bytes) ** 2 + (_ROW_AHEAD / (slots * row_bytes)) ** 2

    boxes = [(member.view.nbytes, member.box(member.shape)) for member in members]
    apart = math.fsum(n * slower(box.row_bytes) for n, box in boxes if box.pitch_bytes > box.row_bytes)
    return apart / sum(nbytes for nbytes, _ in boxes)


def _outside(program: TileProgram, machine: Machine) -> float:
    """Cycles that a tile's copies take for rows beyond tensors' ends; meanwhile neither they nor those of the SM's
    other blocks ask for anything.
    """
    copies = (op.counts for op in program.of(OpKind.TMA_LOAD) if isinstance(op.counts, Copy))
    each = math.fsum(outside_cycles(one, machine) for one in copies)
    return program.structure.loops_an_sm * program.k_iterations * each


_ROW_PIECE, _ROW_AHEAD = 20.7, 206.0
"""Bytes of a row's piece, and of all of its pieces under way, that would take twice their time. On an H200,
2026-11-23, pieces of 64 and 128 bytes took 10 and 3 % longer than of 256, and 4 of 128 15 % longer than 22.
"""
_UNEVEN = 0.15
"""Share of its time by which device memory takes longer if all SMs but one are idle; fitted, as `_PATHS_KNEE`."""

_SEVERAL_BLOCKS = 0.03
"""Share by which it takes longer where several blocks of an SM read other places of it: products of 1 and of 16 rows
by 8192 x 8192 bf16 take 2 to 5 % longer with two to four blocks (`docs/calibration/h200_ahead.json`).
"""
