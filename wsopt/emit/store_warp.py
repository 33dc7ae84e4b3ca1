"""A consumer's store warp: it starts the stores that the consumer has staged, and says when buffers are free.

To start a store is to wait for those of the SM before it; a consumer that leaves this to another warp goes on with
its arithmetic. Every store of a tile has two barriers: `staged`, at which the consumer arrives, and `freed`, at which
the store warp does if somebody waits for it. A tile completes one phase of each.
"""

from __future__ import annotations

from wsopt.emit import records
from wsopt.emit.functions import Function, function
from wsopt.emit.instructions import arrive, store_wait, tma_store, wait
from wsopt.emit.plan import KernelPlan
from wsopt.emit.segments import stored_row
from wsopt.emit.stamps import Point
from wsopt.emit.tensors import coordinates
from wsopt.schedule.types import PartitionRole


def store_warp(plan: KernelPlan) -> Function:
    """The function of a store warp."""
    staged, stores, lines = plan.staged, plan.staged.plan, [*plan.first_places(), *stored_row(plan)]
    for number, store in enumerate(stores.stores):
        awaited = stores.awaited(number)
        if awaited and awaited[0] >= 0:
            lines += _free(*awaited)
        box = plan.outputs[store.output]
        place = coordinates(
            box, plan.place("stored_row" if plan.ragged else "row", plan.column(store.subtile))
        )
        start = tma_store(box.descriptor, place, staged.place(store.buffer))
        lines += records.store_stamp(plan, number, Point.REACHED)
        lines.append(wait(f"staged.index({number})", "visit & 1"))
        lines += [*records.store_stamp(plan, number, Point.START), start]
    for number, later in stores.left:
        lines += _free(number, later)
    parameters = [
        *(f"{box.name}_input" for box in staged.lent.values()),
        *(pool.name for pool in staged.pools.values()),
        *("staged", "freed"),
        *(box.descriptor for box in plan.outputs.values()),
        *(name for name in plan.counts if name not in ("k_iterations", *plan.segment_arguments)),
        *plan.segment_arguments,
        "index: gl.constexpr",
    ]
    what = "# Starts what its consumer has staged, and tells it of the buffers that have been read."
    # The last store of a tile may still read its buffer when the warp is done with the tile.
    end = "tma.store_wait(0)" if not stores.left or stores.left[-1][1] > 0 else ""
    body = "\n".join([*lines, "visit += 1"])
    begin = ["visit = 0", *(["gdc_wait()"] if plan.offsets else []), what]
    return function(plan, PartitionRole.STORE_WARP, parameters, begin, body, end)


def _free(number: int, pending: int) -> list[str]:
    """A store has read its buffer: at most `pending` have begun after it."""
    return [store_wait(pending), arrive(f"freed.index({number})")]
