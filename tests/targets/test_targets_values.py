"""Attention with scores, operands and sums in tensor memory: who does what, in which order, and that it is right."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import targets_values as kernels
from attention_graphs import Sizes, attention
from emit_builds import SEEDS
from emit_mutants import SEEDS_UNCOUNTED, survives
from other_compiler import compiled_by
from targets_kernels import hold_to_golden
from targets_values import KERNELS, made

from wsopt.checker import faults, verify
from wsopt.codegen import compile_kernel, verdict
from wsopt.emit.source import emit, expectation
from wsopt.frontend.region import find_region
from wsopt.interpret import Mutant, mutants
from wsopt.lowering.structures import structures
from wsopt.machine import Machine
from wsopt.perf.price import lower
from wsopt.program.ids import OpId, OpKind
from wsopt.program.program import TileProgram
from wsopt.program.types import Space
from wsopt.schedule.types import Schedule
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.simulation import simulate
from wsopt.solve.bound import infeasible, lower_bound_us
from wsopt.solve.optimum import solve
from wsopt.targets import Operands

MARGIN = 24
LONG = Sizes(batch=4, heads=16, queries=4096, keys=4096, inner=128, column=128)


@pytest.fixture(scope="module")
def programs(b200: Machine) -> list[TileProgram]:
    region = find_region(attention(sizes=LONG))
    every = (lower(region, s, b200) for s in structures(region, b200))
    return [one for one in every if not infeasible(one, b200, MARGIN)]


@pytest.fixture(scope="module")
def published(programs: list[TileProgram], b200: Machine) -> VerifiedSchedule:
    """The schedule of two tiles of 128 rows with a correction warpgroup that acts where it is needed, as experts have
    published it.
    """
    asked = {
        "consumers": 2,
        "depth": 128,
        "operands": Operands.SCORES,
        "corrections": 1,
        "exp2_eighths": 1,
        "lazy": True,
    }
    own = (p for p in programs if all(getattr(p.structure, name) == value for name, value in asked.items()))
    program = next(one for one in own if one.structure.subtiles == 4)
    schedule = solve(program, b200, MARGIN).schedule
    assert schedule is not None
    return verify(schedule, program, b200, MARGIN)


def starts(verified: VerifiedSchedule, kind: OpKind, consumer: int) -> Iterator[tuple[OpId, int, int]]:
    """The operations of a kind for a consumer, with the cycles of an interval from which to which they go."""
    for op in verified.program.of(kind):
        if op.id.instance == consumer:
            begin = verified.schedule.start(op.id) % verified.schedule.ii
            yield op.id, begin, begin + (op.busy or op.issue)


# --- the published schedule -----------------------------------------------------------------------------


@pytest.mark.solver
def test_products_have_a_warp_of_their_own(published: VerifiedSchedule) -> None:
    own = [placed.op for placed in published.schedule.of("mma_warp0") if "mma" in placed.op]
    assert len(own) == len(published.program.of(OpKind.MMA)) == 4


@pytest.mark.solver
def test_one_tile_computes_under_the_products_of_the_other(published: VerifiedSchedule) -> None:
    ii = published.schedule.ii
    for mine, other in ((0, 1), (1, 0)):
        products = [span[1:] for span in starts(published, OpKind.MMA, mine)]
        phases = [span[1:] for span in starts(published, OpKind.ELEMENTWISE, other)]
        held = {cycle % ii for begin, end in products for cycle in range(begin, end)}
        busy = {cycle % ii for begin, end in phases for cycle in range(begin, end)}
        assert len(held & busy) > len(held) / 3


@pytest.mark.solver
def test_sums_are_rescaled_off_the_way_of_exponentials(published: VerifiedSchedule) -> None:
    where = {placed.op: placed.partition for placed in published.schedule.placed}
    assert {where[str(op.id)] for op in published.program.of(OpKind.RESCALE)} == {"correction0"}
    for consumer in (0, 1):
        (_, rescaled, _) = next(starts(published, OpKind.RESCALE, consumer))
        spans = {
            one.subject: (begin, end) for one, begin, end in starts(published, OpKind.ELEMENTWISE, consumer)
        }
        begin, end = spans["phase2"]
        assert (rescaled - begin) % published.schedule.ii < end - begin


@pytest.mark.solver
def test_operands_lie_in_the_columns_of_their_scores(published: VerifiedSchedule) -> None:
    values = published.program.values
    within = [value for value in values if value.within is not None]
    assert published.program.tensor_columns == 512
    assert len(within) == 2
    assert all(value.space is Space.TENSOR and not value.tensor_columns for value in within)


@pytest.mark.solver
def test_a_share_of_exp2_is_a_polynomial(published: VerifiedSchedule) -> None:
    assert "exp2_on_both_pipes" in emit(published)


@pytest.mark.solver
def test_the_correction_warpgroup_is_outside_the_loop_of_roles(published: VerifiedSchedule) -> None:
    _, _, launch = emit(published).partition("gl.warp_specialize(")
    roles = re.findall(r"^ +\((\w+), \(", launch, re.MULTILINE)
    assert roles == ["correction", "consumer", "consumer", "loader", "mma_warp"]
    assert "[4, 4, 1, 1],\n        [216, 216, 24, 24]," in launch


@pytest.mark.solver
@pytest.mark.compiler
def test_both_compilers_leave_the_published_schedule_whole(
    published: VerifiedSchedule, other_triton: str
) -> None:
    source, asked = emit(published), expectation(published)
    assert verdict(compile_kernel(source, architecture="sm_100"), asked) == ()
    (other,) = compiled_by(other_triton, [source], "sm_100")
    assert (other["stack_bytes"], other["spill_loads"], other["spill_stores"]) == (0, 0, 0)
    assert asked.allows(other["tensor_instructions"])
    assert other["tensor_columns"] == 512


@pytest.mark.solver
@pytest.mark.slow
def test_the_published_schedule_is_right_in_simulation(published: VerifiedSchedule) -> None:
    done = simulate(attention(sizes=LONG), published, emit(published), 2)
    assert done.lines_run == done.lines
    assert done.max_relative_error < 1e-2


def test_costs_alone_choose_what_is_published(programs: list[TileProgram], b200: Machine) -> None:
    best = min(programs, key=lambda program: lower_bound_us(program, b200)).structure
    assert (best.consumers, best.operands, best.corrections) == (2, Operands.SCORES, 1)
    assert best.exp2_eighths > 0
    assert best.lazy


@pytest.mark.solver
def test_each_part_is_faster_with_its_published_form(programs: list[TileProgram], b200: Machine) -> None:
    def bound(**asked: object) -> float:
        own = [
            p for p in programs if all(getattr(p.structure, name) == value for name, value in asked.items())
        ]
        return min(lower_bound_us(program, b200) for program in own)

    assert bound(consumers=2) < bound(consumers=1)
    assert bound(consumers=2, corrections=1) < bound(consumers=2, corrections=0)
    assert bound(consumers=2, exp2_eighths=1) < bound(consumers=2, exp2_eighths=0)


# --- the checker ----------------------------------------------------------------------------------------

Change = Callable[[Schedule], Schedule]


def moved(name: str, cycles: int) -> Change:
    """An operation that starts so much later."""

    def change(schedule: Schedule) -> Schedule:
        def later(stage: int, cycle: int) -> tuple[int, int]:
            return divmod(stage * schedule.ii + cycle + cycles, schedule.ii)

        placed = (
            replace(p, stage=later(p.stage, p.cycle)[0], cycle=later(p.stage, p.cycle)[1])
            if p.op == name
            else p
            for p in schedule.placed
        )
        return replace(schedule, placed=tuple(placed))

    return change


def issued_by(name: str, partition: str) -> Change:
    def change(schedule: Schedule) -> Schedule:
        placed = (replace(p, partition=partition) if p.op == name else p for p in schedule.placed)
        return replace(schedule, placed=tuple(placed))

    return change


BROKEN: dict[str, tuple[Change, str]] = {
    "product of a consumer": (issued_by("mma:s@0", "consumer0"), "is issued by consumer0, not by mma_warp0"),
    "rescaling of a consumer": (
        issued_by("rescale:pv@0", "consumer0"),
        "is issued by consumer0, not by correction0",
    ),
    "no correction": (
        lambda s: replace(s, partitions=tuple(p for p in s.partitions if p.role != "correction")),
        "ask for consumer0 of 4 warps, consumer1 of 4 warps, correction0 of 4 warps",
    ),
    "scores before the product that reads their columns": (moved("mma:pv@0", 700), "mma:s@0 starts at"),
    "read before the product has ended": (moved("read:s@0", -200), "read:s@0 starts at"),
    "operand before it is computed": (moved("write:pc$0@0", -400), "write:pc$0@0 starts at"),
    "product before its sums are rescaled": (moved("rescale:pv@0", 900), "mma:pv@0 starts at"),
}


@pytest.mark.solver
@pytest.mark.parametrize("name", BROKEN)
def test_the_checker_finds(name: str, b200: Machine) -> None:
    one = made("published").verified
    change, message = BROKEN[name]
    assert faults(one.schedule, one.program, one.machine, MARGIN) == []
    assert message in "; ".join(faults(change(one.schedule), one.program, one.machine, MARGIN))


# --- kernels --------------------------------------------------------------------------------------------


@pytest.mark.solver
@pytest.mark.parametrize("name", ["published", "columns"])
def test_golden(name: str) -> None:
    hold_to_golden(f"attention_{name}", made(name).source)


@pytest.mark.solver
@pytest.mark.parametrize("name", KERNELS)
def test_it_is_right_under_every_interleaving(name: str) -> None:
    assert survives(kernels.cases(name), made(name).source, SEEDS)


@pytest.mark.solver
@pytest.mark.compiler
@pytest.mark.parametrize("name", KERNELS)
def test_the_compiler_makes_of_it_what_was_asked_for(name: str) -> None:
    compiled = compile_kernel(made(name).source, architecture="sm_100")
    assert expectation(made(name).verified).allows(compiled.tensor_instructions)
    assert compiled.tensor_columns <= 512
    assert not [told for told in verdict(compiled, expectation(made(name).verified)) if "tensor" in told]


@pytest.mark.solver
@pytest.mark.compiler
def test_another_compiler_does_so_too(other_triton: str) -> None:
    apart = [name for name in KERNELS if not made(name).verified.program.structure.corrections]
    others = compiled_by(other_triton, [made(name).source for name in apart], "sm_100")
    for name, other in zip(apart, others, strict=True):
        assert expectation(made(name).verified).allows(other["tensor_instructions"])


# --- mutants --------------------------------------------------------------------------------------------

OF_TENSOR_MEMORY = re.compile(r"tcgen05|_memory|_sums|_handed|_ready|_rescaled|\b(s|pv)_(full|empty)\b")

EQUIVALENT = {
    "double-wait": "a wait that has passed passes again",
    "shift-slot-wait": "of two commits of one warp the later one tells of the earlier one's products too",
    "late-wait": "scores come when the products before them have ended",
    "swap-roles": "workers of as many warps",
    "swap-argument": "the two consumers' own buffers are interchangeable",
    "drop-wait": "another product of the same warp has waited for the slot",
}
"""Kinds some of whose mutants mean the same as the kernel, and why."""


def chosen(source: str) -> list[Mutant]:
    """The mutants of lines about tensor memory: of those that are alike in kind and text one."""
    lines, found = source.splitlines(), dict[tuple[str, str], Mutant]()
    for one in mutants(source):
        line = lines[one.line - 1].strip()
        if OF_TENSOR_MEMORY.search(line):
            found.setdefault((one.kind, re.sub(r"\d", "", line)), one)
    return list(found.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scores", "correction"])
def test_mutants_of_tensor_memory_die(name: str) -> None:
    cases, source = kernels.cases(name), made(name).source
    every = chosen(source)
    left = [one for one in every if survives(cases, one.source, SEEDS_UNCOUNTED)]
    assert {one.kind for one in left} <= EQUIVALENT.keys(), [str(one) for one in left]
    dead = {one.kind for one in every} - {one.kind for one in left}
    assert len(every) - len(left) >= 20
    assert dead >= {
        "drop-arrive", "drop-commit", "drop-mma", "double-arrive", "double-commit", "early-arrive", "flip-phase",
        "keep-accumulator", "lose-accumulator", "shift-slot-arrive", "shift-slot-commit", "shift-slot-mma",
        "shrink-allocation",
    }  # fmt: skip
