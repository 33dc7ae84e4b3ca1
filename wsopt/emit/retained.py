"""Two passes over rows that no SM holds, of which the second begins with the parts that have stayed in the ring.

The last parts of the first pass are not handed back. The second pass goes back by as many slots, treats them in the
order in which they lie, so that the loading warp finds each slot free when it comes to it, and then those that were
copied again: the last of them first, which L2 has had for the shortest time. Where the next row's first parts come
into slots that fall free, nothing of this has to be said: copies of all rows are one sequence.
"""

from __future__ import annotations

from collections.abc import Iterator

from wsopt.emit import text
from wsopt.emit.instructions import when
from wsopt.emit.plan import KernelPlan

_STAY = "Parts that stayed in the ring are not copied again; of the others the last one comes first."
_FIRST = (
    "The parts that stayed in the ring come first, then those that were copied again, the last of them first."
)


PART_COLUMN = "part * TILE_COLUMNS"
"""The first column of a part of rows that are not held whole."""


def each_part(body: str, parts: str = "ROW_PARTS") -> str:
    """The loop over the parts of a tile's rows, where no SM holds them."""
    return f"for part in range({parts}):\n" + text.block(body)


def _retains_all(plan: KernelPlan) -> bool:
    """Whether all parts of a row stay in the ring or in registers, so that none is copied again."""
    return plan.s.retained + plan.s.in_registers == plan.program.grid.column_tiles


def _first(plan: KernelPlan) -> str:
    """The first part that is not in registers."""
    return "IN_REGISTERS" if plan.s.in_registers else ""


def other_parts(plan: KernelPlan, body: str) -> str:
    """The loop of a pass over all parts that are not in registers."""
    first = _first(plan)
    return each_part(body, f"{first}, ROW_PARTS" if first else "ROW_PARTS")


def copied_parts(plan: KernelPlan, fills: str) -> str:
    """The loading warp's loop over the parts of a tile's rows, in all passes."""
    if not plan.s.retained:
        return each_part(fills, "READS * ROW_PARTS" if plan.reads_twice else "ROW_PARTS")
    if _retains_all(plan):
        return each_part(fills)
    again, first = "2 * ROW_PARTS - RETAINED", _first(plan)
    part = f"part = gl.where(number < ROW_PARTS, number, {again} - 1 - number)"
    copies = f"{again} - {first}" if first else again
    return f"# {_STAY}\nfor number in range({copies}):\n" + text.block(f"{part}\n{fills}")


def copied_column(plan: KernelPlan) -> str:
    """The first column of a part that the loading warp copies."""
    return "part % ROW_PARTS * TILE_COLUMNS" if plan.reads_twice and not plan.s.retained else PART_COLUMN


def handed_back(plan: KernelPlan, release: str) -> Iterator[str]:
    """The lines by which the first pass hands a part's slot back, or keeps it for the second."""
    if not plan.s.retained:
        yield release
    elif not _retains_all(plan):
        yield when("part < ROW_PARTS - RETAINED", release)


def second_pass(plan: KernelPlan, body: str) -> str:
    """The loop of the second pass, from the first slot that was kept on."""
    if not plan.s.retained:
        return each_part(body)
    (ring,) = plan.rings
    counter = ring.counter
    back = f"{counter.both(0)} = earlier_slot({counter.both(0)}, RETAINED, {counter.depth})"
    if _retains_all(plan):
        return f"{back}\n{other_parts(plan, body)}"
    kept, others = "ROW_PARTS - RETAINED + number", "ROW_PARTS - 1 - number"
    part = f"part = gl.where(number < RETAINED, {kept}, {others})"
    first = _first(plan)
    parts = f"ROW_PARTS - {first}" if first else "ROW_PARTS"
    return f"{back}\n# {_FIRST}\nfor number in range({parts}):\n" + text.block(f"{part}\n{body}")
