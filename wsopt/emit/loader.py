"""The loading warps: the copies that fill rings, and the tiles that a block holds through its loop.

Where there are two, each has a function with the copies of its own rings, and the first brings the tiles that the
block holds. The schedule says which of them starts an iteration's last copy: that one lets the next kernel in, for
the first call in a block counts.

Constants need not wait for the kernel before: those of a block's first slots are copied while it ends, and what else
is in those slots when it has ended.
"""

from __future__ import annotations

from wsopt.emit import dynamic, inputs, pages, records, retained, staggered, text
from wsopt.emit.functions import Function, first_place, function, seen
from wsopt.emit.instructions import arrive, expect, tma_load, write
from wsopt.emit.plan import STATIONARY, KernelPlan
from wsopt.emit.ranges import scalar_loads, tile_range
from wsopt.emit.rings import Ring
from wsopt.emit.slots import first_slots, first_step, next_slots, next_step, windows
from wsopt.emit.stamps import Event, Point
from wsopt.emit.tensors import Box, coordinates
from wsopt.program.facts import PLACES_AT_A_TIME, Member
from wsopt.schedule.types import PartitionRole
from wsopt.tensors.views import Role

_LET_NEXT_IN = """\
# The next kernel may set up: its `gdc_wait` ends with this one. Were it let in at the start, its blocks would take
# SMs in the order in which they fall free, and neighbours would no longer share what they copy.
gdc_launch_dependents()"""


def loader(plan: KernelPlan, index: int) -> Function:
    """The function of a loading warp, which waits for the end of the kernel before."""
    parameters = _parameters(plan, index)
    numbered = plan.trace is not None or not plan.counts_slots
    counters = windows(ring.counter for ring in plan.loaders[index])
    k_block = write([*_fills(plan, index), *next_step(numbered), *next_slots(counters)])
    stationary = plan.stationary if index == 0 else ()
    held = _stationary_loads(plan) if stationary else []
    first = _range_and_held(plan, held) if plan.ranged else []
    filled = _filled(plan, index)
    fills = _tile_fills(plan, k_block, "filled" if filled else "")
    counts = stationary or plan.inputs_by_loader
    begin, end = (["visit = 0"], ["visit += 1"]) if counts else ([], [])
    begin = [*first_step(numbered), *first_slots(counters), *begin, *_first_fills(plan, index), "gdc_wait()"]
    begin += [*staggered.begin(plan), *_other_fills(plan, index)]
    body = write([*_copied_row(plan), *first, *filled, fills, *end])
    after = _LET_NEXT_IN if index == _last(plan) else ""
    called = {pages.PLACE_OF} if pages.apart(plan) else set[str]()
    return function(plan, PartitionRole.LOADER, parameters, begin, body, after, called=called, index=index)


def _parameters(plan: KernelPlan, index: int) -> list[str]:
    """The parameters of a loading warp's function: of what it copies and into what, of where that lies, and sizes."""
    boxes = [*(plan.stationary if index == 0 else ())]
    boxes += [box for ring in plan.rings if ring in plan.loaders[index] for box in ring.boxes]
    boxes += plan.inputs.values() if plan.inputs_by_loader else ()
    channels = [*seen(plan, PartitionRole.LOADER, own=False, index=index), *inputs.brought_names(plan)]
    chosen = [box.view.chosen for ring in plan.loaders[index] for box in ring.boxes if box.view.chosen]
    places = {one.source for one in chosen}
    loaded = (*plan.scalars, *(name for name in plan.chosen if name in places))
    vectors = [argument for name in loaded for argument in plan.vectors[name].arguments]
    counter = [dynamic.PARAMETER] if plan.s.dynamic else []
    sizes = plan.sizes if plan.ranged else plan.counts
    wanted = (
        *(["row_extent"] if any(one.role is Role.ROW for one in chosen) else []),
        *plan.segment_arguments,
    )
    sizes = (*sizes, *(name for name in wanted if name not in sizes))
    descriptors = [box.descriptor for box in boxes]
    return [*descriptors, *channels, *vectors, *counter, *plan.order_table, *sizes]


def _copied_row(plan: KernelPlan) -> list[str]:
    """The line with the row from which a segment's are copied: beyond the tensor for those that belong to none, whose
    matrix lies outside as well, so that they are multiplied zero by zero.
    """
    if plan.offsets is None:
        return []
    return ["copied_row = gl.where(segment < segments, first_row, row_extent)"]


def _range_and_held(plan: KernelPlan, held: list[str]) -> list[str]:
    """The lines that find a tile's K-blocks, and those that copy what the block holds, which is on its way while
    scalars come.
    """
    found = tile_range(plan)
    return [*scalar_loads(plan), *held, found] if plan.scalars else [found, *held]


