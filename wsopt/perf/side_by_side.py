"""Cycles of a tile of rows on an SM whose blocks have one tile each, side by side.

A block waits for what it reads, computes, and stores; meanwhile others do the same. They meet in the units of the SM
and in its schedulers, and the hardware begins one after the other.
"""

from __future__ import annotations

from wsopt.machine.types import Machine
from wsopt.perf.contention import held_cycles, issue_cycles, norm
from wsopt.perf.instructions import tile_instructions
from wsopt.program.program import TileProgram


def held_by_blocks(program: TileProgram, machine: Machine) -> float:
    """Cycles of a tile where an SM has several blocks of one tile each, which contend for its units and schedulers: a
    block that wants a unit while another one holds it waits.
    """
    units = (*map(float, held_cycles(program).values()), _issued_by_blocks(program, machine))
    s = program.structure
    elements = s.rows * s.columns / (s.consumer_warps * machine.threads_per_warp)
    alone = _FEW_BLOCKS / (s.occupancy * program.row_parts)
    few = 1 + alone + _MANY_ELEMENTS * (elements - _SOME_ELEMENTS)
    return few * max(norm(units, _BLOCKS_KNEE), *issue_cycles(program).values())


def dispatched(program: TileProgram, machine: Machine) -> float:
    """Cycles of a tile, or of a part of a row, at the rate at which the hardware starts blocks of one tile each."""
    return _DISPATCH_CYCLES * machine.sm_count / program.row_parts


def _issued_by_blocks(program: TileProgram, machine: Machine) -> float:
    """Cycles in which the schedulers issue a tile's instructions. Where warps are few, a scheduler more often has no
    ready one, as all of them read or wait for what they computed.
    """
    s = program.structure
    warps = s.consumers * s.consumer_warps
    once = _BLOCK_INSTRUCTIONS * warps * machine.threads_per_warp / program.row_parts
    count = tile_instructions(program, machine) + once
    a_scheduler = warps * s.occupancy / machine.schedulers_per_sm
    idle = 1 + _FEW_WARPS / a_scheduler**2
    return idle * count / (machine.schedulers_per_sm * machine.threads_per_warp)


_BLOCK_INSTRUCTIONS = 40
"""What a warp's beginning and end hold a scheduler for, in instructions: kernels of bias and gelu of 8192 x 8192 with
16 elements a thread, beside those with 32 and 64 (`docs/calibration/h200_blocks_warps.json`).
"""

_FEW_WARPS = 4.0
"""Share by which a scheduler of one warp is slower, and of several by the square of their number less: 4 warps of 64
elements a thread took 8 % longer than the bytes, 6 warps 3 % (as `_BLOCK_INSTRUCTIONS`).
"""

_BLOCKS_KNEE = 10.0
"""Exponent of the norm by which units that blocks side by side hold add up: with it the choices among the kernels of
`docs/calibration/h200_blocks_elements.json` are within 1 % of the fastest, but for two graphs.
"""

_FEW_BLOCKS = 0.1
"""Share by which a tile takes longer on an SM of one block, and of several a part of it: fewer of them read, compute
and store at the same time. Norms with 12 blocks were as fast as their bytes, with 8 and 4 2 %, with 3 4 % slower. Of
blocks that go through many parts of a row 4 were as fast as 16 (`docs/calibration/h200_parts_by_threads.json`).
"""

_SOME_ELEMENTS, _MANY_ELEMENTS = 16, 0.0003
"""Share by which a tile takes longer for each element more that a thread has than so many: its threads read them all,
and store them all, so that reads and stores of an SM come in bursts. A cast of 8 elements a thread took 47.6 us, of
16 47.8, of 32 48.3 and of 64 48.4 to 49.0; six more graphs alike (`docs/calibration/h200_blocks_elements.json`).
"""

_DISPATCH_CYCLES = 2.12
"""Cycles from one block to the next that the hardware deals out, over all SMs: kernels of five graphs whose blocks
have a row of 1,024 elements or less took 287 to 290 cycles a block on each of 132 SMs, with their beginnings and ends
(`docs/calibration/h200_resident.json`).
"""
