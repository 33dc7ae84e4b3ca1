"""Kernels of the second target from graph to machine code: text, both compilers, interleavings, mutants."""

from __future__ import annotations

from collections import Counter

import emit_builds as builds
import pytest
import targets_kernels as kernels
from emit_builds import SEEDS, graph_of, small_case
from emit_mutants import SEEDS_UNCOUNTED, survives, survivors
from other_compiler import compiled_by
from targets_kernels import BESIDES, OTHERS, PROBLEMS, SMALL, hold_to_golden

import wsopt
from wsopt import driver
from wsopt.codegen import compile_kernel, verdict
from wsopt.emit.source import expectation
from wsopt.interpret import Mutant, mutants
from wsopt.simulation import simulate

TWICE = "a wait that has passed passes again"
ALIKE = "workers of as many warps and registers"
OWN = "the vector goes through memory of the consumer's own, which no product touches"

MIRROR = "the two consumers' own buffers are interchangeable"

SAME = {"double-wait": TWICE, "swap-roles": ALIKE, "swap-argument": MIRROR}
LATE = "after b_prefetched.store(b_loaded)"
EQUIVALENT = {*SAME.items(), ("late-wait", OWN)}
"""Kinds of mutants that mean the same as the kernel, and why; none of another kind does."""


@pytest.mark.solver
def test_golden() -> None:
    hold_to_golden("gemm_bf16", kernels.found("gemm_bf16").source)


@pytest.mark.parametrize("name", ["beside", "split", "tail", "one_tile"])
def test_goldens_of_small_ones(name: str) -> None:
    hold_to_golden(name, kernels.small(name).source)


@pytest.mark.parametrize("name", BESIDES)
def test_small_ones_are_right(name: str) -> None:
    made = kernels.small(name)
    for k_iterations in BESIDES[name].k_iterations:
        assert small_case(made, k_iterations).fault(made.source, SEEDS) is None


@pytest.mark.compiler
def test_both_compilers_leave_small_ones_whole(other_triton: str) -> None:
    made = [kernels.small(name) for name in ("beside", "split", "tail")]
    others = compiled_by(other_triton, [one.source for one in made], "sm_100")
    for one, other in zip(made, others, strict=True):
        mine = compile_kernel(one.source, architecture="sm_100")
        assert verdict(mine, expectation(one.verified)) == ()
        for figure in (
            "tensor_instructions",
            "tensor_columns",
            "stack_bytes",
            "spill_loads",
            "early_arrivals",
        ):
            assert other[figure] == getattr(mine, figure), figure


@pytest.mark.solver
@pytest.mark.compiler
@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_compiler_makes_of_it_what_was_asked_for(problem: str) -> None:
    one = kernels.candidate(problem)
    assert verdict(one.compiled, expectation(one.verified)) == ()
    assert one.compiled.architecture == "sm_100"
    assert 0 < one.compiled.tensor_columns <= 512
    assert (one.compiled.stack_bytes, one.compiled.spill_loads, one.compiled.spill_stores) == (0, 0, 0)


@pytest.mark.solver
@pytest.mark.slow
@pytest.mark.parametrize("problem", [*PROBLEMS, *OTHERS])
def test_it_is_right_under_every_interleaving(problem: str) -> None:
    made = kernels.found(problem)
    simulation = simulate(made.graph, made.verified, made.source, driver.SEEDS)
    assert simulation.lines_run == simulation.lines > 50
    assert simulation.max_relative_error < 1e-2


@pytest.mark.solver
def test_another_compiler_does_so_too(other_triton: str) -> None:
    found = {problem: kernels.written_by(problem, (3, 6)) for problem in PROBLEMS}
    sources = [one.source for one in found.values()]
    for problem, other in zip(PROBLEMS, compiled_by(other_triton, sources, "sm_100"), strict=True):
        mine = found[problem].compiled
        assert other["triton_version"] != mine.triton_version
        for figure in (
            "tensor_instructions",
            "tensor_columns",
            "stack_bytes",
            "spill_loads",
            "spill_stores",
            "early_arrivals",
        ):
            assert other[figure] == getattr(mine, figure), (problem, figure)


@pytest.mark.solver
@pytest.mark.compiler
def test_from_graph_to_report() -> None:
    found = wsopt.compile(graph_of(builds.gated, "gated"), machine="b200", use_cache=False)
    assert (found.summary["machine"], found.summary["status"], found.summary["gap"]) == ("b200", "optimal", 0)
    assert found.summary["verified"]["interpreter"]["seeds"] == 20
    report = found.report.replace("\n", " ")
    assert "Predicted only: all times are the model's, and no kernel for sm_100 was measured" in report
    assert "Tensor memory: " in report


# --- mutants --------------------------------------------------------------------------------------------


def kind(source: str, mutant: Mutant) -> tuple[str, str]:
    why = SAME.get(mutant.kind, mutant.description)
    if mutant.kind == "swap-argument" and not mutant.description.startswith(
        ("bf16_staging_", "staged_", "freed_")
    ):
        why = mutant.description
    return mutant.kind, OWN if mutant.kind == "late-wait" and why.endswith(LATE) else why


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_every_mutant_is_found(name: str) -> None:
    made = kernels.small(name)
    assert made.verified.schedule.buffers.sums == 2
    cases = [small_case(made, k_iterations) for k_iterations in SMALL[name].k_iterations]
    assert survives(cases, made.source, SEEDS)
    assert set(survivors(cases, made.source, kind, EQUIVALENT, seeds=SEEDS_UNCOUNTED)) <= EQUIVALENT


PIECES = {
    "beside": ("arrive(ring_empty", "commit(ring_empty", "init(ring_empty", "x_value", "p_sums"),
    "split": ("taken", "own_part", "last_to_arrive", "part_range"),
    "tail": ("TAIL", "k_block in range", "k_block > 0", "sums_full"),
    "one_tile": ("index(0)",),
}
"""Of the lines of a kernel, those with what it has besides the others."""


@pytest.mark.slow
@pytest.mark.parametrize("name", PIECES)
def test_every_mutant_of_what_it_has_besides_is_found(name: str) -> None:
    made = kernels.small(name)
    lines = made.source.splitlines()

    def is_of_it(mutant: Mutant) -> bool:
        return any(piece in lines[mutant.line - 1] for piece in PIECES[name])

    cases = [small_case(made, k_iterations) for k_iterations in BESIDES[name].k_iterations]
    assert sum(map(is_of_it, mutants(made.source))) > 5
    assert set(survivors(cases, made.source, kind, EQUIVALENT, is_of_it, SEEDS_UNCOUNTED)) <= EQUIVALENT


def test_mutants_are_of_every_piece_of_the_second_target() -> None:
    source = kernels.small("plain").source
    lines = source.splitlines()
    of = Counter(
        m.kind for m in mutants(source) if "sums" in lines[m.line - 1] or "tcgen05" in lines[m.line - 1]
    )
    assert set(of) >= {
        "drop-wait", "drop-arrive", "drop-commit", "drop-mma", "double-commit", "double-arrive", "flip-phase",
        "depth+1", "depth-1", "shift-slot-wait", "shift-slot-arrive", "shift-slot-commit", "shift-slot-mma",
        "shift-slot-tile-load", "early-arrive", "early-release", "late-wait", "keep-accumulator",
        "lose-accumulator", "shrink-allocation",
    }  # fmt: skip