def _tile_fills(plan: KernelPlan, fills: str, ahead: str) -> str:
    """The fills of a tile's K-blocks behind those filled `ahead`, and the copies of the epilogue's inputs if
    they are the loader's: behind the last K-block, or before so many that they come in time.
    """
    parts = plan.program.long_rows
    if plan.loops_over_tiles:
        return retained.copied_parts(plan, fills) if parts else fills
    if plan.ranged:
        return _for_shared(fills) if plan.s.shares else _for_each("begin, end", fills)
    if plan.split:
        return _for_each(f"first{ahead and ' + '}{ahead}, last", fills)
    comma = ahead and f"{ahead}, "
    if not plan.inputs_by_loader:
        return _for_each(f"{comma}k_iterations", fills)
    if not plan.inputs_ahead:
        return "\n".join([_for_each(f"{comma}k_iterations", fills), inputs.brought(plan)])
    pause = f"pause = gl.maximum(k_iterations - INPUTS_AHEAD, {ahead or 0})"
    first, rest = _for_each(f"{comma}pause", fills), _for_each("pause, k_iterations", fills)
    return "\n".join([pause, first, inputs.brought(plan), rest])


def _for_each(k_blocks: str, fills: str) -> str:
    return _for_each_of("k_block", k_blocks, fills)


def _for_each_of(number: str, numbers: str, lines: str) -> str:
    return f"for {number} in range({numbers}):\n" + text.block(lines)


def _for_shared(fills: str) -> str:
    """The loop over a share's K-blocks of a tile. It counts from 0: Triton 3.6 takes what a loop hands on to the next
    tile for dead where nothing but bounds of an inner loop depends on it, as the K-blocks before a tile would be.
    """
    return _for_each_of("number", "0, end - begin", "k_block = begin + number\n" + fills)


def _first_fills(plan: KernelPlan, index: int) -> list[str]:
    """The copies of constants into a block's first slots, which nobody has used before."""
    if not plan.fills_ahead(index):
        return []
    own = plan.loaders[index]
    shallowest = min(own, key=lambda ring: plan.verified.schedule.depth(ring.plan.name))
    depth = shallowest.depth if plan.constants_ahead is None else "CONSTANTS_AHEAD"
    place, count = first_place(plan)
    fills = write([line for ring in own for line in _ahead(plan, ring, index, constant=True)])
    return [
        "# Constants need not wait for the kernel before: those of the first slots are copied while it ends.",
        *place,
        f"ahead = gl.minimum({count}, {depth})",
        _for_ahead(plan, index, fills),
    ]


def _other_fills(plan: KernelPlan, index: int) -> list[str]:
    """What else is in those slots, behind the end of the kernel before."""
    fills = [line for ring in plan.loaders[index] for line in _ahead(plan, ring, index, constant=False)]
    if not plan.fills_ahead(index) or not fills:
        return []
    again = first_slots(windows(ring.counter for ring in plan.loaders[index]))
    return [*again, _for_ahead(plan, index, write(fills))]


def _filled(plan: KernelPlan, index: int) -> list[str]:
    """The line that says how many of a tile's slots were filled ahead: none but the first tile's.

    Said of each tile, not set to 0 behind the first one: Triton 3.6 loses a constant that a loop assigns.
    """
    if not plan.fills_ahead(index):
        return []
    if not plan.s.persistent:
        return ["filled = ahead"]
    if plan.s.shares:
        return ["filled = gl.where(number == 0, ahead, 0)"]
    number = "place" if plan.split else "tile"
    return [f"filled = gl.where({number} == gl.program_id(0), ahead, 0)"]


def _for_ahead(plan: KernelPlan, index: int, fills: str) -> str:
    """The loop over the K-blocks whose slots are filled ahead."""
    counters = windows(ring.counter for ring in plan.loaders[index])
    k_blocks = "first, first + ahead" if plan.split else "ahead"
    return _for_each(k_blocks, write([fills, *next_slots(counters)]))


def _ahead(plan: KernelPlan, ring: Ring, index: int, *, constant: bool) -> list[str]:
    """The copies of constants into a slot, with all of its bytes announced before them, or those of other tensors."""
    members = [member for member, _ in ring.members if member.view.constant is constant]
    copies = [line for member in members for line in _copies(plan, ring, member, index)]
    announced = any(member.view.constant for member, _ in ring.members)
    if constant and not announced:
        return []
    first = [expect(ring.full(), ring.nbytes)] if constant or not announced else []
    return [*first, *copies]


def _last(plan: KernelPlan) -> int:
    """The loading warp that starts an iteration's last copy."""
    starts = [
        max(plan.verified.schedule.start(load) for ring in own for load in ring.plan.loads)
        for own in plan.loaders
    ]
    return starts.index(max(starts))


