"""Solving without a limit of the emitter lifts what it says and nothing else, and nothing of it can be emitted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from solve_examples import MARGIN, Times, attention, hand_made, region, structure

from wsopt import checker
from wsopt.checker import faults, verify
from wsopt.errors import CheckError
from wsopt.frontend.region import find_region
from wsopt.frontend.types import Region
from wsopt.graph.builder import GraphBuilder
from wsopt.machine import Machine
from wsopt.perf.price import lower
from wsopt.program.limits import Limit
from wsopt.program.program import OpKind, TileOp, TileProgram
from wsopt.program.types import Sharing, Structure
from wsopt.schedule.types import Schedule
from wsopt.solve import search, without
from wsopt.solve.bound import infeasible
from wsopt.solve.limits import touching
from wsopt.solve.optimum import solve
from wsopt.solve.without import Relaxed

LONG = Times(load=(50, 200, 400), mma=(100, 1000, 4000), release=(50, 0, 50), add=(200, 200, 200))
"""So long that the path from L2 is no limit."""
LITTLE = 8
"""Registers kept for the compiler where a structure has none to spare."""


def rows() -> Region:
    """Rows of 1024 elements that are normalized."""
    g = GraphBuilder("rows")
    g.output(g.softmax(g.input("x", (4096, 1024), "bf16"), axis=-1, name="y"))
    return find_region(g.build())


def with_ops(program: TileProgram, **changes: tuple[int, int]) -> TileProgram:
    """The program with other (issue, latency) of operations, by kind; registers of live tiles do not count."""

    def changed(op: TileOp) -> TileOp:
        if op.kind.name not in changes:
            return op
        issue, latency = changes[op.kind.name]
        return replace(op, issue=issue, latency=latency, busy=min(op.busy, issue), pipes=())

    live = tuple(replace(tile, registers=1) for tile in program.live)
    return replace(program, ops=tuple(map(changed, program.ops)), live=live)


def few_stages(machine: Machine) -> TileProgram:
    """A tile has one pass, and a product takes four times as long as it holds the tensor core."""
    return replace(hand_made(LONG, machine), k_iterations=1)


def long_sums(machine: Machine) -> TileProgram:
    """Handing a slot back takes long, behind partial sums."""
    return hand_made(replace(LONG, release=(3000, 0, 50)), machine, f8=True)


def slow_products(machine: Machine) -> TileProgram:
    """A consumer's products take long and hold it for a moment."""
    program = lower(attention(), replace(structure(64, 64, 64, 1), group=1), machine)
    long = {op.id for op in program.of(OpKind.MMA)[:1]}
    program = with_ops(program, MMA=(20, 40), ELEMENTWISE=(40, 40), RESCALE=(20, 20))
    return replace(
        program, ops=tuple(replace(op, latency=1000) if op.id in long else op for op in program.ops)
    )


def slow_rows(machine: Machine) -> TileProgram:
    """A phase of rows has its result long after it has been issued."""
    tile = replace(structure(4, 1024, 1, 1), group=1)
    return with_ops(lower(rows(), tile, machine), ELEMENTWISE=(40, 1000))


def slow_copies(machine: Machine) -> TileProgram:
    """Copies are there so late that forty are on the way at once."""
    return hand_made(replace(LONG, load=(5, 20, 40000)), machine)


def roomy(machine: Machine) -> Machine:
    """A card with so much shared memory that it limits no ring."""
    return replace(machine, shared_memory_per_block_bytes=2**21)


def least(program: TileProgram, machine: Machine, *lifted: Limit) -> Schedule:
    """The best schedule without some limits."""
    found = solve(replace(program, lifted=frozenset(lifted)), machine, MARGIN).schedule
    assert found is not None
    return found


