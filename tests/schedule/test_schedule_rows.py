"""Schedules of kernels that stream rows: one field changed, and the checker says which rule that breaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from schedule_examples import MARGIN, Example

from wsopt.checker import faults
from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder
from wsopt.machine import Machine, load_machine
from wsopt.perf.contention import busiest
from wsopt.perf.price import lower
from wsopt.program.program import OpKind, Unit
from wsopt.program.types import Sharing, Structure
from wsopt.schedule.types import EpilogueBuffers, Schedule
from wsopt.solve.optimum import solve


def example(machine: Machine) -> Example:
    g = GraphBuilder("small")
    g.output(g.cast(g.softmax(g.input("x", (65536, 2048), "bf16"), axis=-1), dtype="bf16", name="y"))
    s = Structure(4, 2048, 1, 2, 4, Sharing.COOPERATIVE, True, False, 1, 1)
    program = lower(find_region(g.build()), s, machine)
    solved = solve(program, machine, MARGIN)
    assert solved.schedule is not None
    return Example(solved.schedule, program, machine)


@pytest.fixture(scope="module")
def rows() -> Example:
    return example(load_machine("h200"))


def test_the_solvers_schedule_passes(rows: Example) -> None:
    assert rows.faults() == []


def later(name: str) -> Callable[[Example], Schedule]:
    def change(e: Example) -> Schedule:
        return e.moved(name, stage=e.schedule.place(name).stage + 1)

    return change


def one_slot_less(e: Example) -> Schedule:
    return replace(e.schedule, rings=(("ring", 0),))


def unread(e: Example) -> Schedule:
    first = e.schedule.place("load:x@0")
    return e.moved("load:x@1", stage=first.stage, cycle=first.cycle)


BROKEN: dict[str, tuple[Callable[[Example], Schedule], str]] = {
    "tile left open": (
        later("store@0"),
        "emitter.v1: consumer0 begins a tile of rows before it has ended the one",
    ),
    "not one program": (later("store@1"), "emitter.v1: operations of consumer 1 come"),
    "before the copy": (later("load:x@1"), "read@1 starts at"),
    "no slot": (one_slot_less, "ring has 0 slots"),
    "memory twice": (unread, "load:x@0 at"),
    "other staging": (
        lambda e: replace(e.schedule, buffers=EpilogueBuffers(3, 0)),
        "EpilogueBuffers(staging=3, inputs=0, store_warp=False, sums=1, inputs_by_loader=False) for 1 stores",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_schedule_is_refused(name: str, rows: Example) -> None:
    change, message = BROKEN[name]
    found = rows.faults(change(rows))
    assert any(fault.startswith(message) for fault in found), found


def test_a_buffer_is_not_staged_in_while_it_is_read(rows: Example) -> None:
    """One buffer an output is written again an interval later, two buffers after two."""
    slow = tuple(
        replace(op, latency=rows.schedule.buffers.staging * rows.schedule.ii + 1)
        if op.kind is OpKind.TMA_STORE
        else op
        for op in rows.program.ops
    )
    program = replace(rows.program, ops=slow)
    found = faults(rows.schedule, program, rows.machine, MARGIN)
    assert any("holds a staging buffer for" in fault for fault in found)
    solved = solve(program, rows.machine, MARGIN)
    assert solved.schedule is not None
    held = next(op.latency for op in slow if op.kind is OpKind.TMA_STORE)
    assert solved.schedule.buffers.staging * solved.schedule.ii >= held


def test_the_time_is_that_of_the_bytes_with_a_beginning_and_an_end(rows: Example) -> None:
    p, machine = rows.schedule.prediction, rows.machine
    work = sum(op.issue for op in rows.program.loop if op.consumer == 0)
    assert p.fill == machine.latency.tma_load_dram + work
    memory = rows.program.tiles / machine.sm_count * rows.schedule.ii
    own = p.waves * busiest(rows.program, machine, Unit.MEMORY)
    assert own < 0.7 * memory
    assert p.main == pytest.approx((memory**10 + own**10) ** 0.1)
    assert machine.copy_knee == 10
    assert p.cycles == pytest.approx(p.start + p.fill + p.main + p.tail)
    assert (p.epilogue, p.power) == (0, 0)


def test_an_sm_that_is_never_idle_is_what_bounds(rows: Example) -> None:
    """Ten times the memory: then the consumers' work counts."""
    fast = replace(
        rows.machine,
        dram_sustained_bandwidth=10 * rows.machine.dram_sustained_bandwidth,
        dram_read_bandwidth=10 * rows.machine.dram_read_bandwidth,
    )
    found = example(fast)
    p = found.schedule.prediction
    assert p.main == pytest.approx(p.waves * busiest(found.program, fast, Unit.MEMORY), rel=0.1)
    assert p.main < rows.schedule.prediction.main
