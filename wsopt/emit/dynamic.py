"""Tiles that blocks take at run time: the next tile of all goes to the block whose loading warp is free first.

Blocks that take every so-manieth tile drift apart, and what all of them read and write at a time lies ever farther
apart in device memory, which is slower for it. Taken at run time, tiles are begun in their order.

A block's first tile has the block's own number. Behind a tile's copies the loading warp asks a counter for the next
one and waits for its number, and leaves each tile's number beside the slot that it fills, where consumers find it.
Behind a block's last tile it leaves the number of all tiles, which no tile has and which ends the consumers' loop. In
all as many numbers are asked for as there are tiles: who gets the last one takes them off the counter again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from wsopt.emit import text
from wsopt.emit.grid import tiles
from wsopt.emit.instructions import Instruction, arrive, when
from wsopt.emit.integers import PYTHON
from wsopt.emit.plan import KernelPlan
from wsopt.emit.recipe import Workspace
from wsopt.emit.rings import Ring
from wsopt.graph.types import DType
from wsopt.program.program import TileProgram
from wsopt.schedule.types import PartitionRole

PARAMETER = "taken_ptr"
"""The kernel's argument: how many numbers of tiles have been asked for (i32)."""
NUMBERS, NUMBERS_LAYOUT = "tile_numbers", "NUMBERS_LAYOUT"
"""The numbers of the tiles that slots belong to, and how they lie in shared memory."""


def lone_arrivals(program: TileProgram) -> int:
    """Arrivals of a loading warp behind a store of its own: the one that tells of no more tiles, and where nothing is
    copied the one that tells of a tile.
    """
    return (1 + any(ring.signals for ring in program.rings)) * program.structure.dynamic


_LAYOUTS = {PartitionRole.LOADER: "LOADER_NUMBER", PartitionRole.CONSUMER: "CONSUMER_NUMBER"}


def constants(plan: KernelPlan) -> list[tuple[str, int | str, str]]:
    """The layouts of a tile's number, in shared memory and in the registers of each role, with comments."""
    if not plan.s.dynamic:
        return []
    machine = plan.verified.machine
    warps = {PartitionRole.LOADER: 1, PartitionRole.CONSUMER: plan.s.consumer_warps}
    return [
        (NUMBERS_LAYOUT, "gl.SwizzledSharedLayout(1, 1, 1, order=[0])", "numbers of tiles beside the slots"),
        *(
            (
                _LAYOUTS[role],
                f"gl.BlockedLayout([1], [{machine.threads_per_warp}], [{count}], [0])",
                f"one number in every thread of a {role.value}",
            )
            for role, count in warps.items()
        ),
    ]


def workspaces(plan: KernelPlan) -> tuple[Workspace, ...]:
    """The memory that a launch needs besides its tensors: one counter."""
    return (Workspace(PARAMETER, DType.I32, 1, zeroed=True),) if plan.s.dynamic else ()


def told(plan: KernelPlan, ring: Ring) -> list[str]:
    """The line by which the loading warp leaves a tile's number beside a slot that it is about to fill."""
    return [_tell(ring, "tile")] if plan.s.dynamic else []


def each_tile(plan: KernelPlan, role: PartitionRole, body: str) -> list[str]:
    """The lines that run a body for each tile that a block takes."""
    (ring,) = plan.rings
    count = f"tiles = {PYTHON(tiles(plan))}"
    if role is PartitionRole.LOADER:
        taken = f"{body}\ntile = next_tile({PARAMETER})"
        return [count, "tile = gl.program_id(0)", _while(taken), *_ended(ring)]
    number = f"{ring.wait_full()}\ntile = told_tile({NUMBERS}, {ring.counter.slot(0)})"
    return [count, number, _while(f"{body}\n{number}")]


def waited(plan: KernelPlan, steady: Iterable[Instruction]) -> Iterator[Instruction]:
    """A tile's instructions without the wait for its only slot, behind which its number is read."""
    (ring,) = plan.rings
    return (one for one in steady if one != ring.wait_full())


def _while(body: str) -> str:
    return "while tile < tiles:\n" + text.block(body)


def _ended(ring: Ring) -> list[str]:
    """The lines of the loading warp behind its last tile."""
    all_told = f'gl.atomic_add({PARAMETER}, -tiles, sem="relaxed", scope="gpu")  # left as it was found'
    return [
        "# No tile has the number that comes last: it ends the consumers' loop.",
        ring.wait_empty(),
        _tell(ring, "tiles"),
        arrive(ring.full()),
        when("tile == tiles + gl.num_programs(0) - 1", all_told),
    ]


def _tell(ring: Ring, number: str) -> str:
    return f"tell_tile({NUMBERS}, {ring.counter.slot(0)}, {number})"
