"""What `wsopt trace` has measured of a build, beside what was predicted: for pages and for Perfetto."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wsopt.errors import InputError, Problem
from wsopt.pages.drawn import Bar, Picture, Row
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.trace.document import FORMAT
from wsopt.trace.files import FOLDER, RESULT


def read_trace(build: Path, verified: VerifiedSchedule) -> dict[str, Any] | None:
    """The trace.json beside a build; None where it was not traced.

    Raises InputError for a file that is damaged, or of another schedule.
    """
    path = build / FOLDER / RESULT
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text("utf-8"))
        schedule = found["schedule"]
        own = found["format"], schedule["structure"], schedule["ii_cycles"]
        partitions = {one["name"]: [op["op"] for op in one["ops"]] for one in found["partitions"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise refuse(path, f"is no trace.json of this release; trace the build again ({error})") from error
    wanted = FORMAT, verified.schedule.structure.describe(), verified.schedule.ii
    known = {str(op.id) for op in verified.program.loop}
    if own != wanted or any(op not in known for ops in partitions.values() for op in ops):
        raise refuse(path, "is of another schedule than schedule.json beside it; trace the build again")
    return dict(found)


def refuse(path: Path, why: str) -> InputError:
    """The error about a file of a trace."""
    return InputError(str(path), [Problem("", why)])


def measured_us(trace: Mapping[str, Any]) -> float:
    """Microseconds that the plain kernel took, the median."""
    return float(trace["times_us"]["plain"]["median_us"])


def measured_picture(trace: Mapping[str, Any]) -> Picture:
    """An iteration of every role: operations as they were scheduled, as they run in the model, and as measured.

    Starts count from the role's first operation.
    """
    rows, bars = list[Row](), list[Bar]()
    for partition in trace["partitions"]:
        if not any(op["measured"]["start"] for op in partition["ops"]):
            continue
        for kind in ("scheduled", "predicted", "measured"):
            rows.append(Row(f"{partition['name']} {kind}", kind if kind == "measured" else "role"))
            bars += _bars(partition["ops"], kind, len(rows) - 1)
    first = min((bar.begin for bar in bars), default=0.0)
    bars = [Bar(one.row, one.begin - first, one.end - first, one.op, label=one.label) for one in bars]
    total = max((bar.end for bar in bars), default=1.0)
    return Picture(tuple(rows), tuple(bars), (), (), total, (0.0, total))


def _bars(ops: list[Mapping[str, Any]], kind: str, row: int) -> Iterator[Bar]:
    for op in ops:
        start, issue = op["predicted"]["start"], float(op["predicted"]["issue"])
        if kind == "scheduled":
            start = op["predicted"]["scheduled"]
        if kind == "measured":
            if op["measured"]["start"] is None:
                continue
            start = op["measured"]["start"]["median"]
            issue = (op["measured"]["issue"] or {"median": 0.0})["median"]
        yield Bar(
            row, float(start), float(start) + max(issue, 1.0), op["op"], label=f"{kind} start {start:,.0f}"
        )


def differences(trace: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Operations that were measured, those furthest off first: starts in cycles, the difference in parts of II."""
    ii = trace["schedule"]["ii_cycles"]
    found = []
    for partition in trace["partitions"]:
        for op in partition["ops"]:
            start, issue = op["measured"]["start"], op["measured"]["issue"]
            if start is None:
                continue
            predicted = op["predicted"]
            found.append(
                {
                    "role": partition["name"],
                    "op": op["op"],
                    "words": op["words"],
                    "predicted": predicted["start"],
                    "measured": start["median"],
                    "lower": start["lower"],
                    "upper": start["upper"],
                    "off": (start["median"] - predicted["start"]) / ii,
                    "issue": predicted["issue"],
                    "measured_issue": issue["median"] if issue else None,
                }
            )
    return sorted(found, key=lambda one: (-abs(one["off"]), one["role"], one["op"]))
