"""Finds barrier arrivals that one thread makes while others of its partition may still be at work, in machine code.

An arrival hands memory over for the whole partition, and one thread makes it. `wgmma.wait_group` ends products for
the warpgroup that waits alone, and a load or a store of shared or tensor memory is over for the warp that made it
alone. So between those and the arrival all warps of the partition have to meet. Nothing in the source says so:
Triton puts the meeting in (`BAR.SYNC`), and that it did is seen here.
"""

from __future__ import annotations

from collections.abc import Sequence

from wsopt.codegen.sass import TENSOR_LOAD, Block, Instruction, blocks_of, successors

_ALLOCATES = "ATOMS"
"""Atomics of shared memory are the allocator's of tensor memory alone. Where two blocks allocate together, the warp
that does it tells the other block behind its own atomics, and hands nothing over for the partition.
"""

_ACCESSES = frozenset({"LDS", "LDSM", "STS", "STSM", TENSOR_LOAD, "STTM"})


def early_arrivals(instructions: Sequence[Instruction]) -> int:
    """Arrivals that some way through the code reaches without a meeting of the warps since the last access.

    An access is an ordinary load or store of shared or tensor memory, or a wait for products, whose reads are over
    with it.
    """
    blocks = blocks_of(instructions)
    after = successors(blocks)
    open_at_start = [False] * len(blocks)
    waiting = list(range(len(blocks)))
    while waiting:
        index = waiting.pop()
        left_open, _ = _through(blocks[index], open_at_start[index])
        for target in after[index]:
            if left_open and not open_at_start[target]:
                open_at_start[target] = True
                waiting.append(target)
    return sum(len(_through(block, start)[1]) for block, start in zip(blocks, open_at_start, strict=True))


def _through(block: Block, is_open: bool) -> tuple[bool, list[Instruction]]:
    """Whether accesses are open at a block's end, by whether they are at its start; arrivals that meet some."""
    early, before = [], ""
    for item in block:
        if _meets(item):
            is_open = False
        elif item.opcode in _ACCESSES or _ends_products(item):
            is_open = True
        elif is_open and _arrives(item) and before != _ALLOCATES:
            early.append(item)
        before = item.opcode
    return is_open, early


def _meets(item: Instruction) -> bool:
    """All warps of a partition, or of the block, meet: of a guarded one that is not known."""
    return item.opcode == "BAR" and item.operands.startswith(".SYNC") and not item.predicated


def _ends_products(item: Instruction) -> bool:
    return item.opcode == "WARPGROUP" and item.operands.startswith(".DEPBAR")


def _arrives(item: Instruction) -> bool:
    """A plain arrival. One that expects bytes (no `A1T0`) is made before the copies, and hands nothing over."""
    return item.opcode == "SYNCS" and item.operands.startswith(".ARRIVE") and ".A1T0" in item.operands
