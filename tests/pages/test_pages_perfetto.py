"""Traces for Perfetto, read back by its own classes; `test_pages_processor.py` loads them in its trace processor."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from page_builds import Pages, cut_folder, write_build
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as Packets
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent
from trace_records import records

from wsopt.emit.source import emit
from wsopt.emit.stamps import Trace
from wsopt.folder import read_folder
from wsopt.pages.content import Beside
from wsopt.pages.perfetto import build_trace, cut_trace
from wsopt.pages.timeline import timeline_picture
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.trace.files import FOLDER, KERNEL, RECORDS, RESULT, STAMPS, Stamped, to_text
from wsopt.trace.make import stamped_of


@dataclass
class ReadBack:
    """A trace as its packets have it: slices by group and track, and the flows between them."""

    slices: dict[tuple[str, str], list[tuple[str, int, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    gives: dict[int, tuple[str, str]] = field(default_factory=dict)
    takes: dict[int, tuple[str, str]] = field(default_factory=dict)
    ops: dict[str, int] = field(default_factory=lambda: defaultdict(int))


def read_back(content: bytes) -> ReadBack:
    """Parse a trace; every slice ends on its track before the next one begins."""
    trace = Packets()
    trace.ParseFromString(content)
    tracks: dict[int, tuple[str, str]] = {}
    names: dict[int, str] = {}
    found, under_way = ReadBack(), dict[int, tuple[str, int]]()
    last = defaultdict[str, int](int)
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            one = packet.track_descriptor
            names[one.uuid] = one.name
            tracks[one.uuid] = (names.get(one.parent_uuid, ""), one.name)
            continue
        event, group = packet.track_event, tracks[packet.track_event.track_uuid][0]
        assert packet.timestamp >= last[group], "packets of a group come in the order of time"
        last[group] = packet.timestamp
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            assert event.track_uuid not in under_way, f"{event.name} begins within another slice"
            under_way[event.track_uuid] = (event.name, packet.timestamp)
            found.gives |= dict.fromkeys(event.flow_ids, tracks[event.track_uuid])
            found.takes |= dict.fromkeys(event.terminating_flow_ids, tracks[event.track_uuid])
            for note in event.debug_annotations:
                if note.name == "op":
                    found.ops[note.string_value] += 1
        else:
            name, begin = under_way.pop(event.track_uuid)
            found.slices[tracks[event.track_uuid]].append((name, begin, packet.timestamp))
    assert not under_way
    return found


def test_units_and_roles_are_tracks_with_the_time_lines_slices(pages: Pages) -> None:
    found = pages.builds["attention_causal"]
    picture, back = timeline_picture(found.verified), read_back(build_trace(found))
    for number, row in enumerate(picture.rows):
        own = [bar for bar in picture.bars if bar.row == number]
        slices = back.slices["predicted", row.name]
        assert len(slices) == len(own), row.name
        begins = sorted(round(found.verified.machine.seconds(bar.begin) * 1e9) for bar in own)
        assert [begin for _, begin, _ in sorted(slices, key=lambda one: one[1])] == begins
    assert {name for name, _, _ in back.slices["predicted", "phases"]} >= {
        "prologue",
        "steady state",
        "epilogue",
    }


def test_barriers_are_flows_between_roles(pages: Pages) -> None:
    found = pages.builds["gemm_swiglu"]
    back, picture = read_back(build_trace(found)), timeline_picture(found.verified)
    assert back.gives.keys() == back.takes.keys()
    assert len(back.gives) == len(picture.arrows) > 100
    pairs = {(back.gives[flow][1], back.takes[flow][1]) for flow in back.gives}
    assert pairs == {
        (a, b) for c in ("consumer0", "consumer1", "consumer2") for a, b in (("loader0", c), (c, "loader0"))
    }


def test_what_was_measured_stands_beside_it(pages: Pages) -> None:
    back = read_back(build_trace(pages.builds["gemm_bf16"]))
    trace = json.loads((pages.folder / "gemm_bf16" / FOLDER / RESULT).read_text(encoding="utf-8"))
    for partition in trace["partitions"]:
        seen = [op for op in partition["ops"] if op["measured"]["start"]]
        assert len(back.slices.get(("measured", partition["name"]), ())) == len(seen)
    assert len([key for key in back.slices if key[0] == "measured"]) == 3


def test_records_of_a_tile_are_shown_one_by_one(tmp_path: Path) -> None:
    """A traced kernel whose operations start as predicted, but for one that comes 40 cycles late."""
    trace = Trace(blocks=2, tiles=2, iterations=12)
    verified = write_build(tmp_path / "build", "golden-plain")
    source = emit(verified, trace)
    stamped = stamped_of(verified, trace, source)
    apart = {late: _products(tmp_path / "build", verified, source, stamped, late) for late in (0, 40)}
    assert len(apart[0]) >= 6
    machine = verified.machine
    steps = sorted(after - before for before, after in itertools.pairwise(apart[0]))
    assert steps[len(steps) // 2] == pytest.approx(machine.seconds(stamped.runs) * 1e9, abs=2)
    behind = [after - before for before, after in zip(apart[0], apart[40], strict=True)]
    assert all(one == pytest.approx(machine.seconds(40) * 1e9, abs=2) for one in behind)


def _products(build: Path, verified: VerifiedSchedule, source: str, stamped: Stamped, late: int) -> list[int]:
    """When the second consumer's products begin in the trace of records in which they are so late."""
    words = records(stamped, 8, late={"mma:p@1": late})
    folder = build / FOLDER
    folder.mkdir(exist_ok=True)
    (folder / KERNEL).write_text(source, encoding="utf-8")
    (folder / STAMPS).write_text(to_text(stamped), encoding="utf-8")
    (folder / RECORDS).write_text(json.dumps({"launches": [words]}), encoding="utf-8")
    (folder / RESULT).write_text(json.dumps(_result(verified)), encoding="utf-8")
    slices = read_back(build_trace(read_folder(build))).slices["measured", "consumer1"]
    return [begin for name, begin, _ in slices if name == "product, consumer 1"]


def _result(verified: VerifiedSchedule) -> dict[str, Any]:
    """A trace.json without operations: those are in the records."""
    return {
        "format": "wsopt.trace/2",
        "schedule": {"structure": verified.schedule.structure.describe(), "ii_cycles": verified.schedule.ii},
        "partitions": [],
    }


def test_two_builds_and_several_kernels(pages: Pages, tmp_path: Path) -> None:
    found = pages.builds["layer_norm"]
    back = read_back(build_trace(found, Beside(against=("the other", found.verified, found.certificate))))
    assert {group for group, _ in back.slices} == {"predicted", "predicted: the other"}
    assert back.slices["predicted", "consumer0"] == back.slices["predicted: the other", "consumer0"]
    cut = cut_folder(tmp_path)
    back = read_back(cut_trace(cut))
    launches = back.slices["whole", "launches"]
    assert [name for name, _, _ in launches] == ["0: h", "1: u", "2: y"]
    for number, (_, begin, end) in enumerate(launches):
        own = [
            one
            for (group, _), all_ in back.slices.items()
            if group.startswith(f"launch {number},")
            for one in all_
        ]
        assert begin <= min(first for _, first, _ in own)
        us = cut.record.steps[number].predicted_us - cut.kernels[0].verified.machine.kernel_launch_us
        assert end - begin == pytest.approx(us * 1e3, abs=2)
