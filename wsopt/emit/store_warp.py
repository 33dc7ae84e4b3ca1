"""A consumer's store warp: a warp that starts the stores that the consumer has staged, and says when buffers are
free.

To start a store is to wait for those of the SM before it; a consumer that leaves this to another warp goes on with
its arithmetic. Every store of a tile has two barriers: `staged`, at which the consumer arrives, and `freed`, at which
the store warp does if somebody waits for it. A tile completes one phase of each.
"""

from __future__ import annotations

from wsopt.emit.consumer import place_lines
from wsopt.emit.instructions import arrive, store_wait, tma_store, wait
from wsopt.emit.plan import KernelPlan
from wsopt.emit.tensors import coordinates
from wsopt.perf.stores import Store


def parameters(plan: KernelPlan) -> list[str]:
    """Parameters of the store warp: staging buffers, barriers, descriptors."""
    staged = plan.staged
    buffers = [f"{box.name}_input" for box in staged.lent.values()]
    buffers += [pool.name for pool in staged.pools.values()]
    stores = [box.descriptor for box in plan.outputs.values()]
    counts = [name for name in plan.counts if name != "k_iterations"]
    return [*buffers, "staged", "freed", *stores, *counts, "index: gl.constexpr"]


def body(plan: KernelPlan) -> str:
    """All that a store warp does for a tile."""
    stores, found = plan.staged.plan, list[str]()
    for number, store in enumerate(stores.stores):
        awaited = stores.awaited(number)
        if awaited and awaited[0] >= 0:
            found += _free(*awaited)
        found += [wait(f"staged.index({number})", "visit & 1"), _start(plan, store)]
    for number, later in stores.left:
        found += _free(number, later)
    return "\n".join([*place_lines(plan), *found, "visit += 1"])


def leaves_stores(plan: KernelPlan) -> bool:
    """Whether the last store of a tile may still read its buffer when the store warp is done with the tile."""
    left = plan.staged.plan.left
    return not left or left[-1][1] > 0


def _start(plan: KernelPlan, store: Store) -> str:
    """The copy of a store's buffer to its place in the output."""
    box = plan.outputs[store.output]
    place = coordinates(box, plan.place("row", plan.column(store.subtile)))
    return tma_store(box.descriptor, place, plan.staged.place(store.buffer))


def _free(number: int, pending: int) -> list[str]:
    """A store has read its buffer: at most `pending` have begun after it."""
    return [store_wait(pending), arrive(f"freed.index({number})")]
