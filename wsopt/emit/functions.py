"""The device functions of a kernel, one a role: what each is given, and its way through the tiles of a block."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from wsopt.emit import store_warp, tensor_sums, text
from wsopt.emit.channels import channels, instance
from wsopt.emit.consumer import Consumer, epilogue_parameters
from wsopt.emit.epilogue import subtile
from wsopt.emit.instructions import expect, tma_load, write, zero
from wsopt.emit.integers import PYTHON
from wsopt.emit.plan import STATIONARY, KernelPlan
from wsopt.emit.ranges import tile_range
from wsopt.emit.recipe_of import tiles
from wsopt.emit.tensors import Box, coordinates
from wsopt.program.types import Space
from wsopt.schedule.types import PartitionRole

_LET_NEXT_IN = """\
# The next kernel may set up: its `gdc_wait` ends with this one. Were it let in at the start, its blocks would take
# SMs in the order in which they fall free, and neighbours would no longer share what they copy.
gdc_launch_dependents()"""


_DEALT_TILES = """\
# Where this block's tiles begin and end in the order, which comes after the blocks' beginnings.
first = gl.load(order_ptr + gl.program_id(0))
last = gl.load(order_ptr + gl.program_id(0) + 1)
for place in range(first, last):"""

_OF_ALL = frozenset({PartitionRole.LOADER, PartitionRole.MMA_WARP})
"""Roles that stand for no one consumer."""


@dataclass(frozen=True, slots=True)
class Function:
    """A device function: its name, its parameters, its lines."""

    name: str
    parameters: tuple[str, ...]
    body: str


def functions(plan: KernelPlan, called: set[str]) -> list[Function]:
    """All device functions that partitions run, and the epilogue that consumers call; notes in `called` what they
    call of the kernel's own.
    """
    found = [
        _loader(plan),
        *([] if plan.loops_over_tiles else [_epilogue(plan, called)]),
        *([_mma_warp(plan)] if plan.sums_apart else []),
        _consumer(plan, called),
    ]
    return [*found, _store_warp(plan)] if plan.stores_apart else found


def partitions(plan: KernelPlan, written: Iterable[Function]) -> list[tuple[str, list[str]]]:
    """Each partition with its arguments; one that stands for a consumer has that one's own buffers and number."""
    own = {name for channel in channels(plan) if channel.own for name in channel.names}
    parameters = {function.name: function.parameters for function in written}
    found = []
    for partition in plan.verified.schedule.partitions:
        names = list(parameters[partition.role.value])
        if partition.role not in _OF_ALL:
            names = [instance(name, partition.index) if name in own else name for name in names[:-1]]
            names.append(str(partition.index))
        found.append((partition.role.value, names))
    return found


def seen(plan: KernelPlan, role: PartitionRole, *, own: bool) -> list[str]:
    """The names of the channels that a role sees, of those that consumers have each or share."""
    visible = (one for one in channels(plan) if role in one.roles and one.own is own)
    return [name for channel in visible for name in channel.names]


# --- the way through the tiles --------------------------------------------------------------------------


def _target(plan: KernelPlan) -> str:
    column = ("column_tile",) if plan.columns else ()
    return ", ".join((*plan.outer, "row_tile", *column))


def grid_parameters(plan: KernelPlan) -> list[str]:
    """Parameters from which a tile's place follows, beside its number."""
    column = ["column_tiles"] if plan.columns else []
    return ["row_tiles", *column, *(["groups"] if "group" in plan.outer else [])]