@pytest.mark.solver
@pytest.mark.parametrize(
    ("limit", "make"),
    [
        (Limit.STAGES, few_stages),
        (Limit.SUMS_IN_A_PASS, long_sums),
        (Limit.TWO_ITERATIONS, slow_products),
        (Limit.ROWS_IN_A_PASS, slow_rows),
        (Limit.MOST_SLOTS, slow_copies),
    ],
)
def test_lifting_a_limit_gives_a_shorter_interval_that_breaks_that_limit_alone(
    limit: Limit, make: object, h200: Machine
) -> None:
    assert callable(make)
    machine = roomy(h200)
    program: TileProgram = make(machine)
    assert limit in touching(program, machine, MARGIN, "")
    kept, freed = least(program, machine), least(program, machine, limit)
    assert faults(kept, program, machine, MARGIN) == []
    assert freed.ii < kept.ii
    found = faults(freed, program, machine, MARGIN)
    assert found
    assert all("emitter.v1" in fault for fault in found), found


@pytest.mark.solver
def test_consumers_with_programs_of_their_own_fit_where_one_program_does_not(h200: Machine) -> None:
    """The attention of `problems/attention.json`: 80 cycles of an interval of 3,296."""
    g = GraphBuilder("attention")
    q, k, v = (g.input(name, (4, 16, 4096, 128), "bf16") for name in "qkv")
    weights = g.softmax(g.mul(g.matmul(q, k, transpose_b=True), 0.0883883), axis=-1)
    g.output(g.cast(g.matmul(g.cast(weights, dtype="bf16"), v), dtype="bf16", name="o"))
    tile = Structure(64, 128, 128, 3, 4, Sharing.COOPERATIVE, True, False, 1, 1)
    program = lower(find_region(g.build()), tile, h200)
    kept, freed = least(program, h200), least(program, h200, Limit.ONE_PROGRAM)
    assert freed.ii < kept.ii
    found = faults(freed, program, h200, MARGIN)
    assert found
    assert all("emitter.v1" in fault for fault in found), found


@pytest.mark.solver
def test_issue_that_takes_no_time_leaves_units_and_latencies(h200: Machine) -> None:
    program = hand_made(replace(LONG, mma=(1500, 1000, 4000)), h200)
    kept, freed = least(program, h200), least(program, h200, Limit.OWN_OPERATIONS)
    assert (kept.ii, freed.ii) == (1550, 1000)
    copies = hand_made(replace(LONG, load=(900, 200, 400)), h200)
    assert (least(copies, h200).ii, least(copies, h200, Limit.LOADERS).ii) == (1800, 1000)


def test_base_registers_rule_a_structure_out_that_lifting_lets_in(h200: Machine) -> None:
    program = lower(region(4096, 4096, 1024), replace(structure(64, 256, 64, 3), subtiles=4), h200)
    reason = infeasible(program, h200, LITTLE)
    assert reason.startswith("emitter.v1")
    assert touching(program, h200, LITTLE, reason) == {Limit.BASE_REGISTERS}
    assert not infeasible(replace(program, lifted=frozenset({Limit.BASE_REGISTERS})), h200, LITTLE)


@pytest.mark.solver
def test_the_checker_refuses_a_program_with_a_limit_lifted_whatever_its_schedule(h200: Machine) -> None:
    program = hand_made(LONG, h200)
    kept = least(program, h200)
    verify(kept, program, h200, MARGIN)
    free = replace(program, lifted=frozenset({Limit.STAGES}))
    with pytest.raises(CheckError, match="solved without: stages within a tile"):
        checker.verify(kept, free, h200, MARGIN)


@pytest.mark.solver
def test_a_graph_without_each_limit_is_never_slower_and_only_what_applies_is_tried(
    h200: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    among = (structure(64, 64, 64, 1), replace(structure(64, 256, 64, 3), subtiles=4))
    monkeypatch.setattr(search, "structures", lambda *_: iter(among))
    monkeypatch.setattr(without, "structures", lambda *_: iter(among))
    relaxed = Relaxed(region(4096, 4096, 1024), h200, LITTLE)
    found = {one.limit: one for one in relaxed.without_each()}
    assert Limit.ONE_PROGRAM not in found
    assert found[Limit.BASE_REGISTERS].structures == 1
    assert found[Limit.BASE_REGISTERS].best_us < relaxed.base_us
    assert all(one.decided and one.best_us <= relaxed.base_us for one in found.values())
