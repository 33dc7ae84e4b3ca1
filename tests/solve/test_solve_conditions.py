"""The search under conditions: what it finds meets them, and is the best of all that do."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from fewer_structures import search_only
from solve_examples import MARGIN, attention, region, structure

from wsopt.checker import verify
from wsopt.errors import InfeasibleError
from wsopt.frontend.types import Region
from wsopt.lowering.structures import structures
from wsopt.machine import Machine
from wsopt.perf.price import lower
from wsopt.program.conditions import Conditions
from wsopt.program.program import OpKind, TileProgram
from wsopt.program.types import Sharing, Structure
from wsopt.schedule.certificate import Certificate
from wsopt.schedule.spec import parse_conditions
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.solve import search
from wsopt.solve.bound import ii_lower_bound, infeasible, lower_bound_us
from wsopt.solve.optimum import Outcome, solve
from wsopt.solve.search import Search

PLAIN = region(1024, 1024, 512)
SMALL = structure(64, 128, 64, 2)


def under(of: Region, one: Structure, machine: Machine, text: str) -> TileProgram:
    return replace(lower(of, one, machine), conditions=parse_conditions(text, "here"))


def found(of: Region, machine: Machine, text: str) -> tuple[VerifiedSchedule, Certificate]:
    return Search(of, machine, MARGIN, parse_conditions(text, "here")).run()


# --- one structure ------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_a_ring_has_the_depth_asked_for(depth: int, h200: Machine) -> None:
    program = under(PLAIN, SMALL, h200, f"ring={depth}")
    solved = solve(program, h200, MARGIN)
    assert solved.outcome is Outcome.OPTIMAL
    assert solved.schedule is not None
    assert solved.schedule.rings == (("ring", depth),)
    assert lower_bound_us(program, h200) <= solved.schedule.prediction.microseconds + 1e-9
    assert ii_lower_bound(program, h200) <= solved.schedule.ii


def test_the_bound_knows_of_a_shallow_ring(h200: Machine) -> None:
    free, shallow = (under(PLAIN, SMALL, h200, text) for text in ("rows=64", "ring=1"))
    assert lower_bound_us(shallow, h200) > 1.2 * lower_bound_us(free, h200)


def test_a_k_block_alone_bounds_the_interval(h200: Machine) -> None:
    program = under(PLAIN, SMALL, h200, "overlap=none")
    solved = solve(program, h200, MARGIN)
    assert solved.schedule is not None
    product = program.of(OpKind.MMA)[0]
    assert solved.schedule.ii >= ii_lower_bound(program, h200) > product.latency
    assert solved.schedule.ii > ii_lower_bound(lower(PLAIN, SMALL, h200), h200)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ring=40", r"shared memory: ring of 40 takes \d+ bytes, a block has 232448"),
        ("sums=2", "epilogue buffers: no choice of them has sums=2"),
        ("k_ring=2", "rings: there is no k_ring; the loop's rings are ring"),
        (
            "ring=1,overlap=next",
            "rings: the next K-block's product needs a slot before this one's is handed back",
        ),
    ],
)
def test_what_rules_a_structure_out(text: str, told: str, h200: Machine) -> None:
    program = under(PLAIN, SMALL, h200, text)
    assert re.match(told, infeasible(program, h200, MARGIN))
    assert solve(program, h200, MARGIN).outcome is Outcome.INFEASIBLE


def test_rings_have_depths_of_their_own(h200: Machine) -> None:
    program = under(attention(), structure(64, 64, 128, 2), h200, "k_ring=2,v_ring=1")
    schedule = solve(program, h200, MARGIN).schedule
    assert schedule is not None
    assert dict(schedule.rings) == {"k_ring": 2, "v_ring": 1}


def test_products_that_begin_a_k_block(h200: Machine) -> None:
    plain, chain = lower(PLAIN, SMALL, h200), lower(attention(), structure(64, 64, 128, 2), h200)
    assert {(one.kind, other.kind) for one, other in plain.first_products} == {(OpKind.MMA, OpKind.RELEASE)}
    firsts = {one.id for one, _ in chain.first_products}
    assert {one.subject for one in firsts} == {"matmul_0"}
    assert {other.kind for _, other in chain.first_products} == {OpKind.ELEMENTWISE}
    # Without them every product needs a value of its K-block, and what waits for one hands its slot back.
    edges = tuple(edge for edge in chain.edges if edge.source not in firsts)
    rest = replace(chain, edges=edges).first_products
    assert {(one.id.subject, other.kind) for one, other in rest} == {("matmul_1", OpKind.RELEASE)}


# --- the search ---------------------------------------------------------------------------------------


def quick(s: Structure) -> bool:
    return s.group == 4 and s.depth == 64 and s.columns <= 128 and s.consumer_warps == 4


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch, h200: Machine) -> tuple[Structure, ...]:
    """The search sees these structures alone."""
    chosen = tuple(filter(quick, structures(PLAIN, h200)))
    search_only(monkeypatch, chosen)
    return chosen


@pytest.mark.solver
@pytest.mark.parametrize(
    "text",
    [
        "consumers=2,sharing=ping_pong",
        "store_warp=yes",
        "store_warp=no,ring=2",
        "overlap=none,consumers=1",
        "ring=1",
    ],
)
def test_the_best_of_those_that_meet_them(text: str, narrow: tuple[Structure, ...], h200: Machine) -> None:
    conditions = parse_conditions(text, "here")
    best, certificate = found(PLAIN, h200, text)
    assert not list(_missed(conditions, best))
    times = []
    for one in filter(conditions.admit, narrow):
        program = under(PLAIN, one, h200, text)
        schedule = solve(program, h200, MARGIN).schedule
        if schedule is not None:
            verify(schedule, program, h200, MARGIN)
            times.append(schedule.prediction.microseconds)
    assert best.schedule.prediction.microseconds == min(times)
    assert (certificate.status, certificate.bound_us) == ("optimal", min(times))
    assert certificate.considered == sum(map(conditions.admit, narrow))
    assert certificate.conditions == conditions.text
    assert free_us(narrow, h200) <= min(times)


@functools.cache
def free_us(narrow: tuple[Structure, ...], h200: Machine) -> float:
    """Microseconds of the best schedule of these structures without conditions."""
    assert [*search.structures(PLAIN, h200)] == [*narrow], "the search sees these alone"
    best, _ = Search(PLAIN, h200, MARGIN).run()
    return best.schedule.prediction.microseconds


def _missed(conditions: Conditions, best: VerifiedSchedule) -> Iterator[str]:
    """Conditions that a schedule does not meet, without the checker."""
    for name, value in conditions.structure:
        if getattr(best.schedule.structure, name) != value:
            yield name
    for name, value in conditions.buffers:
        if getattr(best.schedule.buffers, name) != value:
            yield name
    for name, value in conditions.slots:
        if dict(best.schedule.rings)[name] != value:
            yield name


@pytest.mark.solver
def test_the_runner_up_meets_them_too(narrow: tuple[Structure, ...], h200: Machine) -> None:
    best, certificate = found(PLAIN, h200, "consumers=2,ring=2")
    assert {one.structure.consumers for one in certificate.runners_up} == {2}
    other = search.runner_up(best, certificate)
    assert other is not None
    assert other.schedule.rings == (("ring", 2),)


@pytest.mark.solver
@pytest.mark.parametrize(
    ("text", "early"), [("consumers=2,overlap=next", True), ("consumers=3,overlap=none", False)]
)
def test_published_schedules_of_attention(text: str, early: bool, h200: Machine) -> None:
    best, certificate = found(attention(), h200, f"{text},depth=64")
    assert certificate.status == "optimal"
    when = {one.op: one.stage * best.schedule.ii + one.cycle for one in best.schedule.of("consumer0")}
    first = next(op for op in when if op.startswith("mma:matmul_0"))
    values = [start for op, start in when.items() if op.startswith("phase")]
    assert (when[first] + best.schedule.ii <= min(values)) is early
    if not early:
        assert when[first] + best.schedule.ii > max(values)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "consumers=5",
            r"under consumers=5: no structure fits; none has consumers=5 \(consumers is 1 or 2 or 3\)",
        ),
        ("consumers=3,swap=yes", r"none has swap=yes \(swap is no\)"),
        ("persistent=no,sharing=ping_pong", "none has sharing=ping_pong,persistent=no together"),
        ("rows=64,ring=40", r"under rows=64,ring=40: .*by shared memory \(the first: ring of 40 takes"),
    ],
)
def test_what_cannot_be_met(text: str, told: str, h200: Machine) -> None:
    with pytest.raises(InfeasibleError, match=told):
        found(PLAIN, h200, text)


def test_no_ping_pong_in_loops_that_compute(h200: Machine) -> None:
    with pytest.raises(InfeasibleError, match=r"none has sharing=ping_pong \(sharing is cooperative\)"):
        found(attention(), h200, f"sharing={Sharing.PING_PONG}")
