"""What the page of a kernel shows, as plain data that goes into the page as one block of JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wsopt.errors import InputError, Problem
from wsopt.folder import SEARCH, BuildFolder
from wsopt.pages import figures
from wsopt.pages.drawn import Picture
from wsopt.pages.interval import interval_picture
from wsopt.pages.measured import differences, measured_picture, measured_us, read_trace
from wsopt.pages.source import EPILOGUE, links
from wsopt.pages.timeline import timeline_picture
from wsopt.report.against import Side, against_data
from wsopt.report.layout import clean, first_line
from wsopt.report.sentences import sentences
from wsopt.report.text import inspect_text
from wsopt.report.words import named_ops
from wsopt.schedule.certificate import Certificate
from wsopt.schedule.searched import read_search
from wsopt.schedule.verified import VerifiedSchedule


@dataclass(frozen=True, slots=True)
class Beside:
    """What a page shows beside the build: gains from more of each budget, as `whatif_data` has them, and another
    build of the same graph by the name that sentences give it.
    """

    what_if: Mapping[str, Any] | None = None
    against: tuple[str, VerifiedSchedule, Certificate] | None = None


def picture_data(picture: Picture) -> dict[str, Any]:
    """A picture for the page: bars and arrows as lists of their fields, whose names stand once; operations as numbers
    in a list of their own.
    """
    ops = sorted(
        {bar.op for bar in picture.bars} | {one for a in picture.arrows for one in (a.source, a.target)}
    )
    number = {op: place for place, op in enumerate(ops)}
    bars = [
        [b.row, b.begin, b.end, number[b.op], b.iteration, b.label, b.waits + 2 * b.goes + 4 * b.comes]
        for b in picture.bars
    ]
    arrows = [
        [number[a.source], number[a.target], a.from_row, a.begin, a.to_row, a.end, a.iteration, a.slack]
        for a in picture.arrows
    ]
    return {
        "rows": [dataclasses.asdict(row) for row in picture.rows],
        "ops": ops,
        "bars": bars,
        "arrows": arrows,
        "bands": [dataclasses.asdict(band) for band in picture.bands],
        "total": picture.total,
        "view": picture.view,
    }


def schedule_data(verified: VerifiedSchedule, lines: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """A schedule's pictures and its operations by text, with the numbers of their lines."""
    ops = {
        str(one.op.id): {
            "key": one.key,
            "words": clean(one.words),
            "kind": one.op.kind.value,
            "partition": one.placed.partition,
            "stage": one.stage,
            "cycle": one.placed.cycle,
            "issue": one.op.issue,
            "busy": one.op.busy,
            "latency": one.op.latency,
            "lines": list(lines.get(str(one.op.id), ())),
        }
        for one in named_ops(verified)
    }
    ops[EPILOGUE] = {
        "key": "E",
        "words": "epilogue",
        "kind": "epilogue",
        "partition": "",
        "lines": list(lines.get(EPILOGUE, ())),
    }
    return {
        "ii": verified.schedule.ii,
        "ops": ops,
        "interval": picture_data(interval_picture(verified)),
        "timeline": picture_data(timeline_picture(verified)),
    }


def kernel_data(found: BuildFolder, beside: Beside | None = None) -> dict[str, Any]:
    """All that the page of a build of one kernel shows.

    Raises InputError for a search.json or a trace.json that is damaged or of another schedule.
    """
    verified, certificate = found.verified, found.certificate
    beside, linked = beside or Beside(), links(verified, found.kernel)
    whole, trace = verified.program.whole, read_trace(found.path, verified)
    return {
        "name": clean(whole.name),
        "doc": first_line(whole.doc),
        "machine": clean(verified.machine.title),
        "structure": verified.schedule.structure.describe(),
        "status": certificate.status,
        "conditions": certificate.conditions,
        "binds": figures.what_binds(verified),
        "does": list(sentences(verified)),
        **schedule_data(verified, linked.lines),
        "unlinked": linked.why,
        "source": found.kernel,
        "rings": figures.rings(verified),
        "memory": figures.shared_memory(verified),
        "registers": figures.registers(verified, certificate.margin),
        "time": figures.time(verified),
        "roofline": figures.roofline(verified, certificate, measured_us(trace) if trace else None),
        "search": _search(found),
        "what_if": beside.what_if,
        "measured": _measured(trace) if trace else None,
        "against": _against(found, beside),
        "report": inspect_text(verified, certificate),
    }


def _search(found: BuildFolder) -> dict[str, Any]:
    """What became of every structure, where the build says it, and the counts of the certificate."""
    c, path = found.certificate, found.path / SEARCH
    counts = {
        "considered": c.considered,
        "pruned": c.pruned,
        "infeasible": sum(count for _, count in c.infeasible),
        "solved": c.solved,
        "unfinished": c.unfinished,
        "gap": c.gap,
        "bound_us": c.bound_us,
    }
    try:
        every = read_search(path.read_text("utf-8")) if path.is_file() else None
    except (OSError, ValueError) as error:
        told = f"cannot be read: {error}; remove it, or compile graph.json again"
        raise InputError(str(path), [Problem("", told)]) from error
    return {"counts": counts, "every": every, "us": found.verified.schedule.prediction.microseconds}


def _measured(trace: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "card": trace["card"]["device"],
        "date": trace["date"],
        "versions": trace["versions"],
        "us": trace["times_us"]["plain"],
        "cost": trace["cost"],
        "picture": picture_data(measured_picture(trace)),
        "ops": differences(trace),
    }


def _against(found: BuildFolder, beside: Beside) -> dict[str, Any] | None:
    """The other build's pictures, and why one of the two is faster."""
    if beside.against is None:
        return None
    name, verified, certificate = beside.against
    ours = Side("this build", found.verified, found.certificate)
    return {
        **schedule_data(verified, {}),
        "title": name,
        "compared": against_data(ours, Side(name, verified, certificate)),
    }
