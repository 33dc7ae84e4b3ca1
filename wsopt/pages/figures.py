"""Figures of a schedule for its page, as plain data: what binds, rings, memory, registers over the interval, time."""

from __future__ import annotations

from typing import Any

from wsopt.checker import life
from wsopt.perf.paths import memory_us
from wsopt.report.facts import (
    ii_limits,
    kernel_limits,
    register_facts,
    register_file,
    ring_facts,
    shared_memory_parts,
    time_parts,
)
from wsopt.report.layout import percent
from wsopt.report.outcome import binds
from wsopt.report.walls import wall_sentences
from wsopt.schedule.certificate import Certificate
from wsopt.schedule.memory import shared_capacity
from wsopt.schedule.types import PartitionRole
from wsopt.schedule.verified import VerifiedSchedule


def what_binds(verified: VerifiedSchedule) -> dict[str, Any]:
    """The wall that the kernel runs against, in a sentence, with its evidence: limits of II and of the kernel."""
    schedule, limits = verified.schedule, ii_limits(verified)
    p, kernel = schedule.prediction, kernel_limits(verified)
    first, second = kernel[0], kernel[1]
    sentence = (
        f"Bound by {p.bound_by}: {first.name} {'take' if first.name.endswith('s') else 'takes'} "
        f"{first.amount:,.2f} us of the predicted {p.microseconds:,.2f} us, {second.name} {second.amount:,.2f} us."
    )
    return {
        "sentence": sentence,
        "wall": " ".join(wall_sentences(verified)),
        "loop": f"Its loop: {binds(limits, schedule.ii)}",
        "reached": f"{percent(p.roofline_us / p.microseconds)} of the roofline's {p.roofline_us:,.2f} us is reached.",
        "limits": [
            {"name": one.name, "cycles": one.amount, "share": one.amount / schedule.ii} for one in limits
        ],
        "paths": [{"name": one.name, "us": one.amount} for one in kernel],
    }


def rings(verified: VerifiedSchedule) -> list[dict[str, Any]]:
    """Every ring: slots, bytes, and the cycles that a slot lives and that its depth covers."""
    return [
        {
            "name": one.name,
            "slots": one.depth,
            "slot_bytes": one.slot_bytes,
            "bytes": one.depth * one.slot_bytes,
            "first": str(one.first),
            "last": str(one.last),
            "lifetime": one.lifetime,
            "covers": one.covers,
            "slack": one.slack,
        }
        for one in ring_facts(verified)
    ]


def shared_memory(verified: VerifiedSchedule) -> dict[str, Any]:
    """The parts of shared memory in bytes, what is free, and what a block can have."""
    limit = shared_capacity(verified.program.structure, verified.machine)
    parts = [{"name": part.name, "bytes": int(part.amount)} for part in shared_memory_parts(verified)]
    free = limit - verified.schedule.shared_memory_bytes
    return {"limit": limit, "taken": verified.schedule.shared_memory_bytes, "free": free, "parts": parts}


def registers(verified: VerifiedSchedule, margin: int) -> dict[str, Any]:
    """Registers a thread of every role, and of consumers how many are live at each moment of the interval."""
    facts = register_facts(verified, margin)
    roles = [
        {
            "name": one.partition.name,
            "warps": one.partition.warps,
            "has": one.partition.registers,
            "parts": [
                {"name": part.name.replace("_", "-"), "registers": int(part.amount)} for part in one.parts
            ],
            "steps": _steps(verified, one.partition.name, margin),
        }
        for one in facts
    ]
    return {
        "limit": verified.machine.setmaxnreg_max_registers,
        "taken": register_file(verified),
        "file": verified.machine.registers_per_sm,
        "roles": roles,
    }


def _steps(verified: VerifiedSchedule, name: str, margin: int) -> list[tuple[int, int]]:
    """From which cycle of the interval on how many registers a thread are live: sums, the loop's tiles, the margin.

    As the checker counts them: from the start of the operation that makes a tile to its last reader's.
    """
    schedule, program = verified.schedule, verified.program
    own = [tile for tile in program.live if f"{PartitionRole.CONSUMER}{tile.consumer}" == name]
    if not own:
        return []
    lives = [(*life(schedule, program, tile), tile.registers) for tile in own]
    moments = sorted({0, *(time % schedule.ii for begin, end, _ in lives for time in (begin, end))})
    base = program.accumulator_registers + margin
    return [
        (
            moment,
            base
            + sum(
                ((moment - begin) // schedule.ii - (moment - end) // schedule.ii) * count
                for begin, end, count in lives
            ),
        )
        for moment in moments
    ]


def time(verified: VerifiedSchedule) -> dict[str, Any]:
    """The predicted time by its parts, in cycles of the busiest SM, and the floors and bounds in microseconds."""
    p, machine = verified.schedule.prediction, verified.machine
    parts = [
        {"name": part.name, "cycles": part.amount, "us": machine.seconds(part.amount) * 1e6}
        for part in time_parts(verified)
    ]
    return {
        "parts": parts,
        "cycles": p.cycles,
        "sm_us": p.sm_us,
        "launch_us": machine.kernel_launch_us,
        "dram_us": p.dram_us,
        "l2_us": p.l2_us,
        "us": p.microseconds,
        "roofline_us": p.roofline_us,
        "waves": p.waves,
    }


def roofline(
    verified: VerifiedSchedule, certificate: Certificate, measured_us: float | None = None
) -> dict[str, Any]:
    """The roof of the card for this kernel's type and bytes, and where kernel, bound, runner-up and measurement lie.

    `intensity` is work a byte of device memory, None where there is no product; rates are of FLOP and of bytes.
    """
    whole, machine = verified.program.whole, verified.machine
    peak = machine.sustained_tflops(whole.dtype.value) if whole.products else None
    bytes_us = memory_us(verified.program, whole.needed_bytes, machine)
    points = [("predicted", verified.schedule.prediction.microseconds), ("bound", certificate.bound_us)]
    points += [("runner-up", one.microseconds) for one in certificate.runners_up[:1]]
    points += [("measured", measured_us)] if measured_us is not None else []
    return {
        "flops": whole.needed_flops,
        "bytes": whole.needed_bytes,
        "intensity": whole.needed_flops / whole.needed_bytes if whole.products else None,
        "tflops": peak,
        "gbs": whole.needed_bytes / bytes_us / 1e3,
        "roofline_us": verified.schedule.prediction.roofline_us,
        "points": [{"name": name, "us": us} for name, us in points],
    }
