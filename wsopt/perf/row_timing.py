"""The predicted time of loops over tiles of rows, of persistent blocks with a ring and of blocks side by side.

Device memory bounds most of them. Its time and the SMs' own add up as a norm, for copies come early and late; how
much of that shows depends on when blocks begin.
"""

from __future__ import annotations

import math
from dataclasses import replace

from wsopt.machine.types import Machine
from wsopt.perf.contention import busiest
from wsopt.perf.effective_ii import Line, beyond_memory
from wsopt.perf.over_rows import end_cycles
from wsopt.perf.time import NOTHING, Time, Waves
from wsopt.program.facts import Read
from wsopt.program.program import TileProgram, Unit


def fixed_parts_of_rows(
    program: TileProgram, machine: Machine, waves: int, floors: tuple[float, float]
) -> Waves:
    """The parts of the time that every schedule has, in cycles. Device memory is idle until the first bytes are
    there, and while the last tile is being computed. Bytes alone do not reach the power limit.
    """
    latency = machine.latency
    if program.structure.resident:
        return _of_several_blocks(program, machine, waves, floors)
    last = sum(op.issue for op in program.ops if op.consumer == 0)
    start, fill = machine.block_start_cycles, latency.tma_load_dram + last
    # What threads store has no buffer to come out of.
    stored = 0.0 if program.structure.stored_by_threads else latency.tma_store
    tail = stored + end_cycles(program, machine)
    return Waves(waves, start, fill, tail, 0.0, 0.0, clocked=False, floors=floors)


def _of_several_blocks(
    program: TileProgram, machine: Machine, waves: int, floors: tuple[float, float]
) -> Waves:
    """The fixed parts where an SM has several blocks of one tile each. Blocks begin while the kernel before ends, so
    that no time passes before the first reads. At the end device memory is idle while an SM's last blocks do what
    follows their reads.
    """
    _, *behind = (op.issue for op in program.ops)
    last = program.structure.occupancy * sum(behind)
    return Waves(waves, 0.0, machine.latency.tma_load_dram, last, 0.0, 0.0, clocked=False, floors=floors)


def time_of_rows(program: TileProgram, fixed: Waves, machine: Machine) -> Time:
    """The time by II. Device memory is shared by those still at work, an SM's own units are not. Copies come early
    and late, so that two bounds that are alike add up as a norm.
    """
    if program.structure.resident:
        return _of_blocks_side_by_side(program, fixed, machine)
    knee = _STAGGERED_KNEE if program.structure.staggered else machine.copy_knee
    rounds = Time((), None, knee, fixed.start + fixed.fill, fixed.tail, apart=_late(program))
    busy, share = busiest(program, machine, Unit.MEMORY), program.tiles / machine.sm_count
    if not program.long_rows:
        return replace(rounds, lines=_lines(program, machine, share, fixed.waves * busy))
    # A row's parts are one block's: where few blocks are in the last round, memory has less to do than their SMs.
    every, parts = program.grid.batch * program.grid.row_tiles / machine.sm_count, program.row_parts
    whole = math.ceil(every) - 1
    before = _lines(program, machine, share * whole / every, whole * parts * busy) if whole else ()
    return replace(
        rounds, lines=before, last=_lines(program, machine, share * (1 - whole / every), parts * busy)
    )


def _lines(program: TileProgram, machine: Machine, share: float, units: float) -> tuple[Line, Line]:
    """Cycles that device memory takes for so many tiles an SM, by II, and those that an SM's units take."""
    return Line(share, -share * beyond_memory(program, machine)), Line(0.0, units)


_STAGGERED_KNEE = 20.0
"""Exponent of the norm of device memory's time and the SMs' own, where one block's passes over rows come between
another's: softmaxes and a log-softmax of rows that no SM holds were 1.4 to 2.3 % faster so
(`docs/calibration/h200_staggered.json`).
"""


def _late(program: TileProgram) -> Line:
    """Cycles by II that staggered blocks take more: half of what every other one begins later, for memory serves
    those that still run the faster.
    """
    return Line(program.late_iterations / 2, 0.0)


def _of_blocks_side_by_side(program: TileProgram, fixed: Waves, machine: Machine) -> Time:
    """The time of blocks of one tile each, of which II has the norm of what they contend for, but not what the parts
    of the last blocks' rows take one after the other.
    """
    rounds = in_rounds(program, machine)
    last = Line(program.tiles / machine.sm_count - rounds.slope, 0.0)
    return Time(
        (Line(rounds.slope, 0.0),) if rounds.slope else (), None, _ROUNDS_KNEE, fixed.start + fixed.fill, fixed.tail,
        last=(last, Line(0.0, rounds.base)),
    )  # fmt: skip


def in_rounds(program: TileProgram, machine: Machine) -> Line:
    """Cycles of the SMs' rounds of blocks that each go through the parts of their rows, twice where they are read in
    two passes: by II those of all but the last round, which have as many blocks as SMs hold, and beside them what the
    last one takes at least. There the parts of a row come one after the other, however few blocks there are: a part's
    reads have to come, and its arithmetic waits for them. Of parts that are read ahead two are on their way at once.
    """
    s, grid = program.structure, program.grid
    if not program.long_rows:
        return NOTHING
    rounds = grid.batch * grid.row_tiles / (machine.sm_count * s.occupancy)
    whole = math.ceil(rounds) - 1
    beside = math.ceil((rounds - whole) * s.occupancy)
    behind = math.fsum(op.issue for op in program.ops if not isinstance(op.counts, Read)) * beside
    part = machine.latency.tma_load_dram + behind
    if s.ahead:
        part = max(part / 2, behind)
    return Line(program.tiles / machine.sm_count * whole / rounds, program.row_parts * part)


_ROUNDS_KNEE = 3.0
"""Exponent of the norm of what the last round's bytes take and what its blocks wait for their reads: 512 rows of 38
or 75 parts took 73 to 74 us with 8 MB on their way at a time, and 84 to 85 us with 4 MB
(`docs/calibration/h200_parts_by_threads.json`).
"""
