"""Measures a traced build in a process of its own: a kernel that hangs is reported, not suffered.

`python -m wsopt.trace.measure DIR` needs torch and triton only; DIR is a build to which `wsopt trace DIR --prepare`
has added its traced kernel. What is found is written beside that, and shown as a table.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from wsopt.errors import CheckError, RequirementError
from wsopt.exit_status import with_exit_status
from wsopt.runtime import guard
from wsopt.runtime.json_file import read_json
from wsopt.trace.document import document
from wsopt.trace.files import FOLDER, RECORDS, RESULT, load_stamped
from wsopt.trace.options import TraceOptions
from wsopt.trace.table import text

WORKER = (sys.executable, "-m", "wsopt.trace.worker")


@dataclass(slots=True)
class _Log:
    """A worker's output: facts of the machine, times of both kernels, the records of each launch, or what failed."""

    facts: dict[str, Any] = field(default_factory=dict)
    times: dict[str, list[float]] = field(default_factory=dict)
    launches: list[list[int]] = field(default_factory=list)
    failed: str = ""
    missing: str = ""
    done: bool = False


def measure_trace(
    folder: Path, options: TraceOptions | None = None, *, worker: Sequence[str] = WORKER
) -> dict[str, Any]:
    """Run a build's plain and traced kernels on this GPU; the document, written to `trace/trace.json` too.

    The words of each launch go to `trace/records.json`. Raises InputError without a traced kernel, RequirementError
    without a GPU, CheckError for a kernel that fails, hangs or computes something else, and for stamps out of order.
    """
    options = options or TraceOptions()
    stamped, graph = load_stamped(folder), read_json(folder / "graph.json")
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    log = _run(folder, options, worker)
    _write(folder / FOLDER / RECORDS, {"date": date, "launches": log.launches})
    found = document(stamped, graph, log.facts, log.times, log.launches, date)
    _write(folder / FOLDER / RESULT, found)
    return found


def _write(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, indent=None if path.name == RECORDS else 1) + "\n", encoding="utf-8")


def _run(folder: Path, options: TraceOptions, worker: Sequence[str]) -> _Log:
    """What a worker found. Raises RequirementError and CheckError."""
    with tempfile.TemporaryDirectory(prefix="wsopt-trace-") as scratch:
        log, output = Path(scratch) / "log.jsonl", Path(scratch) / "output.txt"
        command = [*worker, str(folder), "--log", str(log), "--options", options.to_text()]
        with output.open("wb") as file:
            process = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)
        try:
            in_time = guard.watch(process, guard.grows(log), options.limit_s)
        finally:
            guard.end(process)
        found, last = _read(log), guard.last_words(output, process.returncode)
    if found.missing:
        raise RequirementError(
            f"{found.missing}, and a trace is made on one; `wsopt trace {folder} --prepare` writes the traced "
            f"kernel, and `python3 -m wsopt.trace.measure {folder}` measures it where there is a GPU"
        )
    if not found.done:
        why = last if in_time else f"no result within {options.limit_s:g} s"
        raise CheckError(f"{folder}: no trace: {found.failed or why}")
    return found


def _read(path: Path) -> _Log:
    found = _Log()
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        # A worker that was killed may leave half a line.
        with contextlib.suppress(ValueError):
            data = json.loads(line)
            if "card" in data:
                found.facts = data
            elif "records" in data:
                found.launches.append(data["records"])
            else:
                for name, value in data.items():
                    setattr(found, name, value)
    return found


@with_exit_status
def main(arguments: Sequence[str]) -> int:
    """The command line: 0, or the exit status of what went wrong."""
    parser = argparse.ArgumentParser(prog="python -m wsopt.trace.measure", description=__doc__)
    parser.add_argument("folder", type=Path)
    for one in fields(TraceOptions):
        kind = int if one.type == "int" else float
        parser.add_argument("--" + one.name.replace("_", "-"), type=kind, default=one.default)
    chosen = vars(parser.parse_args(arguments))
    folder = chosen.pop("folder")
    print(text(measure_trace(folder, TraceOptions(**chosen))), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
