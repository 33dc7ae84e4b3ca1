"""The schedules of attention that experts have written are among those that the model has, and they run.

With two consumers the next K-block's first product can be issued before this K-block's softmax; three consumers need
no overlap of K-blocks, for each fills the tensor core while others compute.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from emit_builds import MARGIN, Emitted, case, graph_of, h200
from test_emit_k_blocks import attention, structure

from wsopt.checker import verify
from wsopt.codegen.aot import compile_kernel
from wsopt.emit.source import emit
from wsopt.frontend.region import find_region
from wsopt.perf.price import lower
from wsopt.program.conditions import Conditions, Overlap
from wsopt.report.sentences import sentences, tensor_shares, unders
from wsopt.schedule import program_order
from wsopt.schedule.passes import in_pass
from wsopt.schedule.types import PlacedOp
from wsopt.schedule.verified import VerifiedSchedule, for_trial
from wsopt.solve.optimum import Outcome, solve

SEEDS = 3
WIDE = 128
"""Head dimension of the published figures; keys and queries are few."""

QK, PV, SOFTMAX = "mma:matmul_0@0", "mma:matmul_1@0", "phase1@0"


@functools.cache
def made(consumers: int, depth: int, overlap: Overlap) -> Emitted:
    """The best schedule of a structure with this overlap, checked as any other."""
    graph = graph_of(lambda g: attention(g, "causal", wide=WIDE))
    program = lower(find_region(graph), structure(WIDE, depth, consumers), h200())
    program = replace(program, conditions=Conditions(overlap=overlap))
    solved = solve(program, h200(), MARGIN)
    assert solved.outcome is Outcome.OPTIMAL
    assert solved.schedule is not None
    verified = verify(solved.schedule, program, h200(), MARGIN)
    return Emitted(graph, verified, emit(verified))


def issued(verified: VerifiedSchedule) -> dict[str, int]:
    """When each operation of the first consumer is issued, on its own clock."""
    ii = verified.schedule.ii
    return {placed.op: placed.stage * ii + placed.cycle for placed in verified.schedule.of("consumer0")}


def overlapped(verified: VerifiedSchedule) -> bool:
    """Whether the next K-block's first product is issued before this K-block's softmax."""
    when = issued(verified)
    return when[QK] + verified.schedule.ii <= when[SOFTMAX]


CASES = [(2, 128, Overlap.NEXT_FIRST), (3, 64, Overlap.ANY), (3, 64, Overlap.NONE)]


def test_two_consumers_issue_the_next_product_before_the_softmax() -> None:
    found = made(2, 128, Overlap.NEXT_FIRST).verified
    assert overlapped(found)
    under = {(str(u.product.id), str(u.arithmetic.id), u.k_blocks) for u in unders(found, 0)}
    assert (QK, SOFTMAX, 1) in under
    assert "matmul_0 of K-block j+1 runs under the row maximum of softmax_0 of K-block j" in " ".join(
        sentences(found)
    )


@pytest.mark.parametrize("overlap", [Overlap.ANY, Overlap.NONE])
def test_three_consumers_do_without(overlap: Overlap) -> None:
    found = made(3, 64, overlap).verified
    assert not overlapped(found)
    assert all(u.k_blocks <= 0 for u in unders(found, 0))
    told = " ".join(sentences(found))
    assert "K-block j+1" not in told
    assert told.startswith("3 warpgroups, each with rows of its own, ")


def test_plain_consumers_fill_the_tensor_core_for_each_other() -> None:
    found = made(3, 64, Overlap.NONE).verified
    assert not unders(found, 0)
    assert "Nothing of the same warpgroup runs under matmul_0 and matmul_1" in " ".join(sentences(found))
    none, *_ = tensor_shares(found)
    assert none < 0.1
    assert found.schedule.ii >= made(3, 64, Overlap.ANY).verified.schedule.ii


@pytest.mark.slow
@pytest.mark.parametrize(("consumers", "depth", "overlap"), CASES)
def test_computes(consumers: int, depth: int, overlap: Overlap) -> None:
    found = made(consumers, depth, overlap)
    assert case(found.graph).fault(found.source, SEEDS) is None


def test_words_follow_the_schedule() -> None:
    told = [sentences(made(*one).verified) for one in CASES]
    assert len(set(told)) == len(told)


def handed_back_late(verified: VerifiedSchedule) -> VerifiedSchedule:
    """The same with the values' slots handed back behind the next K-block's first product, so that a pass ends with
    one product under way while the other has been waited for.
    """

    def moved(placed: PlacedOp) -> PlacedOp:
        if not placed.op.startswith("release:v@"):
            return placed
        consumer = placed.op.partition("@")[2]
        product = next(p for p in verified.schedule.placed if p.op == f"mma:matmul_0@{consumer}")
        return replace(placed, stage=product.stage + 1, cycle=product.cycle + 112)

    changed = replace(verified.schedule, placed=tuple(map(moved, verified.schedule.placed)))
    return for_trial(verified, schedule=changed)


def waits(source: str) -> Iterator[tuple[list[str], list[str]]]:
    """The products under way at each wait, and those that it names."""
    running: list[str] = []
    for line in source.splitlines():
        if issued := re.match(r" +(\w+) = warpgroup_mma\(", line):
            running.append(issued[1])
        elif waited := re.search(r"warpgroup_mma_wait\((\d+), deps=\(([^)]*),\)\)", line):
            yield running.copy(), waited[2].split(", ")
            running = running[-int(waited[1]) :] if int(waited[1]) else []


@pytest.mark.parametrize(("consumers", "depth", "overlap"), CASES)
def test_waits_name_products_under_way_alone(consumers: int, depth: int, overlap: Overlap) -> None:
    found = list(waits(made(consumers, depth, overlap).source))
    assert len(found) >= 4
    assert all(set(named) <= set(running) for running, named in found)


def begins_with_the_earliest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes as where no other beginning would leave fewer products under way at their end."""
    monkeypatch.setattr(program_order, "in_pass", lambda verified, partition: verified.schedule.of(partition))


