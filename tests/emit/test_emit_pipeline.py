"""When a slot is handed back: under the next product, which goes in parts around that, or a pass later."""

from __future__ import annotations

from dataclasses import replace

import emit_builds as builds
import pytest
from emit_builds import MARGIN, SEEDS, Body, Emitted, build, graph_of, small_case, structure
from row_graphs import normed_product

from wsopt.checker import verify
from wsopt.codegen.aot import compile_kernel
from wsopt.emit.source import emit, expected_instructions
from wsopt.program.program import OpKind
from wsopt.tensors.parts import stretches


def a_pass_later(made: Emitted) -> Emitted:
    """The schedule with every slot handed back one pass later."""
    schedule, program = made.verified.schedule, made.verified.program
    placed = tuple(
        replace(p, stage=p.stage + 1) if program.named(p.op).kind is OpKind.RELEASE else p
        for p in schedule.placed
    )
    verified = verify(replace(schedule, placed=placed), program, made.verified.machine, MARGIN)
    return Emitted(made.graph, verified, emit(verified))


@pytest.mark.parametrize(
    ("depth", "least", "parts"),
    [(64, 16, ((0, 16), (16, 16), (32, 32))), (32, 16, ((0, 16), (16, 16))), (16, 16, ((0, 16),))],
)
def test_the_stretches_of_a_k_block(depth: int, least: int, parts: tuple[tuple[int, int], ...]) -> None:
    assert tuple((one.first, one.length) for one in stretches(depth, least)) == parts
    assert sum(length for _, length in parts) == depth


@pytest.mark.compiler
@pytest.mark.slow
def test_a_product_begins_before_a_slot_is_handed_back() -> None:
    made = build(graph_of(builds.plain), structure(128, consumers=2))
    steady = made.source.partition("for _ in range(1, k_iterations):")[2].partition("slot_before = slot")[0]
    steps = [line.split("(")[0].rsplit(" ", 1)[-1] for line in steady.strip().splitlines()]
    begun = ["mbarrier.wait", "warpgroup_mma", "warpgroup_mma_wait", "mbarrier.arrive"]
    assert steps == [*begun, "warpgroup_mma", "warpgroup_mma", "warpgroup_mma_wait"]
    # Of this K-block's parts one may be under way, of the K-block before none.
    assert "warpgroup_mma_wait(1," in steady
    assert small_case(made).fault(made.source, SEEDS) is None
    assert compile_kernel(made.source, architecture="sm_90").tensor_instructions == expected_instructions(
        made.verified
    )


@pytest.mark.slow
def test_a_slot_that_is_handed_back_later_leaves_products_whole() -> None:
    made = build(graph_of(builds.plain), structure(128, consumers=2))
    later = a_pass_later(made)
    assert ".slice(" not in later.source
    assert "warpgroup_mma_wait(2," in later.source
    assert small_case(later, 7).fault(later.source, SEEDS) is None


@pytest.mark.parametrize("body", [builds.scaled, normed_product], ids=["promoted", "beside"])
def test_products_beside_arithmetic_stay_whole(body: Body) -> None:
    made = build(graph_of(body), structure())
    assert ".slice(" not in made.source.partition("def consumer(")[2]
