"""Equal shares: each block works on as many K-blocks as any other, wherever tiles begin and end.

The K-blocks of all tiles stand in a row, and each block has a piece of it. Of a tile at an end of its share it may
have a part; tiles between are its own. How many K-blocks a tile has may be known only in the kernel: every role
counts those of all tiles, many at a time, and finds the same share.

Parts of a tile are numbered by the tile and the block together, which gives each a place of its own, and those of a
tile places that follow each other. A block has two parts at most, in its first tile and in its last. It tells of each
as it leaves it, and at the end of its share it ends each tile of which it has left the last part.
"""

from __future__ import annotations

from collections.abc import Iterable

from wsopt.emit import text
from wsopt.emit.grid import grid_parameters, place_of, tiles
from wsopt.emit.instructions import when
from wsopt.emit.integers import PYTHON
from wsopt.emit.plan import KernelPlan
from wsopt.emit.ranges import scalar_loads, whole_tile_range
from wsopt.perf.splits import counted_at_once
from wsopt.schedule.types import PartitionRole

NOTHING_LEFT = ["parts_first = 1", "parts_last = 1", "owed = 0"]
"""The lines by which a consumer begins: how many parts its first tile has and its last one, and which of them it owes
their end.
"""
PARTS = "parts = block_of(after - 1, total) - block_of(before, total) + 1"
"""The line that says over how many blocks the present tile is spread."""


def number_of(plan: KernelPlan) -> str:
    """The number of the present tile among those that may have parts: of products those behind all whole waves."""
    return "tile" if plan.ranged else "shared"


def part(plan: KernelPlan) -> str:
    """The number of a block's part of the present tile."""
    return f"({number_of(plan)} + gl.program_id(0))"


def first_part(plan: KernelPlan) -> str:
    """The number of the present tile's first part."""
    return "(tile + own_block)" if plan.ranged else "(shared + first_block)"


def _parameters(plan: KernelPlan) -> list[str]:
    """What the K-blocks of a tile are counted from, beside its number."""
    scalars = (argument for name in plan.scalars for argument in plan.vectors[name].arguments)
    return ["tiles", *grid_parameters(plan), "row_extent", "stream_extent", *scalars]


def device(plan: KernelPlan) -> dict[str, object] | None:
    """Values for the template of the functions that find a block's share; none where blocks take tiles."""
    if not plan.s.shares:
        return None
    if not plan.ranged:
        return {"ranged": False}
    return {
        "ranged": True,
        "parameters": _parameters(plan),
        "place": place_of(plan, "tile"),
        "loads": scalar_loads(plan),
        "range": whole_tile_range(plan),
    }


