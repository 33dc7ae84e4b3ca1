"""The checker holds a schedule to the conditions of its program."""

from __future__ import annotations

from dataclasses import replace

import pytest
from schedule_examples import Example

from wsopt.program.program import OpKind
from wsopt.schedule import budget
from wsopt.schedule.spec import parse_conditions


def under(example: Example, text: str) -> Example:
    return replace(example, program=replace(example.program, conditions=parse_conditions(text, "here")))


@pytest.mark.parametrize(
    "text", ["rows=64,consumers=2", "sharing=cooperative,persistent=yes", "overlap=next"]
)
def test_a_schedule_that_meets_them_passes(text: str, rows: Example) -> None:
    e = under(rows, f"{text},ring={rows.schedule.depth('ring')},staging={rows.schedule.buffers.staging}")
    assert e.faults() == []


@pytest.mark.parametrize("text", ["rows=128", "consumers=2,sharing=ping_pong", "swap=yes"])
def test_another_structure_is_refused(text: str, rows: Example) -> None:
    (found,) = under(rows, text).faults()
    assert found.startswith(f"{text} is asked for; there are Structure(rows=64,")


def test_other_buffers_are_refused(rows: Example) -> None:
    store_warp = rows.schedule.buffers.store_warp
    e = under(rows, f"store_warp={'no' if store_warp else 'yes'}")
    assert any("is asked for; there are" in fault and "EpilogueBuffers(" in fault for fault in e.faults())
    assert {option.store_warp for option in budget.buffer_options(e.program)} == {not store_warp}


def test_another_depth_is_refused(rows: Example) -> None:
    depth = rows.schedule.depth("ring")
    assert under(rows, f"ring={depth - 1}").faults() == [f"ring has {depth} slots, {depth - 1} are asked for"]


def test_overlaps_are_refused(rows: Example) -> None:
    mma, ii = rows.name(OpKind.MMA, 0), rows.schedule.ii
    release = rows.name(OpKind.RELEASE, 0)
    again, back = rows.start(mma) + ii, rows.start(release)
    assert again <= back, "two products are in flight"
    ends = back + rows.program.named(release).issue
    assert under(rows, "overlap=none").faults()[0] == (
        f"{mma} is issued again at {again}, the K-block before ends at {ends}"
    )
    early = rows.moved(release, stage=(again - 1) // ii, cycle=(again - 1) % ii)
    told = f"{mma} is issued again at {again}, after {release} of the K-block before"
    assert told in under(rows, "overlap=next").faults(early)
    assert told not in rows.faults(early)
