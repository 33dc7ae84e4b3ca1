"""A new unit is one entry: operations hold it in the model, in the checker and in reports; its kernel runs."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from emit_builds import MARGIN, Emitted, build, graph_of, h200, plain, small_case, structure

from wsopt import driver
from wsopt.cache import BuildCache
from wsopt.checker import faults
from wsopt.codegen.aot import compile_kernel
from wsopt.machine.types import Machine
from wsopt.perf.price import lower
from wsopt.program.ids import OpKind
from wsopt.program.program import TileOp, TileProgram
from wsopt.program.units import UNITS, UnitEntry
from wsopt.report.facts import ii_limits


def port_cycles(op: TileOp, program: TileProgram, machine: Machine) -> int:
    """Cycles in which a product's operands are read, or a copy's tile is written."""
    moved = op.inputs if op.kind is OpKind.MMA else (op.output,) if op.kind is OpKind.TMA_LOAD else ()
    return sum(program.value(tile).nbytes for tile in moved) // machine.shared_memory_bytes_per_cycle


SHARED_PORT = UnitEntry(name="shared_port", words="port of shared memory", cycles=port_cycles)

ASKED = 2 * 128 + 3 * 64
"""Two products read 16 KiB each, three copies write 8 KiB each, at 128 bytes a cycle."""


def made() -> Emitted:
    return build(graph_of(plain), structure(64, 64, consumers=2))


@pytest.fixture(scope="module")
def with_port() -> Emitted:
    with UNITS.added(SHARED_PORT):
        return made()


def test_the_solver_keeps_what_holds_it_apart(with_port: Emitted) -> None:
    schedule, program = with_port.verified.schedule, with_port.verified.program
    assert made().verified.schedule.ii < ASKED <= schedule.ii
    held = {op.id: dict(op.held).get("shared_port", 0) for op in program.loop}
    assert sum(held.values()) == ASKED
    for one, other in combinations([op for op, cycles in held.items() if cycles], 2):
        first, second = schedule.place(one).cycle, schedule.place(other).cycle
        assert (second - first) % schedule.ii >= held[one]
        assert (first - second) % schedule.ii >= held[other]


def test_the_checker_refuses_a_schedule_that_does_not(with_port: Emitted) -> None:
    plain_one, machine = made().verified, with_port.verified.machine
    assert faults(plain_one.schedule, plain_one.program, machine, MARGIN) == []
    with UNITS.added(SHARED_PORT):
        program = lower(plain_one.program.region, plain_one.program.structure, machine)
        found = faults(plain_one.schedule, program, machine, MARGIN)
    assert f"shared_port is asked for {ASKED} cycles of an II of {plain_one.schedule.ii}" in found


def test_reports_name_it(with_port: Emitted) -> None:
    with UNITS.added(SHARED_PORT):
        limit = ii_limits(with_port.verified)[0]
    assert (limit.name, limit.amount) == ("port of shared memory", ASKED)


@pytest.mark.compiler
def test_its_kernel_is_right_and_assembles(with_port: Emitted) -> None:
    assert small_case(with_port).fault(with_port.source, 3) is None
    assert f"initiation interval {with_port.verified.schedule.ii} cycles" in with_port.source
    compiled = compile_kernel(with_port.source, architecture=with_port.verified.machine.architecture)
    assert (compiled.spill_loads, compiled.spill_stores) == (0, 0)


def test_builds_are_not_cached_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    files = {"schedule.json": '{"summary": {"status": "optimal"}}'}
    monkeypatch.setattr(driver, "_builds", lambda *_: [files])
    monkeypatch.setattr(BuildCache, "get", lambda *_: asked.append("get"))
    monkeypatch.setattr(BuildCache, "put", lambda *_: asked.append("put"))
    with UNITS.added(SHARED_PORT):
        driver.build(graph_of(plain), h200())
    assert asked == []
    driver.build(graph_of(plain), h200())
    assert asked == ["get", "put"]


def test_a_name_is_given_once_and_for_a_time() -> None:
    with (
        pytest.raises(ValueError, match="there is a unit tensor already"),
        UNITS.added(UnitEntry("tensor", "")),
    ):
        pass
    assert "shared_port" not in UNITS


def test_the_page_on_extending_shows_this_entry() -> None:
    own = Path(__file__).read_text(encoding="utf-8")
    entry = own[own.index("def port_cycles(") :].partition("\n\nASKED")[0]
    page = Path(__file__).parents[2] / "docs" / "extend.md"
    assert f"```python\n{entry}\n```" in page.read_text(encoding="utf-8")
