"""Blocks that begin one after the other: every other one reads later, so that passes over rows come in turns.

Blocks that begin together read together and store together: device memory is too slow for all of them in one pass
over their rows, and waits for them in the other one.
"""

from __future__ import annotations

from wsopt.emit.plan import KernelPlan

_LATER = "Every other block reads later: so it reads rows while its neighbours store theirs, and memory serves all."


def constants(plan: KernelPlan) -> list[tuple[str, int | None, str]]:
    """The time by which every other block begins later, in nanoseconds."""
    verified = plan.verified
    cycles = verified.program.late_iterations * verified.schedule.ii
    late = round(verified.machine.seconds(cycles) * 1e9)
    return [("LATER_NS", late or None, "by which every other block begins later, in nanoseconds")]


def begin(plan: KernelPlan) -> list[str]:
    """The lines of a loading warp in front of its first copy that may wait for the kernel before."""
    return [f"# {_LATER}", "begin_late(LATER_NS)"] if plan.s.staggered else []
