"""Arithmetic that goes on with arithmetic: its thread waits for nothing between the two."""

from __future__ import annotations

from dataclasses import replace

import pytest

from wsopt.program.facts import Promotion
from wsopt.program.ids import OpId, OpKind, ValueId, ValueKind
from wsopt.program.program import Edge, TileOp
from wsopt.schedule.program_order import Step, goes_on

COUNTS = Promotion(1, 4)


def step(kind: OpKind, subject: str = "", stage: int = 0) -> Step:
    return Step(TileOp(OpId(kind, subject, 0), (), None, COUNTS), stage)


SCORES = step(OpKind.MMA, "scores")
BACK = step(OpKind.RELEASE)
FIRST = step(OpKind.ELEMENTWISE, "phase1")
SECOND = step(OpKind.ELEMENTWISE, "phase2")
RESCALE = step(OpKind.RESCALE, "mixed")
MIXED = step(OpKind.MMA, "mixed")


def waits(target: Step, distance: int = 0, source: Step = MIXED) -> Edge:
    return Edge(source.op.id, target.op.id, distance)


def mixed(order: list[Step], *edges: Edge) -> list[str]:
    return [str(one.op.id) for one in order if goes_on(order, one, edges)]


def test_arithmetic_behind_arithmetic() -> None:
    assert mixed([SCORES, BACK, FIRST, SECOND, RESCALE, MIXED]) == ["phase2@0", "rescale:mixed@0"]


def test_a_slot_that_is_handed_back_between_keeps_them_apart() -> None:
    assert mixed([SCORES, FIRST, BACK, SECOND, RESCALE]) == ["rescale:mixed@0"]


def test_the_first_of_a_pass_has_nobody_before_it() -> None:
    assert mixed([FIRST, MIXED]) == []


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ((waits(SECOND, 1),), []),
        ((waits(SECOND, 1), waits(FIRST, 1)), ["phase2@0"]),  # the first has waited for it
        ((waits(SECOND, 1), waits(FIRST, 2)), []),  # for the one before it
        ((waits(SECOND, 2), waits(SECOND, 1)), []),
        ((waits(SECOND, 2), waits(BACK, 1)), ["phase2@0"]),  # a pass ago
    ],
)
def test_a_product_that_it_waits_for(edges: tuple[Edge, ...], expected: list[str]) -> None:
    assert mixed([FIRST, SECOND, MIXED, BACK], *edges) == expected


def test_stages_count_as_passes() -> None:
    later = replace(SECOND, stage=1)
    assert mixed([FIRST, later, MIXED], waits(later), waits(FIRST, 1)) == ["phase2@0"]
    assert mixed([FIRST, later, MIXED], waits(later), waits(FIRST, 2)) == []


def test_a_tile_that_it_reads_from_a_slot() -> None:
    tile = ValueId(ValueKind.TILE, "bias")
    reads = replace(SECOND, op=replace(SECOND.op, inputs=(tile,)))
    assert mixed([FIRST, reads]) == []