def _each_tile(plan: KernelPlan, role: PartitionRole, body: str) -> list[str]:
    """The lines that run a body for each tile of a block."""

    def located(tile: str) -> str:
        return f"{_target(plan)} = tile_coordinates({', '.join([tile, *grid_parameters(plan)])})\n{body}"

    if not plan.s.persistent:
        return [located("gl.program_id(0)")]
    if plan.order_table:
        return [_DEALT_TILES, text.block(located("gl.load(order_ptr + place)"))]
    ping_pong = plan.ping_pong and role not in _OF_ALL
    first = "gl.program_id(0)" + (" + index * gl.num_programs(0)" if ping_pong else "")
    stride = ("CONSUMERS * " if ping_pong else "") + "gl.num_programs(0)"
    header = f"tiles = {PYTHON(tiles(plan))}\nfor tile in range({first}, tiles, {stride}):"
    return [header, text.block(body if role is PartitionRole.MMA_WARP else located("tile"))]


def _function(
    plan: KernelPlan, role: PartitionRole, parameters: Sequence[str], body: str, *,
    counters: Mapping[str, str], begin: Iterable[str] = (), end: str = "",
) -> Function:  # fmt: skip
    """A role's function: its counters, what it begins with, its tiles, what it ends with."""
    starts = (f"{name} = {value}" for name, value in counters.items())
    lines = [*starts, *begin, *_each_tile(plan, role, body)]
    return Function(role.value, tuple(parameters), "\n".join([*lines, *([end] if end else [])]))


# --- roles ----------------------------------------------------------------------------------------------


def _loader(plan: KernelPlan) -> Function:
    descriptors = [box.descriptor for box in plan.moved]
    sizes = plan.sizes if plan.ranged else plan.counts
    parameters = [*descriptors, *seen(plan, PartitionRole.LOADER, own=False), *plan.order_table, *sizes]
    lines: list[str] = []
    fills = write([*_fills(plan), "step += 1"])
    if plan.ranged:
        lines += [tile_range(), write(_stationary_loads(plan))]
    if not plan.loops_over_tiles:
        first, last = ("begin, ", "end") if plan.ranged else ("", "k_iterations")
        fills = f"for k_block in range({first}{last}):\n" + text.block(fills)
    visits = bool(plan.stationary)
    counters = {"step": "0"} | ({"visit": "0"} if visits else {})
    body = "\n".join([*lines, fills, *(["visit += 1"] if visits else [])])
    role, begin = PartitionRole.LOADER, ["gdc_wait()"]
    return _function(plan, role, parameters, body, counters=counters, begin=begin, end=_LET_NEXT_IN)


def _rows(consumer: int) -> str:
    return "row_tile * TILE_ROWS" + (f" + {consumer} * CONSUMER_ROWS" if consumer else "")


def _copy(plan: KernelPlan, box: Box, consumer: int, barrier: str, buffer: str) -> str:
    column = "column_tile * TILE_COLUMNS" if plan.columns else "0"
    place = plan.place(_rows(consumer), column)
    return tma_load(box.descriptor, coordinates(box, place), barrier, buffer)


def _stationary_loads(plan: KernelPlan) -> list[str]:
    """The copies of the tiles that the loop holds, into buffers that the consumers have handed back."""
    full = STATIONARY.full("visit")
    found = [STATIONARY.wait_empty("visit")] if plan.s.persistent else []
    found.append(expect(full, "STATIONARY_BYTES"))
    for box in plan.stationary:
        for consumer in range(plan.s.consumers):
            buffer = f"{box.name}_held.index({plan.stationary_place(str(consumer))})"
            found.append(_copy(plan, box, consumer, full, buffer))
    return found


def _fills(plan: KernelPlan) -> list[str]:
    """The copies that fill each ring's slots: rings in the order of the schedule, a slot's tensors one by one.

    All of a slot's copies arrive at one barrier, so their order within it is the emitter's. Tensor by tensor is
    faster than a schedule's order between them (`docs/calibration/h200_copy_order.json`).
    """
    found: list[str] = []
    placed = plan.verified.schedule.of(f"{PartitionRole.LOADER}0")
    loads = [plan.program.named(one.op).id for one in placed]
    for ring in sorted(plan.rings, key=lambda ring: min(map(loads.index, ring.plan.loads))):
        full, slot = ring.full("step"), f"step % {ring.depth}"
        found += [ring.wait_empty("step"), expect(full, ring.nbytes)]
        for member, box in ring.members:
            own = [
                load.instance for load in ring.plan.loads if load.subject == member.name and not load.k_block
            ]
            for consumer in range(member.copies) if own == [None] else own:
                buffer = f"{box.name}_ring.index({text.of_slot(slot, member.copies, str(consumer))})"
                found.append(_copy(plan, box, consumer or 0, full, buffer))
    return found


