"""Full tiles that an epilogue reads: where their copies into shared memory stand, and what they wait for.

A consumer starts them before its loop or some passes into it, or the loading warp does near the end of a tile's
K-blocks.
"""

from __future__ import annotations

from wsopt.emit import text
from wsopt.emit.channels import instance
from wsopt.emit.instructions import expect, store_wait, tma_load, wait, when, write
from wsopt.emit.plan import KernelPlan
from wsopt.emit.tensors import coordinates


def input_loads(plan: KernelPlan, passing: str = "") -> str:
    """The copies that fill the buffers, once stores have read what was staged in them for the tile before; empty
    where the epilogue reads no full tile. `passing` are lines of the loop before each subtile's.
    """
    if not plan.inputs or plan.inputs_by_loader:
        return ""
    waits = write(_refill_wait(plan))
    lines = [waits] if waits and not passing else []
    lines.append("for subtile in gl.static_range(INPUT_BUFFERS):")
    if passing:
        lines.append(text.block(passing))
        lines += [text.block(when("subtile == 0", waits))] if waits else []
    copies, place = list[str](), plan.place("row", plan.column("subtile"))
    for box in plan.inputs.values():
        barrier, buffer = f"{box.name}_full.index(subtile)", f"{box.name}_input.index(subtile)"
        load = tma_load(box.descriptor, coordinates(box, place), barrier, buffer)
        copies += [expect(barrier, box.nbytes), load]
    return "\n".join([*lines, text.block(write(copies))])


def _refill_wait(plan: KernelPlan) -> list[str]:
    """The wait for the stores of the tile before that still read the buffers of inputs, if there are any."""
    stores = plan.staged.plan
    if stores.refill is None:
        return []
    if not plan.stores_apart:
        return [store_wait(stores.refill)]
    return [wait(_freed("freed", plan), "(visit & 1) ^ 1")]


def _freed(name: str, plan: KernelPlan) -> str:
    """The barrier that says that the stores have read the buffers of inputs."""
    stores = plan.staged.plan
    assert stores.refill is not None, "stores read the buffers of inputs"
    return f"{name}.index({len(stores.stores) - 1 - stores.refill})"


# --- by the loading warp


def brought_names(plan: KernelPlan) -> list[str]:
    """Names of what the loading warp is given of every consumer to fill its buffers of inputs."""
    if not plan.inputs_by_loader:
        return []
    names = [f"{box.name}_{what}" for box in plan.inputs.values() for what in ("input", "full")]
    names += [f"{box.name}_empty" for box in plan.handed_back]
    names += ["freed"] if _waits_for_stores(plan) else []
    return [instance(name, consumer) for consumer in range(plan.s.consumers) for name in names]


def brought(plan: KernelPlan) -> str:
    """The copies of a tile's inputs by the loading warp, into the buffers of the consumers that the tile is of.

    Consumers in ping-pong have tiles in turns, and every tile is one more visit of its consumer alone.
    """
    consumers = range(plan.s.consumers)
    if not plan.ping_pong:
        return "\n".join(_brought_to(plan, consumer, consumer, "visit") for consumer in consumers)
    visit = "(visit // CONSUMERS)"
    each = (
        (f"visit % CONSUMERS == {consumer}", _brought_to(plan, consumer, 0, visit)) for consumer in consumers
    )
    return "\n".join(when(mine, lines) for mine, lines in each)


def _waits_for_stores(plan: KernelPlan) -> bool:
    """Whether stores of the tile before may still read buffers of inputs."""
    return plan.s.persistent and plan.staged.plan.refill is not None


def _brought_to(plan: KernelPlan, consumer: int, rows: int, visit: str) -> str:
    """The copies to one consumer, which has those `rows` of the tile: of each subtile when its buffers are free."""
    empty, lines = f"({visit} & 1) ^ 1", list[str]()
    if _waits_for_stores(plan):
        lines.append(wait(_freed(instance("freed", consumer), plan), empty))
    row = plan.tile_row() + (f" + {rows} * CONSUMER_ROWS" if rows else "")
    place = plan.place(row, "column_tile * TILE_COLUMNS + subtile * SUBTILE_COLUMNS")
    copies = list[str]()
    for box in plan.inputs.values():
        full, buffer, back = (
            f"{instance(f'{box.name}_{what}', consumer)}.index(subtile)"
            for what in ("full", "input", "empty")
        )
        copies += [wait(back, empty)] if box in plan.handed_back else []
        copies += [expect(full, box.nbytes), tma_load(box.descriptor, coordinates(box, place), full, buffer)]
    return "\n".join([*lines, "for subtile in gl.static_range(INPUT_BUFFERS):", text.block(write(copies))])
