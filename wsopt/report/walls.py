"""Which memory wall a kernel stands at: what its bytes wait for, with the figures that show it and what moves it.

The predicted time is taken apart into what memory costs: the launch with the start of the blocks, the compulsory
bytes at the rate that device memory keeps up, bytes that come more than once, SMs without a tile, and the rest, in
which bytes were on their way and nothing else went on. Arithmetic that takes longer than the bytes is no part of it.
The largest part is the wall. There is none where arithmetic alone takes longer than that part and than all bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from wsopt.perf.contention import held_cycles, issue_cycles
from wsopt.perf.paths import memory_us
from wsopt.program.facts import Read
from wsopt.program.program import Iteration, Unit
from wsopt.report.facts import places
from wsopt.report.layout import counted, joined, percent
from wsopt.schedule.verified import VerifiedSchedule

_LEAST_US = 0.005
"""Microseconds from which on a part is told of: two decimals are shown."""

_PATHS = (Unit.TMA, Unit.MEMORY)
"""Units that move bytes: all others compute."""


class Wall(StrEnum):
    """What a kernel's bytes wait for."""

    BANDWIDTH = "bandwidth"
    LOCALITY = "locality"
    BLOCKS = "too few blocks"
    LAUNCH = "launch"
    LATENCY = "latency"


@dataclass(frozen=True, slots=True)
class Walls:
    """Microseconds of the predicted time by what memory costs, the largest first; `computes` are those of arithmetic
    at least, and `moves` those of all bytes, on the slower of the two paths that all SMs share.
    """

    parts: tuple[tuple[Wall, float], ...]
    computes: float
    moves: float
    total: float

    @property
    def wall(self) -> Wall | None:
        """The wall; None where arithmetic takes longer than its part of the time, and than all bytes."""
        wall, us = self.parts[0]
        return None if self.computes >= max(us, self.moves) else wall


def walls(verified: VerifiedSchedule) -> Walls:
    """The predicted time of a schedule by what memory costs."""
    p, machine, program = verified.schedule.prediction, verified.machine, verified.program
    once = memory_us(program, program.whole.needed_bytes, machine)
    every = max(memory_us(program, program.dram_bytes, machine), p.l2_us)
    launch = machine.kernel_launch_us + machine.seconds(p.start) * 1e6
    moves, computes = max(once, every), _computes_us(verified)
    rest = max(0.0, p.microseconds - launch - max(moves, computes))
    idle = min(rest, machine.seconds(p.main + p.epilogue) * 1e6 * (1 - _used(verified)))
    parts = {
        Wall.BANDWIDTH: once,
        Wall.LOCALITY: max(0.0, every - once),
        Wall.BLOCKS: idle,
        Wall.LAUNCH: launch,
        Wall.LATENCY: rest - idle,
    }
    order = tuple(sorted(parts.items(), key=lambda part: -part[1]))
    return Walls(order, computes, moves, p.microseconds)


def _used(verified: VerifiedSchedule) -> float:
    """Share of the places in all waves that have a tile; equal shares leave none without."""
    program = verified.program
    if program.structure.shares:
        return 1.0
    return program.tiles / places(verified)


def _computes_us(verified: VerifiedSchedule) -> float:
    """Microseconds of the busiest unit that computes, or of the busiest thread, in the loop, if all SMs had as much;
    and of epilogues under which nothing else goes on. Blocks of an SM share its units, and have threads of their own.
    """
    program, machine = verified.program, verified.machine
    held = [cycles for unit, cycles in held_cycles(program).items() if unit not in _PATHS]
    threads = (cycles / program.structure.loops_an_sm for cycles in issue_cycles(program).values())
    each = max(*held, *threads)
    loops = program.tiles * program.passes / machine.sm_count * each
    return machine.seconds(loops + verified.schedule.prediction.epilogue * _used(verified)) * 1e6


# --- in words -------------------------------------------------------------------------------------------


