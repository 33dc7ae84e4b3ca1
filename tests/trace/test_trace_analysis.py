"""What is computed of records: exact where all goes as predicted, and off by as much as an operation is late."""

from __future__ import annotations

from dataclasses import replace

import pytest
from trace_builds import NAMES, traced
from trace_records import records

from wsopt.trace.analysis import analyse, median_difference, summary
from wsopt.trace.document import document
from wsopt.trace.files import PredictedOp
from wsopt.trace.table import text

FACTS = {"card": {"device": "Fake 9000", "driver": "1.2"}, "versions": {"triton": "3.6.0"}}
TIMES = {"plain": [10.0, 10.1, 10.2], "traced": [10.3, 10.4, 10.5]}


# Kernels of rows hand a slot back right behind its read, whenever the schedule does.
@pytest.mark.parametrize("name", [name for name in NAMES if name != "streamed_rows"])
def test_records_as_predicted_give_the_prediction(name: str) -> None:
    stamped = traced(name).stamped
    found = analyse([records(stamped, 8, waits=3)], stamped)
    consumers = [one for one in found if one.partition.role == "consumer"]
    assert consumers
    for one in consumers:
        assert one.interval is not None
        assert one.interval.median == one.interval.lower == one.interval.upper == stamped.runs
        for op in one.ops:
            if op.predicted.started is None:
                assert (op.start, op.issue, op.waited) == (None, None, None)
                continue
            assert op.start is not None
            assert op.start.median == op.predicted.start
            assert op.start.count > 2 * stamped.blocks * stamped.tiles
            assert (op.waited is None) == (op.predicted.reached is None)
            assert op.waited is None or op.waited.median == 3
    assert median_difference(found, stamped.ii) == 0


def test_lengths_are_to_the_next_operation_and_to_the_wait() -> None:
    stamped = traced("plain").stamped
    (consumer, *_) = analyse([records(stamped, 8)], stamped)
    product, release = consumer.ops
    assert product.result is not None
    assert product.issue is not None
    assert release.issue is not None
    assert product.predicted.awaited == release.predicted.op
    assert product.result.median == release.predicted.start
    # Between a product and the next one stands the return of the slot before.
    between = release.predicted.start - stamped.runs
    assert product.issue.median == between
    assert release.issue.median == stamped.runs - between
    assert release.result is None


@pytest.mark.parametrize("late", [11, 40])
def test_an_operation_that_is_late_shows(late: int) -> None:
    stamped = traced("plain").stamped
    moved = {op.op: late for one in stamped.partitions for op in one.ops if op.op.startswith("release")}
    found = analyse([records(stamped, 8, late=moved)], stamped)
    for one in (one for one in found if one.partition.role == "consumer"):
        product, release = one.ops
        assert product.start is not None
        assert release.start is not None
        assert product.start.median == 0
        assert release.start.median == release.predicted.start + late
    assert median_difference(found, stamped.ii) == pytest.approx(late / stamped.ii)


def test_an_operation_without_a_stamp_has_no_figures_and_others_have_theirs() -> None:
    stamped = traced("causal").stamped

    def unstamped(op: PredictedOp) -> PredictedOp:
        return replace(op, started=None, reached=None) if op.op.startswith("mma:s") else op

    partitions = tuple(
        replace(one, ops=tuple(map(unstamped, one.ops))) if one.role == "consumer" else one
        for one in stamped.partitions
    )
    found = analyse([records(stamped, 8)], replace(stamped, partitions=partitions))
    for one in (one for one in found if one.partition.role == "consumer"):
        product, reference = one.ops[0], one.partition.stamped[0]
        assert (product.start, product.issue, product.result, product.waited) == (None, None, None, None)
        assert reference.op != product.predicted.op
        assert one.interval is not None
        assert one.interval.median == stamped.runs
        for op in one.ops[1:]:
            assert op.start is not None
            assert op.start.median == op.predicted.start - reference.start


def test_tiles_are_told_by_their_parts() -> None:
    stamped = traced("plain").stamped
    (consumer, *_) = analyse([records(stamped, 8)], stamped)
    parts = dict(consumer.parts)
    assert list(parts) == ["tile", "loop", "subtile 0", "subtile 1"]
    assert (parts["tile"].median, parts["subtile 0"].median) == (1, 100)
    assert parts["loop"].count == stamped.blocks * stamped.tiles


def test_what_was_not_seen_is_none() -> None:
    stamped = traced("plain").stamped
    for one in analyse([[0] * stamped.words], stamped):
        assert (one.interval, one.parts) == (None, ())
        assert all(op.start is None for op in one.ops)
    assert median_difference([], stamped.ii) is None
    assert summary([]) is None


def test_the_document_says_what_was_measured_and_the_table_shows_it() -> None:
    stamped = traced("plain").stamped
    launches = [records(stamped, 8)] * 2
    found = document(stamped, {"name": "plain"}, FACTS, TIMES, launches, "2026-01-02T03:04:05Z")
    assert found["cost"] == pytest.approx(10.4 / 10.1 - 1, abs=1e-3)
    assert found["start_difference"] == 0
    assert found["schedule"]["ii_cycles"] == stamped.ii
    assert found["traced"]["launches"] == 2
    assert [one["name"] for one in found["partitions"]][:2] == ["consumer0", "consumer1"]
    shown = text(found)
    assert "plain on Fake 9000, driver 1.2, Triton 3.6.0, 2026-01-02T03:04:05Z" in shown
    assert "plain 10.10 us, traced 10.40 us: the stamps cost +3.0%" in shown
    assert f"consumer0: II {stamped.ii:,}, effective {stamped.interval:,}, as it runs" in shown
    assert f"as it runs {stamped.runs:,}, measured {stamped.runs:,}" in shown
    release = next(line for line in shown.splitlines() if line.startswith("release@0"))
    op = stamped.partitions[0].ops[1]
    assert op.start > op.scheduled
    assert release.split()[1:5] == [f"{op.scheduled:,}", f"{op.start:,}", f"{op.start:,}", "+0.0%"]
    assert "spills" not in shown
    found["kernel"]["spills"] = 3
    assert "The traced kernel spills (3 accesses)" in text(found)
