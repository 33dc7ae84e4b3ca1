"""Cycles of a tile outside of the steady state of a loop that computes values: its first iteration, which all
consumers begin together, and its epilogue; and where an SM has several such blocks, what they take beside each other.
"""

from __future__ import annotations

from collections import Counter

from wsopt.machine.types import Machine
from wsopt.perf.contention import beside_others, contended_interval
from wsopt.perf.epilogue import Epilogues
from wsopt.perf.paths import chain_of
from wsopt.perf.time import Waves
from wsopt.program.known import of_loop
from wsopt.program.program import TileProgram, Work

_ISSUED = 0.5
"""Share of an epilogue's cycles in which its warps issue; fitted, as `_VALUES_KNEE` of `perf/contention.py`."""


@of_loop
def first_iteration(program: TileProgram) -> int:
    """Cycles of a tile's first iteration behind its first copies, at least: its chain, or what all consumers take of
    the busiest unit.

    Consumers begin a tile together, and where they issue their own products each finds the units of every step held
    by the others: one's product comes behind another's, and so does the arithmetic behind it. Three consumers took
    3,942 cycles for an iteration that one would take 1,662 for (`docs/calibration/h200_blocks_of_values.json`).
    """
    held = Counter[str]()
    for op in (op for op in program.ops if op.consumer is not None):
        held.update(dict(op.held))
    others = 0 if program.values_apart else program.structure.at_once - 1
    return max(chain_of(program, others), *held.values())


def tile_ends(program: TileProgram, work: Work, fixed: Waves, machine: Machine, ends: Epilogues) -> float:
    """Cycles of a tile beside all iterations but its first. Where an SM has several blocks, of which one begins or
    ends a tile while others are in their loops, they are those by which its time is longer than its iterations'.
    """
    each = fixed.between + ends.each
    loops = program.structure.loops_an_sm
    if loops == 1:
        return each
    iterations = work.k_iterations / work.tiles
    alone = (iterations - 1) * contended_interval(program, machine, loops=1) + each
    tile = beside_others(program, machine, alone, iterations, loops=loops, issued=_ISSUED * ends.each)
    return tile - (iterations - 1) * fixed.contended
