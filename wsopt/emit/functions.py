"""The device functions of a kernel, one a role: what each is given, and its way through the tiles of a block."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from wsopt.emit import dynamic, records, shares, splits, text, walk
from wsopt.emit.channels import channels, instance
from wsopt.emit.grid import place_of, tiles
from wsopt.emit.instructions import when
from wsopt.emit.integers import PYTHON
from wsopt.emit.plan import KernelPlan
from wsopt.schedule.types import Partition, PartitionRole

_DEALT_TILES = """\
# Where this block's tiles begin and end in the order, which comes after the blocks' beginnings.
first = gl.load(order_ptr + gl.program_id(0))
last = gl.load(order_ptr + gl.program_id(0) + 1)
for place in range(first, last):"""

_PLACELESS = frozenset({PartitionRole.MMA_WARP, PartitionRole.TRANSFORM})
"""Roles that need not know where a tile lies."""


@dataclass(frozen=True, slots=True)
class Function:
    """A device function: its name, its parameters, its lines, and what those call of the kernel's own functions."""

    name: str
    parameters: tuple[str, ...]
    body: str
    called: frozenset[str] = frozenset()


def launched(plan: KernelPlan) -> list[Partition]:
    """The block's partitions in the order of the launch. The first one is the kernel's default partition: a
    correction warpgroup, or the first consumer.

    All others stand in one loop, in which warps wait for their role. What roles share, which is thread numbers and
    what is computed of those, is live through each of them. A correction warpgroup has the fewest registers to spare:
    in that loop ptxas of Triton 3.9 spilled what is live beside its slice of sums.
    """
    every = plan.verified.schedule.partitions
    return sorted(every, key=lambda one: one.role is not PartitionRole.CORRECTION)


def partitions(plan: KernelPlan, written: Iterable[Function]) -> list[tuple[str, list[str]]]:
    """Each partition with its arguments, in the order of the launch. One that stands for a consumer has that
    consumer's own buffers and number.
    """
    own = {name for channel in channels(plan) if channel.own for name in channel.names}
    parameters = {function.name: function.parameters for function in written}
    found = []
    for partition in launched(plan):
        function = plan.function_name(partition.role, partition.index)
        names = list(parameters[function])
        if partition.role.of_one_consumer:
            names = [instance(name, partition.index) if name in own else name for name in names[:-1]]
            names.append(str(partition.index))
        found.append((function, names))
    return found


def seen(plan: KernelPlan, role: PartitionRole, *, own: bool, index: int = 0) -> list[str]:
    """The names of the channels that a role sees: with `own` those of which each consumer has an instance, else those
    that all share. Of loading warps and transform warpgroups the one numbered `index` sees those of its rings.
    """
    visible = (one for one in channels(plan) if one.is_seen(role, index) and one.own is own)
    return [name for channel in visible for name in channel.names]


def function(
    plan: KernelPlan,
    role: PartitionRole,
    parameters: Iterable[str],
    begin: list[str],
    body: str,
    end: str = "",
    called: Iterable[str] = (),
    index: int = 0,
) -> Function:
    """A role's function: what it begins with, a body for each tile, what it ends with. `index` is that of a
    loading warp or a transform warpgroup.
    """
    parameters = tuple(parameters)
    each = _each_tile(plan, role, records.around_tile(plan, role, body, index))
    lines = [
        *_own_sizes(plan, parameters),
        *begin,
        *records.begin(plan, role, index),
        *each,
        *([end] if end else []),
    ]
    given = (*records.parameters(plan), *parameters)
    return Function(plan.function_name(role, index), given, "\n".join(lines), frozenset(called))


def _own_sizes(plan: KernelPlan, parameters: Iterable[str]) -> list[str]:
    """Lines that make a role's sizes values of its own. What several roles compute of one value, the compiler would
    compute once, and keep in registers through all roles: too many of them beside products in tensor memory.
    """
    return [f"{one} = own({one})" for one in parameters if one in plan.sizes] if plan.values_apart else []


