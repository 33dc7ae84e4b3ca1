"""The part of the `--json` object that one kernel's schedule gives."""

from __future__ import annotations

from typing import Any

from wsopt.report.facts import structure_fields
from wsopt.schedule.certificate import Certificate
from wsopt.schedule.verified import VerifiedSchedule


def kernel_summary(verified: VerifiedSchedule, certificate: Certificate) -> dict[str, Any]:
    """One entry of `kernels`: plain data for JSON. What ptxas says is added by who has asked it.

    `registers` are a thread's, `rings` gives each ring's depth in slots. The certificate is of the whole
    search, not of one kernel, so none of its counts is repeated here.
    """
    schedule = verified.schedule
    return {
        "name": schedule.name,
        "structure": structure_fields(schedule.structure),
        "ii_cycles": schedule.ii,
        "partitions": [
            {"role": p.role.value, "warps": p.warps, "registers": p.registers} for p in schedule.partitions
        ],
        "rings": dict(schedule.rings),
        "shared_memory_bytes": schedule.shared_memory_bytes,
    }
