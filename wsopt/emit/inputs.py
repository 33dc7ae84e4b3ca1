"""Full tiles that an epilogue reads: the copies that a consumer starts, before its loop or some passes into it."""

from __future__ import annotations

from wsopt.emit import text
from wsopt.emit.instructions import expect, store_wait, tma_load, wait, when, write
from wsopt.emit.plan import KernelPlan
from wsopt.emit.tensors import coordinates


def input_loads(plan: KernelPlan, passing: str = "") -> str:
    """The copies that fill the buffers, once stores have read what was staged in them for the tile before; empty
    where the epilogue reads no full tile. `passing` are lines of the loop before each subtile's.
    """
    if not plan.inputs:
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
    return [wait(f"freed.index({len(stores.stores) - 1 - stores.refill})", "(visit & 1) ^ 1")]
