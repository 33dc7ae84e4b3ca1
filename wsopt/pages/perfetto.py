"""Traces for ui.perfetto.dev: units and roles as tracks, barriers as flows, predicted and measured.

Times are nanoseconds at the card's clock; each slice has its cycles among its arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackDescriptor, TrackEvent
from perfetto.trace_builder.proto_builder import TraceProtoBuilder

from wsopt.folder import BuildFolder
from wsopt.machine.types import Machine
from wsopt.pages.content import Beside
from wsopt.pages.drawn import Arrow, Bar, Picture
from wsopt.pages.measured import read_trace
from wsopt.pages.stamped import measured_bars
from wsopt.pages.timeline import timeline_picture
from wsopt.partition.build import CutFolder
from wsopt.report.layout import clean
from wsopt.report.words import named_ops
from wsopt.schedule.verified import VerifiedSchedule

_SEQUENCE = 1
PREDICTED, MEASURED = "predicted", "measured"


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice of a track, in cycles, with the flows that begin and end at it."""

    track: str
    name: str
    begin: float
    end: float
    facts: Mapping[str, str | int | float]
    gives: tuple[int, ...] = ()
    takes: tuple[int, ...] = ()


@dataclass(slots=True)
class TraceFile:
    """A trace in the making: groups of tracks, each with the slices of its tracks."""

    builder: TraceProtoBuilder = field(default_factory=TraceProtoBuilder)
    tracks: int = 0
    flows: int = 0

    def group(
        self,
        name: str,
        tracks: Sequence[str],
        slices: Sequence[Slice],
        machine: Machine,
        begin_us: float = 0.0,
    ) -> None:
        """Add a group of tracks in this order, its slices some time after the trace's beginning."""
        parent = self._track(name, None)
        numbers = {one: self._track(one, parent) for one in tracks}
        events = [
            event for one in slices for event in self._events(one, numbers[one.track], machine, begin_us)
        ]
        for time, _, fill in sorted(events, key=lambda event: event[:2]):
            packet = self.builder.add_packet()
            packet.timestamp, packet.trusted_packet_sequence_id = time, _SEQUENCE
            packet.track_event.CopyFrom(fill)

    def _track(self, name: str, parent: int | None) -> int:
        self.tracks += 1
        packet = self.builder.add_packet()
        packet.track_descriptor.uuid, packet.track_descriptor.name = self.tracks, name
        packet.track_descriptor.child_ordering = TrackDescriptor.ChildTracksOrdering.EXPLICIT
        if parent is not None:
            packet.track_descriptor.parent_uuid = parent
            packet.track_descriptor.sibling_order_rank = self.tracks
        return self.tracks

    def _events(
        self, one: Slice, track: int, machine: Machine, begin_us: float
    ) -> Iterator[tuple[int, int, TrackEvent]]:
        """The beginning and the end of a slice: when, which of two at one time comes first, and what."""
        begin, end = (round(begin_us * 1e3 + machine.seconds(time) * 1e9) for time in (one.begin, one.end))
        first = TrackEvent(type=TrackEvent.TYPE_SLICE_BEGIN, track_uuid=track, name=one.name)
        first.flow_ids.extend(one.gives)
        first.terminating_flow_ids.extend(one.takes)
        for name, value in {**one.facts, "begin_cycle": one.begin, "cycles": one.end - one.begin}.items():
            note = first.debug_annotations.add(name=name)
            if isinstance(value, str):
                note.string_value = value
            elif isinstance(value, int):
                note.int_value = value
            else:
                note.double_value = value
        yield begin, 1, first
        yield max(end, begin + 1), 0, TrackEvent(type=TrackEvent.TYPE_SLICE_END, track_uuid=track)

    def picture(self, name: str, verified: VerifiedSchedule, picture: Picture, begin_us: float = 0.0) -> None:
        """Add a picture's rows as tracks, and its arrows as flows between slices of roles."""
        words = {str(one.op.id): clean(one.words) for one in named_ops(verified)}
        roles = {number for number, row in enumerate(picture.rows) if row.kind == "role"}
        flows = self._flows(picture, roles)
        rows = _named_once([row.name for row in picture.rows])
        slices = [_slice(rows[bar.row], bar, words, flows.get(_key(bar), ((), ()))) for bar in picture.bars]
        slices += [Slice("phases", band.name, band.begin, band.end, {}) for band in picture.bands]
        phases = ["phases"] if picture.bands else []
        self.group(name, [*phases, *rows], slices, verified.machine, begin_us)

    def _flows(
        self, picture: Picture, roles: set[int]
    ) -> dict[tuple[int, str, float], tuple[tuple[int, ...], tuple[int, ...]]]:
        """The flows that begin and end at each bar of a role: arrows from its result, and arrows to its start."""
        gives: dict[tuple[int, str, float], list[int]] = {}
        takes: dict[tuple[int, str, float], list[int]] = {}
        bars: dict[tuple[int, str, int], list[Bar]] = {}
        for bar in picture.bars:
            if bar.row in roles and not bar.waits:
                bars.setdefault((bar.row, bar.op, bar.iteration), []).append(bar)
        for arrow in picture.arrows:
            source = bars.get((arrow.from_row, arrow.source, arrow.iteration))
            target = _at(picture, bars, arrow)
            if source and target is not None:
                self.flows += 1
                gives.setdefault(_key(source[-1]), []).append(self.flows)
                takes.setdefault(_key(target), []).append(self.flows)
        return {key: (tuple(gives.get(key, ())), tuple(takes.get(key, ()))) for key in {*gives, *takes}}

    def text(self) -> bytes:
        """The trace as bytes."""
        return bytes(self.builder.serialize())


