"""The loading warp: the copies that fill rings, and the tiles that a block holds through its loop."""

from __future__ import annotations

from wsopt.emit import records, text
from wsopt.emit.functions import Function, function, seen
from wsopt.emit.instructions import expect, tma_load, write
from wsopt.emit.plan import STATIONARY, KernelPlan
from wsopt.emit.ranges import tile_range
from wsopt.emit.slots import first_slots, first_step, next_slots, next_step, windows
from wsopt.emit.stamps import Event, Point
from wsopt.emit.tensors import Box, coordinates
from wsopt.schedule.types import PartitionRole

_LET_NEXT_IN = """\
# The next kernel may set up: its `gdc_wait` ends with this one. Were it let in at the start, its blocks would take
# SMs in the order in which they fall free, and neighbours would no longer share what they copy.
gdc_launch_dependents()"""


def loader(plan: KernelPlan) -> Function:
    """The function of the loading warp, which waits for the end of the kernel before."""
    descriptors = [box.descriptor for box in plan.moved]
    sizes = plan.sizes if plan.ranged else plan.counts
    parameters = [*descriptors, *seen(plan, PartitionRole.LOADER, own=False), *plan.order_table, *sizes]
    traced = plan.trace is not None
    counters = windows(ring.counter for ring in records.loaded_rings(plan))
    fills = write([*_fills(plan), *next_step(traced), *next_slots(counters)])
    if not plan.loops_over_tiles:
        k_blocks = "begin, end" if plan.ranged else "k_iterations"
        fills = f"for k_block in range({k_blocks}):\n" + text.block(fills)
    first = [tile_range(), *_stationary_loads(plan)] if plan.ranged else []
    begin, end = (["visit = 0"], ["visit += 1"]) if plan.stationary else ([], [])
    begin = [*first_step(traced), *first_slots(one.counter for one in counters), *begin, "gdc_wait()"]
    body = write([*first, fills, *end])
    return function(plan, PartitionRole.LOADER, parameters, begin, body, _LET_NEXT_IN)


def _copy(plan: KernelPlan, box: Box, consumer: int, barrier: str, buffer: str) -> str:
    row = "row_tile * TILE_ROWS" + (f" + {consumer} * CONSUMER_ROWS" if consumer else "")
    place = plan.place(row, "column_tile * TILE_COLUMNS" if plan.columns else "0")
    return tma_load(box.descriptor, coordinates(box, place), barrier, buffer)


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


def _fills(plan: KernelPlan) -> list[str]:
    """The copies that fill each ring's slots: rings in the order of the schedule, a slot's tensors one by one.

    All of a slot's copies arrive at one barrier, so their order within it is the emitter's. Tensor by tensor is
    faster than a schedule's order between them (`docs/calibration/h200_copy_order.json`).
    """
    found: list[str] = []
    for ring in records.loaded_rings(plan):
        full, slot = ring.full(), ring.counter.slot(0)
        found += records.loader_stamp(plan, Event(ring.name, Point.REACHED))
        found += [ring.wait_empty(), expect(full, ring.nbytes)]
        for member, boxes in ring.members:
            for load in ring.loads_of(member):
                found += records.loader_stamp(plan, Event(str(load), Point.START))
                for consumer in range(member.copies) if load.instance is None else [load.instance]:
                    place = text.of_slot(slot, member.copies, str(consumer))
                    found += [
                        _copy(plan, box, consumer, full, f"{box.name}_ring.index({place})") for box in boxes
                    ]
    return found
