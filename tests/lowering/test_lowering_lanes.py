"""Which sums stay with the threads that hold their columns, and what that saves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from attention_graphs import attention

from wsopt.frontend.region import find_region
from wsopt.frontend.types import Region
from wsopt.graph.types import DType
from wsopt.lowering.phases import k_block_phase, lane_sums
from wsopt.machine import Machine
from wsopt.perf.costs import cost
from wsopt.program.types import Sharing, Structure
from wsopt.tensors.statements import BEFORE, Reduction, Statement
from wsopt.tensors.views import Role

CUT = Structure(64, 64, 64, 1, 4, Sharing.COOPERATIVE, False, False, 1, 1)


def sums(region: Region) -> list[Reduction]:
    return [item for item in region.body if isinstance(item, Reduction) and item.kind == "sum"]


def test_the_denominator_of_a_softmax_stays_with_the_threads(h200: Machine) -> None:
    region = find_region(attention())
    (denominator,) = sums(region)
    assert lane_sums(region.body, CUT, h200) == {denominator.name}
    # The running maximum is read by every K-block, so it never does.
    assert any(isinstance(item, Reduction) and item.kind == "max" for item in region.body)


def test_rows_that_two_warps_share_are_put_together_at_once(h200: Machine) -> None:
    region = find_region(attention())
    assert lane_sums(region.body, replace(CUT, consumer_warps=8), h200) == frozenset()
    assert lane_sums(region.body, replace(CUT, consumer_warps=8, rows=128), h200) != frozenset()


@pytest.mark.parametrize("when", ["", BEFORE])
def test_a_sum_that_the_loop_reads_is_put_together_at_once(h200: Machine, when: str) -> None:
    region = find_region(attention())
    (denominator,) = sums(region)
    reader = Statement("doubled", "mul", (denominator.name + when, 2.0), frozenset({Role.ROW}), DType.F32)
    assert lane_sums((*region.body, reader), CUT, h200) == frozenset()


def test_two_exchanges_are_saved(h200: Machine) -> None:
    body = find_region(attention()).body
    (denominator,) = sums(find_region(attention()))
    apart, together = (
        cost(k_block_phase((denominator,), body, (), CUT, which), h200)
        for which in (frozenset({denominator.name}), frozenset[str]())
    )
    assert apart.pipes == together.pipes
    assert abs(together.issue - apart.issue - 2 * h200.latency.shuffle) <= 1