def in_flight(verified: VerifiedSchedule) -> tuple[float, float]:
    """Bytes that all blocks' rings, or their threads' registers, hold on the way, and those that device memory has on
    the way at its full rate: latency times bandwidth (Little 1961).
    """
    program, machine = verified.program, verified.machine
    blocks = min(program.tiles, program.structure.places(machine.sm_count))
    slots = sum(verified.schedule.depth(ring.name) * ring.slot_bytes for ring in program.rings)
    slots += sum(op.counts.from_memory for op in program.loop if isinstance(op.counts, Read))
    if program.iteration is Iteration.TILE:  # of a tile that reaches beyond the row nothing is copied
        slots = round(slots * min(1.0, program.grid.columns / program.grid.tile_columns))
    latency = machine.seconds(machine.latency.tma_load_dram)
    return blocks * slots, latency * machine.dram_read_bandwidth


def wall_sentences(verified: VerifiedSchedule) -> Iterator[str]:
    """The wall that a kernel stands at, the figures that show it, what would move it; then all parts of its time."""
    found = walls(verified)
    if found.wall is None:
        yield (
            f"Memory is no wall: the SMs compute for {found.computes:,.2f} us at least, all bytes take "
            f"{found.moves:,.2f} us."
        )
        return
    share = found.parts[0][1] / found.total
    yield f"Memory wall: {found.wall}, {percent(share, 0)} of the time. {_evidence(verified, found)}"
    told = [f"{wall} {us:,.2f} us" for wall, us in found.parts if us >= _LEAST_US]
    beyond = found.total - sum(us for _, us in found.parts)
    told += [f"arithmetic beyond the bytes {beyond:,.2f} us"] if beyond >= _LEAST_US else []
    yield f"Of the predicted {found.total:,.2f} us: {joined(told)}."


def _evidence(verified: VerifiedSchedule, found: Walls) -> str:
    """The figures that show a wall, and what would move it."""
    p, machine, program = verified.schedule.prediction, verified.machine, verified.program
    once = program.whole.needed_bytes
    match found.wall:
        case Wall.BANDWIDTH:
            rate = once / p.microseconds / 1e3
            return (
                f"{once:,} bytes that every kernel for this graph moves come at {rate:,.0f} GB/s, device memory "
                f"keeps up {machine.dram_sustained_bandwidth / 1e9:,.0f} in a copy: only fewer bytes take less, of "
                "narrower types, or with what comes before or behind in the same kernel."
            )
        case Wall.LOCALITY:
            through, us = ("device memory", p.dram_us) if p.dram_us >= p.l2_us else ("L2", p.l2_us)
            moved = (
                program.dram_bytes if p.dram_us >= p.l2_us else round(p.l2_us * machine.l2_bandwidth / 1e6)
            )
            return (
                f"{moved:,} bytes go through {through} in {us:,.2f} us, {moved / once:,.1f} times the compulsory "
                "ones: larger tiles, or an order of tiles whose neighbours share more, move it."
            )
        case Wall.BLOCKS:
            return (
                f"{counted(program.tiles, 'tile')} on {places(verified):,} places of {machine.sm_count} SMs, "
                f"{percent(_used(verified), 0)} used: smaller tiles, a split of the contracted axis, or more rows "
                "a call move it."
            )
        case Wall.LAUNCH:
            return (
                f"A launch takes {machine.kernel_launch_us:,.2f} us and a block's start "
                f"{machine.seconds(p.start) * 1e6:,.2f}, the bytes {found.moves:,.2f}: more work a launch moves it, "
                "with its neighbours in one kernel."
            )
        case _:
            return _late(verified)


def _late(verified: VerifiedSchedule) -> str:
    """What the bytes on the way say of a kernel that waits for them."""
    p, machine = verified.schedule.prediction, verified.machine
    held, wanted = in_flight(verified)
    ends = machine.seconds(p.fill + p.tail) * 1e6
    told = (
        f"At most {held:,.0f} bytes are on the way, and device memory has {wanted:,.0f} on the way at its full rate "
        f"({machine.dram_read_bandwidth / 1e9:,.0f} GB/s, {machine.latency.tma_load_dram:,.0f} cycles each)"
    )
    if held < wanted:
        return f"{told}: deeper rings, or more blocks, move it."
    return (
        f"{told}; the first bytes and the last stores alone take {ends:,.2f} us: more work a launch, or a shorter "
        "chain behind each tile's last bytes, moves it."
    )
