"""Instructions that the warps of an SM issue for a tile of rows, as the machine code of kernels has them."""

from __future__ import annotations

from wsopt.machine.types import Machine
from wsopt.program.facts import Arithmetic, Read, Store
from wsopt.program.program import TileProgram


def tile_instructions(program: TileProgram, machine: Machine) -> float:
    """Instructions of all consumers' threads for a tile."""
    s = program.structure
    count = float(_TILE_INSTRUCTIONS * s.consumers * s.consumer_warps * machine.threads_per_warp)
    for op in program.loop:
        match op.counts:
            case Arithmetic(mix=mix, elements=elements):
                count += mix.instructions * elements
            case Read(divisions=divisions, warps=warps, by_address=read, at_once=at_once):
                count += (
                    converting(op.counts)
                    + divisions * _DIVISION_INSTRUCTIONS * warps * machine.threads_per_warp
                )
                count += _ACCESS_INSTRUCTIONS * read / at_once
            case Store(by_address=stored, at_once=at_once):
                count += _ACCESS_INSTRUCTIONS * stored / at_once
    return count


_DIVISION_INSTRUCTIONS = 45
"""Instructions of a division of whole numbers, with what is computed from it, as machine code has them."""

_ACCESS_INSTRUCTIONS = 3
"""Instructions of an access by address: whether it lies inside of the tensor, what stands for it if not, itself."""

_TILE_INSTRUCTIONS = 43
"""Instructions of a warp for a tile besides those of its elements, as the machine code of a logsumexp and of a
cross-entropy of 128,256 columns has them: waits, the slot's address and the next one's, the end of the row.
"""

_PLACE_INSTRUCTIONS = 4
"""Instructions by which the number of a whole flat row's element is found, compared, and the element chosen or left
out: from machine code. Of parts of rows only those at the row's ends have them.
"""


def converting(read: Read) -> int:
    """Instructions by which elements that were read become those that are computed with."""
    return read.widened + _PLACE_INSTRUCTIONS * read.placed
