"""What copies take on a machine: the SM's path from L2, device memory's share, L2 lines, and the loading thread.

`costs.py` makes the cost of an operation of these.
"""

from __future__ import annotations

import functools
import math

from wsopt.machine.types import Machine
from wsopt.program.facts import PLACES_AT_A_TIME, Copy
from wsopt.tensors.parts import parts

_SWIZZLE_BYTES = 128
TILE_GRAIN = 4
"""Cycles of one unit of the model's time where an iteration is a tile, whose intervals have some thousand."""


def load_cycles(
    nbytes: float, machine: Machine, clock_mhz: float | None = None, *, distinct: bool = False
) -> int:
    """Cycles for which bytes hold the SM's path from L2, at the bandwidth that all SMs share; of `distinct` ones its
    share of its GPC's path, which fetches once what several SMs read.

    The bandwidth does not go with the SMs' clock; without one, cycles are of the sustained clock.
    """
    bandwidth = machine.l2_distinct_bandwidth if distinct else machine.l2_bandwidth
    clock = clock_mhz or machine.sustained_clock_mhz
    return math.ceil(nbytes * machine.sm_count * clock * 1e6 / bandwidth)


_PIECE = 22.5
"""Bytes of a piece that takes device memory twice as long as whole rows, where tiles of rows stream: longer by the
fourth power of what they are of it. On an H200 pieces of 64 bytes took as long as whole rows, of 32 1.23 to 1.35
times, of 16 nearly four times as long (`docs/calibration/h200_turned_rows.json`, `pieces`).
"""


def memory_cycles(
    nbytes: int, tiles: int, machine: Machine, from_l2: float = 0.0, piece: int = 0, *, written: bool = False
) -> int:
    """Cycles for which bytes that are read, or `written`, hold an SM's share of device memory, or its path from L2
    where that is narrower or more bytes come `from_l2`. Bytes that lie apart in pieces of so many take longer; 0 of
    those that lie together.

    To the nearest grain: rounded up, a tile of few rows would pay more for each than one of many.
    """
    sharers = min(tiles, machine.sm_count)
    seconds = machine.memory_seconds(0 if written else nbytes, nbytes if written else 0)
    shared = seconds * sharers * machine.sustained_clock_mhz * 1e6
    path = load_cycles(max(nbytes, from_l2), machine)
    longer = 1 + (_PIECE / piece) ** 4 if piece else 1.0
    return max(1, round(max(shared * longer, path) / TILE_GRAIN)) * TILE_GRAIN


@functools.lru_cache(maxsize=1024)  # every order of tiles asks for the same few copies
def copy_lines(copy: Copy, machine: Machine) -> float:
    """Bytes of the L2 lines that a copy's box touches, as the L2 that all SMs share has to give them: where rows do
    not start with a sector, each line costs more.
    """
    split = _step(copy, machine.l2_line_bytes) < machine.l2_sector_bytes
    return whole_lines(copy, machine.l2_line_bytes) * (machine.sector_split_factor if split else 1.0)


@functools.lru_cache(maxsize=1024)
def whole_lines(copy: Copy, line: int) -> float:
    """Bytes of the lines of so many bytes that a copy's box touches, as the SM that copies it takes them.

    A row narrower than a line still costs one; rows that do not start with a line straddle another, on the
    average over the places where they can start. So do the rows of every other tile that is one and a half lines
    wide. A row wider than a swizzle is copied in pieces of one, and each of them straddles.
    """
    lines, straddling = 0.0, 1 - _step(copy, line) / line
    for part in parts(copy.row_bytes):
        pieces = math.ceil(part.length / _SWIZZLE_BYTES)
        lines += pieces * max(1.0, part.length / pieces / line + straddling)
    return copy.rows * lines * line


def _step(copy: Copy, line: int) -> int:
    """Bytes of whose multiples the places are at which a box's rows begin within a line."""
    return math.gcd(copy.pitch_bytes, copy.row_bytes, line)


def copy_issue(machine: Machine) -> int:
    """Cycles for which a thread is held by the start of a TMA copy."""
    return math.ceil(machine.latency.mbarrier_wait)


def place_cycles(copy: Copy, machine: Machine) -> int:
    """Cycles in which the places of pieces that are copied apart come from L2, or where device memory is streamed
    through from there, some at a time; of those that are loaded ahead of the wait for a slot none, for they come
    meanwhile.
    """
    if copy.ahead:
        return 0
    latency = machine.latency
    first = latency.tma_load_dram if copy.from_memory else machine.first_bytes(latency.tma_load_l2)
    return math.ceil(-(-copy.apart // PLACES_AT_A_TIME) * first)


def exchange_cycles(copy: Copy, machine: Machine) -> int:
    """Cycles in which all threads of a warp get a place that one of them has: exchanges among as many threads as have
    places, as Triton 3.6 writes them. Triton 3.9 has an instruction for it, which was not measured.
    """
    return math.ceil(math.log2(copy.apart) * machine.latency.shuffle) if copy.ahead else 0


def outside_cycles(copy: Copy, machine: Machine) -> int:
    """Cycles of a copy in which an SM asks device memory for nothing: it fills rows beyond the tensor's end, piece by
    piece of a swizzle.
    """
    pieces = sum(math.ceil(part.length / _SWIZZLE_BYTES) for part in parts(copy.row_bytes))
    return math.ceil(copy.outside * pieces * machine.tma_outside_cycles)
