"""Blocks that begin one after the other share device memory better, and the last of them ends later."""

from __future__ import annotations

import pytest
from tile_graphs import region_of

from wsopt.lowering.structures import structures
from wsopt.machine import Machine
from wsopt.perf.price import lower
from wsopt.program.changed import changed
from wsopt.program.types import Structure
from wsopt.solve.bound import lower_bound_us


def both(rows: int, machine: Machine, *, dynamic: bool) -> tuple[float, float]:
    """Microseconds of a softmax of long rows by blocks that begin together, and by staggered ones."""
    region = region_of(
        lambda g: g.cast(g.softmax(g.input("x", (rows, 128256), "bf16")), dtype="bf16", name="y")
    )

    def wanted(s: Structure) -> bool:
        return bool(s.staggered and (s.columns, s.consumer_warps, s.dynamic) == (8192, 8, dynamic))

    staggered = max((s for s in structures(region, machine) if wanted(s)), key=lambda s: s.retained)
    together, later = (
        lower_bound_us(lower(region, s, machine), machine)
        for s in (changed(staggered, staggered=False), staggered)
    )
    return together, later


def test_many_rows_are_faster_so(h200: Machine) -> None:
    together, later = both(4096, h200, dynamic=True)
    assert 0.97 < later / together < 0.99


@pytest.mark.parametrize("dynamic", [True, False])
def test_few_rows_wait_for_nothing(h200: Machine, dynamic: bool) -> None:
    together, later = both(2 * h200.sm_count, h200, dynamic=dynamic)
    assert later > 1.01 * together
