"""A new constraint family is one entry: the solver keeps to it, the checker asks for it, and the kernel follows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from emit_builds import MARGIN, Emitted, build, graph_of, plain, small_case, structure

from wsopt.checker import PROPERTIES, Property, faults
from wsopt.codegen.aot import compile_kernel
from wsopt.errors import CheckError
from wsopt.machine.types import Machine
from wsopt.program.ids import OpId, OpKind
from wsopt.program.program import TileProgram
from wsopt.schedule.types import Schedule
from wsopt.solve.families import FAMILIES, Family, added
from wsopt.solve.variables import Model


def readers(program: TileProgram) -> Iterator[tuple[OpId, OpId]]:
    """Every product with the hand-over of the slot that it reads."""
    for edge in program.edges:
        if edge.source.kind is OpKind.MMA and edge.target.kind is OpKind.RELEASE:
            yield edge.source, edge.target


def end_before_the_next(m: Model) -> None:
    """start(release) + issue(release) <= start(product) + II."""
    for product, release in readers(m.program):
        m.cp.add(m.start[release] + m.t(m.program.op(release).issue) <= m.start[product] + m.ii)


def late(schedule: Schedule, program: TileProgram, machine: Machine, margin: int) -> Iterator[str]:
    """Slots that are handed back after the consumer's next product has begun."""
    for product, release in readers(program):
        over = schedule.start(release) + program.op(release).issue
        again = schedule.start(product) + schedule.ii
        if over > again:
            yield f"{release} is over at {over}, the next {product} begins at {again}"


ONE_AT_A_TIME = Family(name="one_product_at_a_time", constrain=end_before_the_next, check=late, steady=True)


def made() -> Emitted:
    return build(graph_of(plain), structure(64, 64, consumers=2))


ENDED = "p = warpgroup_mma_wait(0, deps=(p,))\n            mbarrier.arrive(ring_empty.index(slot)"
"""The end of the product that a pass has begun, and then the hand-over of its slot."""


@pytest.fixture(scope="module")
def one_at_a_time() -> Emitted:
    with added(ONE_AT_A_TIME):
        return made()


def test_the_solver_keeps_to_it(one_at_a_time: Emitted) -> None:
    schedule, program = one_at_a_time.verified.schedule, one_at_a_time.verified.program
    before = made().verified.schedule
    assert list(late(before, program, one_at_a_time.verified.machine, MARGIN)) != []
    assert list(late(schedule, program, one_at_a_time.verified.machine, MARGIN)) == []
    product = next(op for op in program.loop if op.kind is OpKind.MMA)
    assert before.ii < product.latency <= schedule.ii


def test_the_checker_fails_where_the_constraint_is_left_out() -> None:
    alone = Property(ONE_AT_A_TIME.name, ONE_AT_A_TIME.check)
    with (
        PROPERTIES.added(alone),
        pytest.raises(CheckError, match=r"release@0 is over at \d+, the next mma:p@0 begins at \d+"),
    ):
        made()


def test_its_check_is_asked_for_as_long_as_it_is_added() -> None:
    verified = made().verified
    with added(ONE_AT_A_TIME):
        assert len(faults(verified.schedule, verified.program, verified.machine, MARGIN)) == 2
    assert faults(verified.schedule, verified.program, verified.machine, MARGIN) == []
    assert (dict(FAMILIES), dict(PROPERTIES)) == ({}, {})


@pytest.mark.compiler
def test_its_kernel_waits_is_right_and_assembles(one_at_a_time: Emitted) -> None:
    source = one_at_a_time.source
    assert (made().source.count(ENDED), source.count(ENDED)) == (0, 1)
    assert small_case(one_at_a_time).fault(source, 3) is None
    early = source.replace(ENDED, ENDED.replace("_wait(0", "_wait(1"))
    assert small_case(one_at_a_time).fault(early, 1) is not None
    compiled = compile_kernel(source, architecture=one_at_a_time.verified.machine.architecture)
    assert (compiled.spill_loads, compiled.spill_stores) == (0, 0)


def test_the_page_on_extending_shows_this_entry() -> None:
    own = Path(__file__).read_text(encoding="utf-8")
    entry = own[own.index("def readers(") :].partition("\n\n\ndef made")[0]
    page = Path(__file__).parents[2] / "docs" / "extend.md"
    assert f"```python\n{entry}\n```" in page.read_text(encoding="utf-8")