def _epilogue(plan: KernelPlan, called: set[str]) -> Function:
    lines = [
        "rows = row + gl.arange(0, CONSUMER_ROWS, layout=gl.SliceLayout(1, SUBTILE_LAYOUT))",
        "columns = column + gl.arange(0, SUBTILE_COLUMNS, layout=gl.SliceLayout(0, SUBTILE_LAYOUT))",
        write(subtile(plan, called)),
    ]
    constants = {"subtile", *plan.staged.constants()}
    parameters = (f"{p}: gl.constexpr" if p in constants else p for p in epilogue_parameters(plan))
    return Function("epilogue", tuple(parameters), "\n".join(lines))


def _consumer(plan: KernelPlan, called: set[str]) -> Function:
    role = PartitionRole.CONSUMER
    loads = [box.descriptor for box in plan.inputs.values()]
    vectors = [name for one in plan.vectors.values() for name in one.arguments]
    parameters = [
        *seen(plan, role, own=False), *loads, *vectors, *seen(plan, role, own=True),
        *plan.stored, *plan.order_table, *plan.sizes, "index: gl.constexpr",
    ]  # fmt: skip
    # Where tiles are iterations, what is read by address is read behind a copy of the loader's, which has waited.
    early = (plan.s.persistent and plan.ranged) or plan.vectors or plan.inputs
    waits = early and not plan.loops_over_tiles
    begin = ["gdc_wait()"] if waits else []
    counters = {} if plan.sums_apart else {"step": "index * k_iterations" if plan.ping_pong else "0"}
    counters |= {} if plan.loops_over_tiles else {"visit": "0"}
    return _function(
        plan, role, parameters, Consumer(plan, called).body(), counters=counters, begin=[*begin, *_carried(plan)],
        end="" if plan.stores_apart else "tma.store_wait(0)",
    )  # fmt: skip


def _mma_warp(plan: KernelPlan) -> Function:
    role = PartitionRole.MMA_WARP
    parameters = [*seen(plan, role, own=False), *plan.counts]
    body = tensor_sums.issued(plan, Consumer(plan).operations)
    begin = ["# Issues the products of all tiles; commits tell the loader and the consumer of their ends."]
    return _function(plan, role, parameters, body, counters={"step": "0", "visit": "0"}, begin=begin)


def _carried(plan: KernelPlan) -> list[str]:
    """Sums and partial sums that are made before the first tile, where a tile does not clear them."""
    if plan.ranged:
        return []
    if plan.loops_over_tiles:
        return [f"columns = gl.arange(0, TILE_COLUMNS, layout=gl.SliceLayout(0, {plan.loop_layout}))"]
    operations = Consumer(plan).operations
    values = (v.id for v in plan.program.values if v.space is Space.REGISTERS and v.consumer == 0)
    return [zero(operations.register(value, 0), "TILE_COLUMNS", "SUM_LAYOUT") for value in values]


def _store_warp(plan: KernelPlan) -> Function:
    end = "tma.store_wait(0)" if store_warp.leaves_stores(plan) else ""
    parameters = store_warp.parameters(plan)
    body, counters = store_warp.body(plan), {"visit": "0"}
    begin = ["# Starts what its consumer has staged, and tells it of the buffers that have been read."]
    return _function(
        plan, PartitionRole.STORE_WARP, parameters, body, counters=counters, begin=begin, end=end
    )
