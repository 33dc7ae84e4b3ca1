"""A consumer's store warp: a warp that starts the stores that the consumer has staged, and says when buffers are
free.

To start a store is to wait for those of the SM before it; a consumer that leaves this to another warp goes on with
its arithmetic. Every store of a tile has two barriers: `staged`, at which the consumer arrives, and `freed`, at which
the store warp does if somebody waits for it. A tile completes one phase of each.
"""

from __future__ import annotations

from wsopt.emit import text
from wsopt.emit.instructions import Instruction, Signal, StoreWait, TmaStore, WaitPhase
from wsopt.emit.plan import KernelPlan
from wsopt.emit.product_body import place_lines
from wsopt.emit.tensors import coordinates
from wsopt.perf.stores import Store


def parameters(plan: KernelPlan) -> list[str]:
    """What the store warp is given: the buffers that stores are staged in, the barriers, the descriptors."""
    staged = plan.staged()
    lent = {store.buffer.source for store in staged.plan.stores}
    buffers = [f"{box.name}_input" for source, box in plan.inputs().items() if source in lent]
    buffers += [pool.name for pool in plan.pools()]
    stores = [box.descriptor for box in plan.outputs().values()]
    counts = [name for name in plan.counts() if name != "k_iterations"]
    return [*buffers, *staged.barriers, *stores, *counts, "index: gl.constexpr"]


def body(plan: KernelPlan) -> str:
    """All that a store warp does for a tile."""
    stores, found = plan.staged().plan, list[Instruction]()
    for number, store in enumerate(stores.stores):
        awaited = stores.awaited(number)
        if awaited and awaited[0] >= 0:
            found += _free(*awaited)
        found += [WaitPhase(f"staged.index({number})", "visit & 1"), _start(plan, store)]
    for number, later in stores.left:
        found += _free(number, later)
    return "\n".join([*place_lines(plan), text.write(found), "visit += 1"])


def leaves_stores(plan: KernelPlan) -> bool:
    """Whether the last store of a tile may still read its buffer when the store warp is done with the tile."""
    left = plan.staged().plan.left
    return not left or left[-1][1] > 0


def _start(plan: KernelPlan, store: Store) -> TmaStore:
    """The copy of a store's buffer to its place in the output."""
    box = plan.outputs()[store.output]
    column = f"column + {store.piece} * PIECE_COLUMNS" if store.piece else "column"
    place = coordinates(box.view, plan.place("row", column))
    return TmaStore(box.descriptor, place, plan.staged().place(store.buffer))


def _free(number: int, pending: int) -> list[Instruction]:
    """A store has read its buffer: at most `pending` have begun after it."""
    return [StoreWait(str(pending)), Signal(f"freed.index({number})")]


def allocations(plan: KernelPlan, consumer: int) -> list[str]:
    """The barriers of one consumer's stores."""
    return [text.barrier(f"{name}_{consumer}", "STORES") for name in plan.staged().barriers]


def barriers(plan: KernelPlan) -> list[tuple[str, list[tuple[str, int]]]]:
    """How many barriers of which names, with the arrivals that complete a phase."""
    consumers, barriers = range(plan.s.consumers), plan.staged().barriers
    found = [(f"{name}_{consumer}", 1) for consumer in consumers for name in barriers]
    return [("STORES", found)] if found else []


def constants(plan: KernelPlan) -> list[tuple[str, str, str]]:
    """The constants that the barriers are written with."""
    staged = plan.staged()
    return [("STORES", str(len(staged.plan.stores)), "of one consumer's tile")] if staged.barriers else []
