"""Full tiles that an epilogue reads: buffers and barriers of each consumer, copies that start before its loop."""

from __future__ import annotations

from wsopt.emit import text
from wsopt.emit.instructions import Expect, Instruction, StoreWait, WaitPhase
from wsopt.emit.plan import KernelPlan


def input_names(plan: KernelPlan) -> list[str]:
    """Names of a consumer's own buffers and barriers."""
    return [f"{box.name}_{what}" for box in plan.inputs().values() for what in ("input", "full")]


def input_descriptors(plan: KernelPlan) -> list[str]:
    """The descriptors that a consumer starts copies with."""
    return [box.descriptor for box in plan.inputs().values()]


def refilled_descriptors(plan: KernelPlan) -> list[str]:
    """The descriptors that the epilogue itself starts copies with: where pieces take turns with buffers."""
    return input_descriptors(plan) if plan.verified.schedule.buffers.inputs < plan.s.pieces else []


def input_loads(plan: KernelPlan, passing: str = "") -> str:
    """The copies that fill the buffers, once stores have read what was staged in them for the tile before; empty
    where the epilogue reads no full tile. `passing` are lines of the loop before each piece's.
    """
    if not plan.inputs():
        return ""
    wait = text.write(refill_wait(plan))
    lines = [wait] if wait and not passing else []
    lines.append("for piece in gl.static_range(INPUT_BUFFERS):")
    if passing:
        lines.append(text.block(passing))
        lines += [text.block(f"if piece == 0:\n{text.block(wait)}")] if wait else []
    for box, load in plan.input_loads():
        lines.append(text.block(text.write([Expect(f"{box.name}_full.index(piece)", str(box.nbytes)), load])))
    return "\n".join(lines)


def refill_wait(plan: KernelPlan) -> list[Instruction]:
    """The wait for the stores of the tile before that still read the buffers of inputs, if there are any."""
    staged = plan.staged()
    if staged.plan.refill is None:
        return []
    if not staged.barriers:
        return [StoreWait(str(staged.plan.refill))]
    last = len(staged.plan.stores) - 1 - staged.plan.refill
    return [WaitPhase(f"freed.index({last})", "(visit & 1) ^ 1")]


def input_allocations(plan: KernelPlan, consumer: int) -> list[str]:
    """The buffers and barriers of one consumer."""
    lines = []
    for box in plan.inputs().values():
        lines.append(text.allocate(f"{box.name}_input_{consumer}", box.gluon, "INPUT_BUFFERS", box))
        lines.append(text.barrier(f"{box.name}_full_{consumer}", "INPUT_BUFFERS"))
    return lines


def input_barriers(plan: KernelPlan) -> list[tuple[str, list[tuple[str, int]]]]:
    """How many barriers of which names, with the arrivals that complete a phase."""
    found = [
        (f"{box.name}_full_{consumer}", 1)
        for consumer in range(plan.s.consumers)
        for box in plan.inputs().values()
    ]
    return [("INPUT_BUFFERS", found)] if found else []


def input_constants(plan: KernelPlan) -> list[tuple[str, str, str]]:
    """The constants that copies and waits are written with."""
    if not plan.inputs():
        return []
    return [
        ("PIECES", str(plan.s.pieces), ""),
        ("INPUT_BUFFERS", str(plan.verified.schedule.buffers.inputs), "pieces of an input at a time"),
        *_refill_constant(plan),
    ]


def _refill_constant(plan: KernelPlan) -> list[tuple[str, str, str]]:
    when = plan.refill
    what = "passes under which the last tile's stores are read, before inputs are copied to their buffers"
    found = [("REFILL_PASSES", str(when.first), what)] if when.first or when.apart else []
    if when.apart:
        found.append(("REFILL_APART", str(when.apart), "passes from the copy of a piece to that of the next"))
    return found