def _copy(plan: KernelPlan, box: Box, consumer: int, barrier: str, buffer: str) -> str:
    return tma_load(box.descriptor, coordinates(box, _place(plan, consumer)), barrier, buffer)


def _place(plan: KernelPlan, consumer: int) -> dict[Role, str]:
    """Expressions of the first place of a consumer's tile along the axes."""
    row = plan.tile_row("copied_row") + (f" + {consumer} * CONSUMER_ROWS" if consumer else "")
    parts = "0"
    if plan.program.long_rows:
        parts = retained.copied_column(plan)
    return plan.place(row, "column_tile * TILE_COLUMNS" if plan.columns else parts)


def _chosen_copies(plan: KernelPlan, box: Box, consumer: int, barrier: str, buffer: str) -> list[str]:
    """The copies of a tile whose places another tensor chooses: row by row, some places loaded ahead of their copies,
    or all at one place. Beyond the last row nothing is read: a copy from before the tensor is zeros.
    """
    chosen = box.view.chosen
    assert chosen is not None, "places are chosen"
    index, name, place = plan.vectors[chosen.source], plan.chosen[chosen.source], _place(plan, consumer)
    if chosen.role is not Role.ROW:
        load = f"{name} = gl.load({index.at(place)})"
        return [
            load,
            tma_load(box.descriptor, coordinates(box, {**place, chosen.role: name}), barrier, buffer),
        ]
    lines = list[str]()
    for first in range(0, plan.s.rows, PLACES_AT_A_TIME):
        rows = range(first, min(first + PLACES_AT_A_TIME, plan.s.rows))
        for row in rows:
            at = f"{place[Role.ROW]} + {row}" if row else place[Role.ROW]
            address = index.at({**place, Role.ROW: f"({at})"})
            lines.append(f"{name}_{row} = gl.load({address}, mask={at} < row_extent, other=-1)")
        for row in rows:
            own = coordinates(box, {**place, Role.ROW: f"{name}_{row}"})
            part = f"{buffer}.slice({row}, 1, dim={box.row})" if plan.s.rows > 1 else buffer
            lines.append(tma_load(box.descriptor, own, barrier, part))
    return lines


def _stationary_loads(plan: KernelPlan) -> list[str]:
    """The copies of the tiles that the loop holds, into buffers that the consumers have handed back."""
    full = STATIONARY.full("visit")
    found = [STATIONARY.wait_empty("visit")] if plan.s.persistent else []
    found.append(expect(full, "STATIONARY_BYTES"))
    for consumer in range(plan.s.consumers):
        place = plan.stationary_place(str(consumer))
        found += [
            _copy(plan, box, consumer, full, f"{box.name}_held.index({place})") for box in plan.stationary
        ]
    return found


def _fills(plan: KernelPlan, index: int) -> list[str]:
    """The copies that fill slots: a loading warp's rings in the order of the schedule, a slot's tensors one by one.

    All of a slot's copies arrive at one barrier, so their order within it is the emitter's. Tensor by tensor is
    faster than a schedule's order between them (`docs/calibration/h200_copy_order.json`).
    """
    found = pages.places(plan, plan.loaders[index])
    for ring in plan.loaders[index]:
        found += records.loader_stamp(plan, Event(ring.name, Point.REACHED), index)
        filled = expect(ring.full(), ring.nbytes) if not ring.plan.signals else arrive(ring.full())
        found += [ring.wait_empty(), *dynamic.told(plan, ring), filled]
        for member, _ in ring.members:
            found += _copies(plan, ring, member, index)
    return found


def _copies(plan: KernelPlan, ring: Ring, member: Member, index: int) -> list[str]:
    """The copies of one tensor into a slot by the loading warp `index`; with stamps if the kernel is traced."""
    found, slot = list[str](), ring.counter.slot(0)
    boxes = dict(ring.members)[member]
    for load in ring.loads_of(member):
        found += records.loader_stamp(plan, Event(str(load), Point.START), index)
        for consumer in range(member.copies) if load.instance is None else [load.instance]:
            place = text.of_slot(slot, member.copies, str(consumer))
            if Role.PAGE in member.view.roles:
                found += pages.copies(plan, boxes, _place(plan, consumer), ring.full(), place)
                continue
            if member.view.chosen is not None:
                for box in boxes:
                    found += _chosen_copies(
                        plan, box, consumer, ring.full(), f"{box.name}_ring.index({place})"
                    )
                continue
            found += [
                _copy(plan, box, consumer, ring.full(), f"{box.name}_ring.index({place})") for box in boxes
            ]
    return found
