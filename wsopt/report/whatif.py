"""Gains from more of each budget, as text and as plain data."""

from __future__ import annotations

from typing import Any

from wsopt.report.facts import structure_fields
from wsopt.report.layout import WIDTH, clean, difference, joined, microseconds, percent, table, wrapped
from wsopt.schedule.types import PartitionRole, Schedule
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.solve.sensitivity import Effect, Sensitivity

_NOTHING = 5e-5
"""A smaller share of the time than the table shows."""


def changes(base: Schedule, other: Schedule) -> tuple[str, ...]:
    """Differences of two schedules, each as `name before -> after`."""
    before, after = _fields(base), _fields(other)
    return tuple(f"{name} {before[name]} -> {after[name]}" for name in before if before[name] != after[name])


def _fields(schedule: Schedule) -> dict[str, str]:
    structure = {name: str(value) for name, value in structure_fields(schedule.structure).items()}
    consumer = next(p for p in schedule.partitions if p.role is PartitionRole.CONSUMER)
    return {
        **structure,
        "II": str(schedule.ii),
        **{name: f"{depth} slots" for name, depth in schedule.rings},
        "registers": str(consumer.registers),
        "staging": str(schedule.buffers.staging),
        "inputs": str(schedule.buffers.inputs),
        "store_warps": "yes" if schedule.buffers.store_warp else "no",
        "inputs_by_loader": "yes" if schedule.buffers.inputs_by_loader else "no",
        "loaders": str(sum(p.role is PartitionRole.LOADER for p in schedule.partitions)),
    }


def whatif_text(verified: VerifiedSchedule, found: Sensitivity) -> str:
    """The table of what each budget buys; ends in a newline."""
    base_us = found.base.schedule.prediction.microseconds
    title = f"{clean(verified.schedule.name)}: what more of each budget would buy on {clean(verified.machine.title)}"
    rows: list[tuple[str, ...]] = [("as it is", "", microseconds(base_us), "", "")]
    rows += [_row(found.base.schedule, effect, base_us) for effect in found.effects]
    header = ("budget", "then", "predicted us", "gain", "what changes")
    return (
        "\n".join(
            [
                title,
                "=" * len(title),
                "",
                *table(header, rows, "<<>><", WIDTH),
                "",
                *_note(verified, base_us),
                *(wrapped(f"Skipped for lack of time: {joined(found.skipped)}.") if found.skipped else []),
            ]
        ).rstrip()
        + "\n"
    )


def _row(base: Schedule, effect: Effect, base_us: float) -> tuple[str, ...]:
    then_us = effect.verified.schedule.prediction.microseconds
    gain = base_us - then_us
    nothing = abs(gain) < _NOTHING * base_us
    return (
        effect.variant.name,
        effect.variant.then,
        microseconds(then_us),
        "-" if nothing else percent(gain / base_us, 2),
        "; ".join(changes(base, effect.verified.schedule)) or ("nothing" if nothing else "the time alone"),
    )


def _note(verified: VerifiedSchedule, base_us: float) -> list[str]:
    """A note where the build at hand is not the model's first choice; else nothing."""
    own_us = verified.schedule.prediction.microseconds
    if abs(own_us - base_us) < _NOTHING * base_us:
        return []
    told = (
        f"Gains are against the model's first choice; this build is predicted {difference(abs(own_us - base_us))} us "
        f"{'slower' if own_us > base_us else 'faster'}."
    )
    return wrapped(told)


def whatif_data(verified: VerifiedSchedule, found: Sensitivity) -> dict[str, Any]:
    """The gains as plain data for JSON."""
    base = found.base.schedule
    return {
        "name": verified.schedule.name,
        "machine": verified.machine.name,
        "predicted_us": base.prediction.microseconds,
        "what_if": [
            {
                "budget": effect.variant.name,
                "now": effect.variant.now,
                "then": effect.variant.then,
                "predicted_us": effect.verified.schedule.prediction.microseconds,
                "gain": 1.0 - effect.verified.schedule.prediction.microseconds / base.prediction.microseconds,
                "structure": structure_fields(effect.verified.schedule.structure),
                "changes": list(changes(base, effect.verified.schedule)),
            }
            for effect in found.effects
        ],
        "skipped": list(found.skipped),
    }
