"""Counts of a launch, and what a schedule needs of the extents: expressions that every launcher is written from.

They are a part of the launch recipe (`recipe_of.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from wsopt.emit.integers import Integer, Name, add, ceil_divide, minimum, multiply
from wsopt.emit.mask_checks import mask_checks
from wsopt.emit.plan import KernelPlan
from wsopt.emit.recipe import BLOCKS, PROCESSORS, Check, Message, Relation
from wsopt.tensors.views import Role


def counts(plan: KernelPlan) -> Iterator[tuple[str, Integer]]:
    """Tiles each way, K-blocks, tiles in all, and the blocks that take them; each of those before it."""
    s = plan.s
    yield "row_tiles", ceil_divide(Name("row_extent"), s.tile_rows)
    if "column_tiles" in plan.counts:
        yield "column_tiles", ceil_divide(Name("column_extent"), s.columns)
        # A whole number of passes; a K-block beyond the end is all zeros.
        yield "k_iterations", multiply(ceil_divide(Name("stream_extent"), s.depth * s.copies), s.copies)
    yield "tiles", tiles(plan)
    yield BLOCKS, minimum(Name(PROCESSORS), Name("tiles")) if s.persistent else Name("tiles")


def tiles(plan: KernelPlan) -> Integer:
    """Tiles in all, from the tiles each way."""
    batches = ("batches",) if Role.BATCH in plan.axes else ()
    each_way = (name for name in plan.counts if name not in ("batches", "k_iterations", "groups"))
    groups = ("groups",) if Role.GROUP in plan.axes else ()
    return multiply(*map(Name, (*batches, *groups, *each_way)))


def schedule_checks(plan: KernelPlan, least: int) -> Iterator[Check]:
    """Conditions on the extents that the schedule relies on: a consumer's loop takes `least` passes."""
    s, program = plan.s, plan.program
    column, inner, stream = Name("column_extent"), Name("inner_extent"), Name("stream_extent")
    if plan.reduces_rows:
        length = program.whole.extent(Role.COLUMN)
        told: Message = ("rows have ", column, f" elements: this schedule reduces rows of {length}")
        yield Check(column, Relation.EQUAL, length, told)
    for member in program.stationary:
        held = member.extent(Role.INNER)
        told = ("the products have ", column, f" columns: this schedule holds up to {s.columns}")
        yield Check(column, Relation.AT_MOST, s.columns, told)
        told = ("the inner axis has ", inner, f" elements: this schedule holds up to {held}")
        yield Check(inner, Relation.AT_MOST, held, told)
    if plan.ranged:
        yield from mask_checks(program.bounds)
    elif not plan.loops_over_tiles:
        told = ("the contracted axis is too short for this schedule",)
        yield Check(Name("k_iterations"), Relation.AT_LEAST, least, told)
    if s.tail:
        told = ("the contracted axis has ", stream, f" elements: this schedule takes 1 to {s.tail} more than a "
                f"multiple of {s.depth}")  # fmt: skip
        covered = add(stream, s.depth - s.tail)
        yield Check(multiply(Name("k_iterations"), s.depth), Relation.AT_LEAST, covered, told)