def constants(plan: KernelPlan, least: int) -> list[tuple[str, int | str, str]]:
    """Constants of the text, with comments: the K-blocks of a piece of a tile, which the consumers' loop takes in its
    `least` passes, or how tiles lie in the registers of each role that counts theirs.
    """
    if not plan.s.shares:
        return []
    if not plan.ranged:
        return [("SHARED_K_BLOCKS", piece(plan, least), "K-blocks of a piece: shares are whole ones")]
    count, threads = counted_at_once(plan.program), plan.verified.machine.threads_per_warp
    found: list[tuple[str, int | str, str]] = [
        ("COUNTED_TILES", count, "tiles whose K-blocks are counted at a time")
    ]
    machine = plan.verified.machine
    for warps in sorted({1, plan.s.consumer_warps, machine.warps_per_warpgroup if plan.s.transforms else 1}):
        each = max(1, count // (threads * warps))
        layout = f"gl.BlockedLayout([{each}], [{threads}], [{warps}], [0])"
        found.append((_layout(warps), layout, "numbers of tiles, in so many warps"))
    return found


def piece(plan: KernelPlan, least: int) -> int:
    """K-blocks that a part has at least, where the loop takes `least` passes."""
    return 1 if plan.ranged else least * plan.s.copies


def _layout(warps: int) -> str:
    return f"COUNTED_LAYOUT_{warps}"


def each_tile(plan: KernelPlan, role: PartitionRole, body: str) -> list[str]:
    """The lines that run a body for each tile in which a block has K-blocks."""
    if not plan.ranged:
        header = "for number in range(rounds + last_tile - first_tile):"
        return [*_share(plan), header, text.block(f"{_own_tile('number')}\n{body}")]
    warps = plan.s.consumer_warps if role.of_one_consumer else 1
    if role is PartitionRole.TRANSFORM:
        warps = plan.verified.machine.warps_per_warpgroup
    given = ", ".join(["gl.program_id(0)", *_parameters(plan), _layout(warps)])
    found = f"total, share_begin, share_end, first_tile, last_tile, before = share_of({given})"
    first = ["first_block = block_of(before, total)"] if role.of_one_consumer else []
    inner = f"{body}\nbefore = after"
    return [found, *first, "for tile in range(first_tile, last_tile):", text.block(inner)]


def _share(plan: KernelPlan) -> list[str]:
    """The lines that find a block's share of products."""
    found = "rounds, total, share_begin, share_end, first_tile, last_tile"
    return [f"tiles = {PYTHON(tiles(plan))}", f"{found} = share_of(gl.program_id(0), tiles, k_iterations)"]


def _own_tile(number: str) -> str:
    """The line with a block's tile of products, and its K-blocks of that."""
    return (
        f"tile, first, last = part_range({number}, rounds, share_begin, share_end, first_tile, k_iterations)"
    )


def first_tile(plan: KernelPlan) -> list[str]:
    """The lines with a block's first tile of products, and its K-blocks of that."""
    return [*_share(plan), _own_tile("0")]


def products_ended(
    whole: Iterable[str], left: Iterable[str], arrives: str, brought: Iterable[str]
) -> list[str]:
    """The lines of a consumer behind a tile's loop of products: the end of a `whole` tile; or what it has `left` of a
    part, and if it `arrives` last the end of the tile, whose parts are `brought` together.
    """
    found = "shared, first_block, parts = parts_of(tile, rounds, total, k_iterations)"
    part = "\n".join([*left, when(arrives, "\n".join(brought))])
    return [
        found,
        when("parts == 1", "\n".join(line for line in whole if line)),
        "else:\n" + text.block(part),
    ]


def ended(whole: Iterable[str], left: Iterable[str], arrives: str) -> list[str]:
    """The lines of a consumer behind a tile's loop: the end of a `whole` tile; or what it has `left` of a part, and
    whether it `arrives` last, which is then a bit of what it owes.

    It tells of each part at once. So the first part of a share is known long before its last one is left, and who
    ends a tile late has one to end, not two.
    """
    part = [
        *left,
        f"owed = owed | ({arrives}.to(gl.int32) << gl.where(tile == first_tile, 0, 1))",
        "parts_first = gl.where(tile == first_tile, parts, parts_first)",
        "parts_last = parts",
    ]
    otherwise = "else:\n" + text.block("\n".join(part))
    return [PARTS, when("parts == 1", "\n".join(line for line in whole if line)), otherwise]


def each_owed(plan: KernelPlan, brought: Iterable[str]) -> list[str]:
    """The lines with which a consumer ends the first tile of its share and the last one, where it has left the last
    part of them. Meanwhile no loop waits for it, and its reads of other parts wait for no copies.
    """
    of_tile = [
        "parts = gl.where(number == 0, parts_first, parts_last)",
        "tile = gl.where(number == 0, first_tile, last_tile - 1)",
        "own_block = gl.where(number == 0, first_block, gl.program_id(0))",
        place_of(plan, "tile"),
        *plan.first_places(),
        *brought,
    ]
    return ["for number in range(2):", text.block(when("(owed >> number) & 1", "\n".join(of_tile)))]