def test_a_pass_ends_with_what_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    begins_with_the_earliest(monkeypatch)
    late = handed_back_late(made(3, 64, Overlap.NONE).verified)
    found = list(waits(emit(late)))
    assert (["matmul_1_"], ["matmul_1_"]) in found  # at the pass's end, waiting for nothing yet
    assert (
        ["matmul_1_", "matmul_0_"],
        ["matmul_1_"],
    ) in found  # the last K-block's, under the next one's first
    assert all(set(named) <= set(running) for running, named in found)


def test_a_pass_begins_where_no_product_goes_round() -> None:
    found = made(3, 64, Overlap.NONE).verified
    assert in_pass(found, "consumer0") == found.schedule.of("consumer0")
    late = handed_back_late(found)
    assert late.schedule.of("consumer0")[-1].op == PV  # as its pass would end by the earliest operation
    turned = in_pass(late, "consumer0")
    assert (turned[0].op, turned[0].stage, turned[0].cycle) == (PV, 1, 0)
    assert {one.op: one.stage for one in turned}[QK] == 0
    assert max(one.stage for one in turned) == 1
    loop = re.search(r"for _ in range\(begin \+ 1.*?\n        (?=\S)", emit(late), re.DOTALL)
    assert loop is not None
    assert "warpgroup_mma_wait" in loop[0][loop[0].rindex("= warpgroup_mma(") :]


@pytest.mark.compiler
def test_the_compiler_minds_where_a_pass_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    late = handed_back_late(made(3, 64, Overlap.NONE).verified)
    assert compile_kernel(emit(late)).warnings == ()
    begins_with_the_earliest(monkeypatch)
    assert any("C7514" in warning for warning in compile_kernel(emit(late)).warnings)
