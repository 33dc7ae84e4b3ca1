"""The page of many builds and benchmarks: a table that sorts, a roofline with all, predicted against measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wsopt.bench.rows import Document, Row, Timing, load_document
from wsopt.errors import InputError, Problem
from wsopt.folder import BuildFolder, read_folder
from wsopt.machine.load import load_machine
from wsopt.machine.types import Machine
from wsopt.pages.html import page
from wsopt.pages.measured import read_trace
from wsopt.partition.build import is_cut, read_cut
from wsopt.ranges.build import is_range, read_range
from wsopt.report.layout import clean

_ROOF_MACHINE, _ROOF_TYPE = "h200", "bf16"
"""The card and type whose roof is drawn where documents alone are shown: they do not say which."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel in the table, times in microseconds: as predicted and, where it was, as measured with quartiles.

    `ratios` are baselines' times over the kernel's, with the distance of their quartiles where there is one. `source`
    is the file or folder that says it.
    """

    name: str
    source: str
    status: str
    structure: str = ""
    bound_by: str = ""
    flops: int | None = None
    bytes: int | None = None
    predicted_us: float | None = None
    roofline_us: float | None = None
    measured: Timing | None = None
    ratios: tuple[tuple[str, float, float | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Origin:
    """A file or folder of the report: where, when and with what it was measured, or for which card it was solved."""

    name: str
    words: str


def report_page(paths: Sequence[Path]) -> str:
    """The page of build folders and of benchmark files, in the order in which they are given.

    Raises InputError for a path that is neither, CheckError for a schedule that is not right.
    """
    entries, origins, machines = list[Entry](), list[Origin](), list[tuple[Machine, str]]()
    for path in paths:
        if path.is_dir():
            builds = list(_builds(path))
            machines += [(one.verified.machine, one.verified.program.whole.dtype.value) for _, one in builds]
            entries += [_of_build(name, path, one) for name, one in builds]
            card = clean(builds[0][1].verified.machine.title)
            origins.append(Origin(clean(str(path)), f"solved for {card}"))
        elif path.is_file():
            document = load_document(path)
            entries += [_of_row(row, path) for row in document.rows]
            origins.append(Origin(path.name, _measured_on(document)))
        else:
            told = "is neither a folder that compile wrote nor a file that bench --json wrote"
            raise InputError(str(path), [Problem("", told)])
    names = sorted({name for one in entries for name, _, _ in one.ratios})
    data = {"entries": [_data(one) for one in entries], "baselines": names, "roof": _roof(machines)}
    return page(
        "report.html.jinja",
        "report.js",
        data,
        title="Builds and benchmarks",
        origins=origins,
        count=len(entries),
    )


def _data(entry: Entry) -> dict[str, Any]:
    return {**asdict(entry), "ratios": {name: [ratio, spread] for name, ratio, spread in entry.ratios}}


def _builds(path: Path) -> Iterator[tuple[str, BuildFolder]]:
    """The kernels of a build, by name."""
    several = read_cut(path) if is_cut(path) else read_range(path) if is_range(path) else None
    if several is None:
        one = read_folder(path)
        yield one.graph.name, one
        return
    for number, kernel in enumerate(several.kernels):
        yield f"{several.graph.name}, kernel {number}", kernel


def _of_build(name: str, path: Path, found: BuildFolder) -> Entry:
    """A build: what it predicts, and what `wsopt trace` has measured of it."""
    schedule, whole = found.verified.schedule, found.verified.program.whole
    trace = read_trace(found.path, found.verified)
    return Entry(
        name=clean(name),
        source=clean(str(path)),
        status=found.certificate.status,
        structure=schedule.structure.describe(),
        bound_by=schedule.prediction.bound_by,
        flops=whole.needed_flops or None,
        bytes=whole.needed_bytes,
        predicted_us=schedule.prediction.microseconds,
        roofline_us=schedule.prediction.roofline_us,
        measured=Timing(**trace["times_us"]["plain"]) if trace else None,
    )


def _of_row(row: Row, path: Path) -> Entry:
    """A row of a benchmark: the time in a CUDA graph where there is one, as its table has it."""
    ratios = (
        (item.name, item.graph_ratio or item.ratio, item.graph_spread if item.graph_ratio else item.spread)
        for item in row.baselines
    )
    return Entry(
        name=clean(row.folder),
        source=path.name,
        status=row.status,
        flops=row.flops or None,
        bytes=row.bytes,
        predicted_us=row.predicted_us,
        roofline_us=row.roofline_us,
        measured=(row.kernel_graph or row.kernel) if row.status == "ok" else None,
        ratios=tuple((name, ratio, spread) for name, ratio, spread in ratios if ratio is not None),
    )


def _measured_on(document: Document) -> str:
    machine, versions = dict(document.machine), dict(document.versions)
    told = ", ".join(f"{name} {version}" for name, version in versions.items())
    device, driver = machine.get("device", "unknown device"), machine.get("driver", "unknown")
    return clean(f"measured on {device}, driver {driver}, {document.date}; {told}")


def _roof(machines: Sequence[tuple[Machine, str]]) -> dict[str, Any]:
    """The roof of the first build's card for bf16; of the H200 where benchmarks alone are shown."""
    machine = machines[0][0] if machines else load_machine(_ROOF_MACHINE)
    return {
        "machine": clean(machine.title),
        "type": _ROOF_TYPE,
        "tflops": machine.sustained_tflops(_ROOF_TYPE),
        "gbs": machine.dram_read_bandwidth / 1e9,
    }
