"""Runs a calibration: worker processes with a time limit, more than one, so that a re-run is in the spread."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wsopt.calibrate.samples import Document
from wsopt.errors import CheckError
from wsopt.runtime import guard

WORKER = (sys.executable, "-m", "wsopt.calibrate.worker")
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Options:
    """`only`: beginnings of names, all for none. `processes` workers of `rounds` rounds each; a worker that
    says nothing for `limit_s` seconds is ended, and after `most_failures` failed probes it is enough."""

    only: tuple[str, ...] = ()
    processes: int = 2
    rounds: int = 4
    limit_s: float = 60.0
    most_failures: int = 8


@dataclass(slots=True)
class _Gathered:
    facts: dict[str, Any] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


def calibrate(
    options: Options,
    progress: Progress = lambda _stage, _done, _total: None,
    worker: Sequence[str] = WORKER,
) -> Document:
    """Measure this machine's GPU.

    A probe that hangs or fails is left out from then on and named in the document. Raises CheckError if no
    worker got as far as the GPU, and if more probes fail than `most_failures`.
    """
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    found = _Gathered()
    done = 0
    while done < options.processes:
        ended = _run_worker(options, found, progress, worker)
        if ended is None:
            done += 1
        else:
            name, message = ended
            if not name:
                raise CheckError(f"calibrate could not start: {message}")
            found.failures[name] = message
        if len(found.failures) > options.most_failures:
            name, message = next(iter(found.failures.items()))
            raise CheckError(f"calibrate gave up on {len(found.failures)} measurements; {name}: {message}")
    samples = {name: tuple(values) for name, values in found.samples.items()}
    facts = found.facts
    return Document(date, facts.get("machine", {}), facts.get("versions", {}), samples, found.failures)


def _run_worker(
    options: Options, found: _Gathered, progress: Progress, worker: Sequence[str]
) -> tuple[str, str] | None:
    """Run one worker to its end; the probe that ended it early, and why (no name: before any probe)."""
    with tempfile.TemporaryDirectory(prefix="wsopt-calibrate-") as folder:
        lines, log = Path(folder) / "lines.jsonl", Path(folder) / "log.txt"
        skipped = [word for name in sorted(found.failures) for word in ("--skip", name)]
        command = [*worker, "--log", str(lines), "--rounds", str(options.rounds), *skipped, *options.only]
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        reader = _Reader(lines, found, progress)
        try:
            in_time = guard.watch(process, reader.read, options.limit_s)
        finally:
            guard.end(process)
        reader.read()
        if process.returncode == 0:
            return None
        if not in_time:
            return reader.started, f"no result within {options.limit_s:g} s"
        return reader.started, reader.message or guard.last_words(log, process.returncode)


class _Reader:
    """Follows what a worker writes."""

    def __init__(self, path: Path, found: _Gathered, progress: Progress) -> None:
        self._path, self._found, self._progress = path, found, progress
        self._offset = 0
        self.started = ""
        self.message = ""

    def read(self) -> bool:
        """Take in the lines that are new and whole; whether there were any."""
        if not self._path.exists():
            return False
        with self._path.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            self._take(json.loads(line))
        return bool(whole)

    def _take(self, line: dict[str, Any]) -> None:
        if "machine" in line:
            self._found.facts = line
        elif "start" in line:
            self.started = line["start"]
        elif "failed" in line:
            self._found.failures[line["failed"]] = self.message = line["message"]
        elif "stage" in line:
            self._progress(line["stage"], line["done"], line["total"])
        elif "figures" in line:
            for name, value in line["figures"].items():
                self._found.samples.setdefault(name, []).append(value)
