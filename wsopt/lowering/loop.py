"""The loop of a region cut to a structure, made once for all structures that have it."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from wsopt.entries import extended
from wsopt.frontend.types import Region
from wsopt.lowering.cut import Cut, cut
from wsopt.lowering.steps import steps_of
from wsopt.machine.types import Machine
from wsopt.program.changed import changed
from wsopt.program.facts import Member
from wsopt.program.types import Structure


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop, and the tensors that a block holds while it runs."""

    cut: Cut
    held: tuple[Member, ...]


def loop_of(region: Region, s: Structure, machine: Machine, tiles: int) -> Loop:
    """The loop of a structure whose grid has so many `tiles`. Structures with one loop share one object."""
    if extended():  # what extensions insert may read any field
        return _made(region, s, machine, tiles)
    return _shared(region, without_surroundings(s), machine, tiles)


def without_surroundings(s: Structure) -> Structure:
    """Key of a structure's loop: structures with equal keys have equal loops.

    Left out are the order of tiles, their parts, how many a block takes, how many blocks an SM has, and the
    epilogue's subtiles, which stand around the loop; the tail shortens it and changes no operation. A resident
    block's tile has another loop.
    """
    around = changed(s, subtiles=1, group=1, tail=0, splits=1, shares=False, atomics=False)
    return around if s.resident else changed(around, persistent=True, occupancy=0)


def _made(region: Region, s: Structure, machine: Machine, tiles: int) -> Loop:
    rings, steps, held = steps_of(region, s, machine, tiles)
    return Loop(cut(rings, steps, s), held)


_shared = functools.lru_cache(maxsize=512)(_made)
