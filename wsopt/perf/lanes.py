"""Sums along a K-block that stay with the threads that hold its columns, until the loop is over.

An accumulator's row lies in a quad of threads. A sum that nothing in the loop reads can go on in each of the four by
itself; only its result has to be put together. That leaves two exchanges, one waiting for the other, to the end.
"""

from __future__ import annotations

from wsopt.frontend.types import Region
from wsopt.machine.types import Machine
from wsopt.program.steps import BEFORE, arguments
from wsopt.program.types import Structure
from wsopt.tensors.statements import Reduction

QUAD_COLUMNS = 8
"""Columns of a run in which each of the four threads that share a row has two."""

_EXCHANGES = 2


def lane_sums(region: Region, s: Structure, machine: Machine) -> frozenset[str]:
    """The sums of a loop that stay with the threads: those of whole rows in one warp that the loop does not read."""
    if s.rows * machine.warps_per_warpgroup < machine.mma_rows * s.consumer_warps or s.depth % QUAD_COLUMNS:
        return frozenset()
    read = {name.removesuffix(BEFORE) for item in region.body for name in arguments(item)}
    sums = (item.name for item in region.body if isinstance(item, Reduction) and item.kind == "sum")
    return frozenset(name for name in sums if name not in read)


def saved_cycles(machine: Machine) -> float:
    """Cycles that a sum's start is shorter by without its exchanges."""
    return _EXCHANGES * machine.latency.shuffle