def _each_tile(plan: KernelPlan, role: PartitionRole, body: str) -> list[str]:
    """The lines that run a body for each tile of a block."""

    placeless = role in _PLACELESS and not plan.ranged

    def located(tile: str) -> str:
        return f"{place_of(plan, tile)}\n{body}"

    if plan.s.shares:
        return shares.each_tile(plan, role, body if placeless else located("tile"))
    if plan.split:
        return _each_part(plan, role, body if placeless else located("part // SPLITS"))
    if not plan.s.persistent:
        return [body if placeless and role is PartitionRole.MMA_WARP else located("gl.program_id(0)")]
    if plan.s.dynamic:
        return dynamic.each_tile(plan, role, located("tile"))
    if plan.order_table:
        return [_DEALT_TILES, text.block(located("gl.load(order_ptr + place)"))]
    if plan.offsets is not None:
        header = f"for tile in {_taken(plan, role, 'tiles')}:"
        return [*walk.first_segment(plan), header, text.block("\n".join([*walk.segment(plan), body]))]
    header = f"tiles = {PYTHON(tiles(plan))}\nfor tile in {_taken(plan, role, 'tiles')}:"
    return [header, text.block(body if placeless else located("tile"))]


def first_place(plan: KernelPlan) -> tuple[list[str], str]:
    """The lines that say where a block's first tile lies, or its first part of one, and how many K-blocks it has."""
    if not plan.split:
        return [place_of(plan, "gl.program_id(0)")], "k_iterations"
    if plan.s.shares:
        return [*shares.first_tile(plan), place_of(plan, "tile")], "last - first"
    part = splits.part_at(plan, "gl.program_id(0)")
    return [part, splits.PART_RANGE, place_of(plan, "part // SPLITS")], "last - first"


def _each_part(plan: KernelPlan, role: PartitionRole, body: str) -> list[str]:
    """The lines that run a body for each part of a tile that a block takes."""
    counts = role is not PartitionRole.CONSUMER or plan.in_loop
    body = f"{splits.PART_RANGE}\n{body}" if counts and not plan.ranged else body
    if not plan.s.persistent:
        return [splits.part_at(plan, "gl.program_id(0)"), body]
    # Of a loop that computes values the launcher says how many there are.
    count = [] if plan.ranged else [f"parts = {PYTHON(tiles(plan))} * SPLITS"]
    return [
        *count,
        f"for place in {_taken(plan, role, 'parts')}:",
        text.block(f"{splits.part_at(plan, 'place')}\n{body}"),
    ]


def each_owed(plan: KernelPlan, epilogue: Iterable[str]) -> list[str]:
    """The lines with which a consumer goes through its parts once more, and ends each tile whose last part was its
    own. Meanwhile no loop waits for it, and its reads of other parts wait for no copies.
    """
    if plan.s.shares:
        return shares.each_owed(plan, splits.brought(plan, epilogue))
    places = [place_of(plan, "part // SPLITS"), *plan.first_places()]
    owed = when("(owed >> taken) & 1", "\n".join([*places, *splits.brought(plan, epilogue)]))
    header = f"for place in {_taken(plan, PartitionRole.CONSUMER, 'parts')}:"
    return ["taken = 0", header, text.block(f"{splits.part_at(plan, 'place')}\n{owed}\ntaken += 1")]


def _taken(plan: KernelPlan, role: PartitionRole, count: str) -> str:
    """The numbers, below a count, of what a role of a persistent block takes: consumers in ping-pong go in turns."""
    ping_pong = plan.ping_pong and role.of_one_consumer
    first = "gl.program_id(0)" + (" + index * gl.num_programs(0)" if ping_pong else "")
    return f"range({first}, {count}, {'CONSUMERS * ' if ping_pong else ''}gl.num_programs(0))"
