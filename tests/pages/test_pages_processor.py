"""What `wsopt inspect --perfetto` writes for a traced build, loaded and queried in Perfetto's trace processor."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from page_builds import Pages
from page_processor import processor_of
from perfetto.common.exceptions import PerfettoException
from perfetto.trace_processor import TraceProcessor
from typer.testing import CliRunner

from wsopt.cli import app
from wsopt.pages.timeline import timeline_picture
from wsopt.trace.files import FOLDER, RESULT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.browser, pytest.mark.slow]
NAME = "attention_causal"

SLICES = """
select grouped.name as grouped, track.name as track, slice.name as name, slice.ts as begins, slice.dur as lasts,
       extract_arg(slice.arg_set_id, 'debug.op') as op, extract_arg(slice.arg_set_id, 'debug.cycles') as cycles
from slice join track on slice.track_id = track.id join track grouped on track.parent_id = grouped.id
"""
"""Every slice with its track, and the group that the track is in."""


@pytest.fixture(scope="module")
def processor(browser: Browser, pages: Pages) -> Iterator[TraceProcessor]:
    trace = pages.folder / f"{NAME}.pftrace"
    done = CliRunner().invoke(app, ["inspect", str(pages.folder / NAME), "--perfetto", str(trace)])
    assert done.exit_code == 0, done.output
    with processor_of(browser, trace) as opened:
        yield opened


@pytest.fixture(scope="module")
def measured(pages: Pages) -> dict[str, list[dict[str, Any]]]:
    """The operations that were measured, by role."""
    path = pages.folder / NAME / FOLDER / RESULT
    partitions = json.loads(path.read_text(encoding="utf-8"))["partitions"]
    return {one["name"]: [op for op in one["ops"] if op["measured"]["start"]] for one in partitions}


def test_the_file_is_loaded_without_an_error(processor: TraceProcessor) -> None:
    wrong = processor.query("select name, value from stats where severity != 'info' and value > 0")
    assert [(row.name, row.value) for row in wrong] == []
    with pytest.raises(PerfettoException, match="no such table"):
        processor.query("select * from nowhere")


def test_units_and_roles_are_tracks_of_the_predicted_group(processor: TraceProcessor, pages: Pages) -> None:
    picture = timeline_picture(pages.builds[NAME].verified)
    rows = processor.query(
        "select track.name as name from track join track grouped on track.parent_id = grouped.id "
        "where grouped.name = 'predicted' "
        "order by extract_arg(track.source_arg_set_id, 'sibling_order_rank')"
    )
    assert [row.name for row in rows] == ["phases", *(row.name for row in picture.rows)]
    assert {row.kind for row in picture.rows} == {"unit", "role"}
    found = Counter(row.track for row in processor.query(f"{SLICES} where grouped.name = 'predicted'"))
    del found["phases"]
    assert found == Counter(picture.rows[bar.row].name for bar in picture.bars)


def test_slices_have_the_predicted_cycles_and_operations(processor: TraceProcessor, pages: Pages) -> None:
    verified = pages.builds[NAME].verified
    picture = timeline_picture(verified)
    (row,) = [number for number, row in enumerate(picture.rows) if row.name == "tensor core"]
    bars = sorted((bar for bar in picture.bars if bar.row == row), key=lambda bar: bar.begin)
    query = f"{SLICES} where grouped.name = 'predicted' and track.name = 'tensor core' order by begins"
    for bar, one in zip(bars, processor.query(query), strict=True):
        assert (one.op, one.cycles) == (bar.op, pytest.approx(bar.end - bar.begin))
        assert one.begins == round(verified.machine.seconds(bar.begin) * 1e9)
        assert one.lasts == pytest.approx(verified.machine.seconds(one.cycles) * 1e9, abs=1)


def test_barriers_are_flows_from_role_to_role(processor: TraceProcessor, pages: Pages) -> None:
    verified = pages.builds[NAME].verified
    picture = timeline_picture(verified)
    rows = processor.query(
        "select gives.name as gives, takes.name as takes, count(*) as count from flow "
        "join slice a on flow.slice_out = a.id join track gives on a.track_id = gives.id "
        "join slice b on flow.slice_in = b.id join track takes on b.track_id = takes.id group by 1, 2"
    )
    expected = Counter(
        (picture.rows[one.from_row].name, picture.rows[one.to_row].name) for one in picture.arrows
    )
    assert {(row.gives, row.takes): row.count for row in rows} == expected
    assert ("loader0", "consumer0") in expected
    assert ("consumer1", "loader0") in expected


def test_what_was_measured_is_a_group_beside_it(
    processor: TraceProcessor, measured: dict[str, list[dict[str, Any]]]
) -> None:
    found: dict[str, list[Any]] = {}
    for row in processor.query(f"{SLICES} where grouped.name = 'measured' order by begins"):
        found.setdefault(row.track, []).append(row)
    assert found.keys() == measured.keys()
    for role, ops in measured.items():
        ops = sorted(ops, key=lambda op: op["measured"]["start"]["median"])
        assert {row.op for row in found[role]} == {op["op"] for op in ops}
        assert len(found[role]) == len(ops)
        for row, op in zip(found[role], ops, strict=True):
            assert row.cycles == pytest.approx(max((op["measured"]["issue"] or {"median": 0})["median"], 1))


def test_an_answer_of_several_megabytes_is_whole(processor: TraceProcessor) -> None:
    """It comes in batches, and in pieces that end within a message."""
    rows = processor.query("with recursive n(i) as (select 0 union all select i + 1 from n where i < 99999) "
                           "select i, printf('%030d', i) as text from n")  # fmt: skip
    assert [int(row.text) for row in rows] == list(range(100_000))
