"""Which plan a verified schedule's kernel is written from: by what its loop does."""

from __future__ import annotations

from wsopt.emit.k_block_plan import KBlockPlan
from wsopt.emit.plan import KernelPlan
from wsopt.emit.rows_plan import RowsPlan
from wsopt.schedule.verified import VerifiedSchedule


def kernel_plan(verified: VerifiedSchedule) -> KernelPlan:
    """The plan of the kernel: rows that stream, a loop that computes values, or a loop of products."""
    region = verified.program.region
    if region.streams_rows:
        return RowsPlan(verified)
    return KBlockPlan(verified) if region.body else KernelPlan(verified)