def _key(bar: Bar) -> tuple[int, str, float]:
    return bar.row, bar.op, bar.begin


def _at(picture: Picture, bars: Mapping[tuple[int, str, int], Sequence[Bar]], arrow: Arrow) -> Bar | None:
    """The bar at whose begin an arrow ends."""
    later = range(arrow.iteration, arrow.iteration + 64)
    found = (
        bar
        for iteration in later
        for bar in bars.get((arrow.to_row, arrow.target, iteration), ())
        if abs(bar.begin - arrow.end) < 0.2
    )
    return next(found, None)


def _named_once(names: Sequence[str]) -> list[str]:
    """The names, each with a number where one stands twice."""
    return [name if names.count(name) == 1 else f"{name} ({place})" for place, name in enumerate(names)]


def _slice(
    row: str, bar: Bar, words: Mapping[str, str], flows: tuple[tuple[int, ...], tuple[int, ...]]
) -> Slice:
    told = words.get(bar.op, bar.label)
    name = f"wait: {told}" if bar.waits else bar.label or told
    facts: dict[str, str | int | float] = {"iteration": bar.iteration}
    facts |= {"op": bar.op} if bar.op else {}
    return Slice(row, name, bar.begin, bar.end, facts, *flows)


def build_trace(found: BuildFolder, beside: Beside | None = None) -> bytes:
    """The trace of a build of one kernel: its first tile as predicted, what was measured of it, and the predicted
    time line of the build that it is held against, if there is one.
    """
    file = TraceFile()
    _add(file, found, "")
    if beside is not None and beside.against is not None:
        name, verified, _ = beside.against
        file.picture(f"{PREDICTED}: {clean(name)}", verified, timeline_picture(verified))
    return file.text()


def cut_trace(found: CutFolder) -> bytes:
    """The trace of a build whose kernels run one after the other, each kernel's first tile at its launch."""
    file, now = TraceFile(), 0.0
    machine = found.kernels[0].verified.machine
    launches = list[Slice]()
    for number, step in enumerate(found.record.steps):
        begin, end = (
            us * 1e-6 / machine.seconds(1.0)
            for us in (now + machine.kernel_launch_us, now + step.predicted_us)
        )
        outputs = ", ".join(map(clean, step.outputs))
        launches.append(
            Slice("launches", f"{number}: {outputs}", min(begin, end), end, {"bound by": step.bound_by})
        )
        now += step.predicted_us
    file.group("whole", ["launches"], launches, machine)
    now = 0.0
    for number, step in enumerate(found.record.steps):
        kernel = found.kernels[found.record.folders.index(step.folder)]
        _add(file, kernel, f"launch {number}, ", now + machine.kernel_launch_us)
        now += step.predicted_us
    return file.text()


def _add(file: TraceFile, found: BuildFolder, prefix: str, begin_us: float = 0.0) -> None:
    verified = found.verified
    file.picture(f"{prefix}{PREDICTED}", verified, timeline_picture(verified), begin_us)
    trace = read_trace(found.path, verified)
    if trace is not None:
        file.picture(f"{prefix}{MEASURED}", verified, measured_bars(found.path, verified, trace), begin_us)
