"""Measures candidates in processes of their own: a kernel that hangs or is wrong is reported, not suffered.

`python -m wsopt.validate.measure DIR --json FILE` needs torch and triton only; DIR is what
`wsopt validate-model GRAPH... --candidates DIR` wrote, and `--measured FILE` takes the result in.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from wsopt.bench.bench_options import BenchOptions
from wsopt.errors import CheckError
from wsopt.exit_status import with_exit_status
from wsopt.runtime import guard
from wsopt.validate.files import (
    Measured,
    Measurement,
    load_candidates,
    measured_to_json,
    measurement_from_json,
    write_json,
)
from wsopt.validate.memory import at_a_time, available_bytes, ended_for_memory, tells_of_memory

WORKER = (sys.executable, "-m", "wsopt.validate.worker")
OPTIONS = BenchOptions(
    baselines=("sdpa_cudnn", "cublas", "scaled_mm"),
    # Near the power limit a kernel settles at one of two clocks, 8 % apart, now at one and now at the other.
    settled_rounds=9,
    sample_ms=20.0,
    hang_s=10.0,
    limit_s=120.0,
)
_MOST_PROCESSES = 12
Progress = Callable[[str, int, int], None]


@dataclass(slots=True)
class _Log:
    """A worker's output: facts of the machine, the item that it started last, its rows, the memory that it took."""

    facts: dict[str, Any] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    started: str = ""
    rows: list[Measurement] = field(default_factory=list)


def measure_candidates(
    folder: Path,
    options: BenchOptions = OPTIONS,
    *,
    worker: Sequence[str] = WORKER,
    progress: Progress = lambda stage, done, total: None,
    keep: Callable[[Measured], None] = lambda measured: None,
) -> Measured:
    """Check the numbers of all candidates of a folder, several at a time; then time those that are right.

    `keep` is called with what there is after each graph, so that an interruption keeps it. Raises CheckError
    where no worker gets as far as the GPU, or the GPU is not the one that was solved for.
    """
    found = load_candidates(folder)
    items = [f"{graph.name}/{one.name}" for graph in found.graphs for one in graph.candidates]
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    session = _Session(folder, options, worker)
    checked = session.check(items, progress)
    _check_card(session.facts, found.sms, found.machine)
    good = [item for item in items if checked[item].status == "ok"]
    rows = [row for item, row in checked.items() if row.status != "ok"]
    for done, graph in enumerate(found.graphs):
        progress("measure", done, len(found.graphs))
        rows += session.time([item for item in good if item.partition("/")[0] == graph.name])
        rows.sort(
            key=lambda row: (items.index(key) if (key := _key(row)) in items else len(items), _key(row))
        )
        measured = Measured(date, session.facts["card"], session.facts["versions"], tuple(rows))
        keep(measured)
    return measured


def _key(row: Measurement) -> str:
    return f"{row.graph}/{row.candidate}"


def _check_card(facts: Mapping[str, Any], sms: int, machine: str) -> None:
    card = facts["card"]
    if card.get("multiprocessors", sms) != sms:
        told = f"{card.get('device')} has {card['multiprocessors']} SMs, {machine} has {sms}"
        raise CheckError(f"the candidates were solved for another card: {told}")


@dataclass(slots=True)
class _Session:
    """The workers of one measurement; `facts` is what they say they run on, `memory` what the first one took."""

    folder: Path
    options: BenchOptions
    worker: Sequence[str]
    facts: dict[str, Any] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)

    def check(self, items: Sequence[str], progress: Progress) -> dict[str, Measurement]:
        """A row for every item, from processes that work beside each other; their kernels stay in Triton's cache.

        The first run alone until one has told how much memory it takes: then so many work at a time as have room.
        """
        rows, pending = dict[str, Measurement](), list(items)
        while pending and not self.memory:
            rows |= {_key(row): row for row in self._check_share([pending.pop(0)])}
            progress("check", len(rows), len(items))
        for found in self._beside(pending):
            rows |= {_key(row): row for row in found}
            progress("check", len(rows), len(items))
        # Several may not fit beside each other where each of them does.
        for item in items:
            if tells_of_memory(rows[item].message):
                rows[item] = self._again_alone(item)
        return {item: rows[item] for item in items}

    def _beside(self, items: Sequence[str]) -> Iterator[list[Measurement]]:
        """The rows of items that are dealt out to as many workers as have room beside each other."""
        if not items:
            return
        most = min(len(items), os.cpu_count() or 1, _MOST_PROCESSES)
        size = -(-len(items) // at_a_time(most, self.memory, available_bytes()))
        shares = [items[start : start + size] for start in range(0, len(items), size)]
        with ThreadPoolExecutor(len(shares)) as threads:
            yield from threads.map(self._check_share, shares)

    def _again_alone(self, item: str) -> Measurement:
        (row,) = self._check_share([item])
        if not tells_of_memory(row.message):
            return row
        return replace(row, message=f"{row.message}; it was checked twice, the second time alone")

    def _check_share(self, share: Sequence[str]) -> list[Measurement]:
        pending, rows = list(share), list[Measurement]()
        while pending:
            new, _ = self._run("check", pending)
            rows += new
            done = {_key(row) for row in rows}
            pending = [item for item in pending if item not in done]
        return rows

    def time(self, items: Sequence[str]) -> list[Measurement]:
        """Rows of one graph's candidates; one that hangs is named and the others are measured without it."""
        pending, rows, again = list(items), list[Measurement](), False
        while pending:
            new, named = self._run("time", pending)
            short = any(tells_of_memory(row.message) for row in new)
            if short and not again:
                again = True  # what was in the way may be gone
                continue
            rows += new
            if short or not named:
                # What ended the process is nobody's in particular.
                why = new[-1].message if new else "no result"
                graph, done = pending[0].partition("/")[0], {_key(row) for row in rows}
                names = [item.partition("/")[2] for item in pending if item not in done]
                return [row for row in rows if row.candidate] + [
                    Measurement(graph, name, "error", why) for name in names
                ]
            done = {_key(row) for row in rows}
            pending = [item for item in pending if item not in done]
        return rows

    def _run(self, mode: str, items: Sequence[str]) -> tuple[list[Measurement], bool]:
        """The rows of one worker, at least one, and whether each of them names an item."""
        with tempfile.TemporaryDirectory(prefix="wsopt-truth-") as scratch:
            log, output = Path(scratch) / "log.jsonl", Path(scratch) / "output.txt"
            options = ("--log", str(log), "--options", self.options.to_text())
            with output.open("wb") as file:
                command = [*self.worker, mode, *options, str(self.folder), *items]
                # A session of its own, for the compiler starts processes that have to go too.
                process = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)
            try:
                in_time = guard.watch(process, guard.grows(log), self.options.limit_s)
            finally:
                guard.end(process)
            found = _read(log)
            last = guard.last_words(output, process.returncode)
            memory = ended_for_memory(process.returncode, last) if in_time and not found.rows else ""
            last = f"{memory}: {last}" if memory else last
        if not found.facts and not (memory and self.facts):
            raise CheckError(f"no measurement could start: {last}")
        self.facts = found.facts or self.facts
        self.memory = self.memory or found.memory
        known = {item.partition("/")[2] for item in items} | {
            row.candidate for row in found.rows if row.baseline
        }
        if not found.rows:
            graph, _, name = (found.started or items[0]).partition("/")
            status, why = (
                ("error", last) if in_time else ("hang", f"no result within {self.options.limit_s:g} s")
            )
            return [Measurement(graph, name, status, why)], True
        return found.rows, all(row.candidate in known for row in found.rows)


def _read(path: Path) -> _Log:
    found = _Log()
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        # A worker that was killed may leave half a line.
        with contextlib.suppress(ValueError):
            line = json.loads(text)
            if "card" in line:
                found.facts = line
            elif "peak_bytes" in line:
                found.memory = line
            elif "start" in line:
                found.started = line["start"]
            else:
                found.rows.append(measurement_from_json(line["row"]))
    return found


@with_exit_status
def main(arguments: Sequence[str]) -> int:
    """The command line: 0, or the exit status of what went wrong."""
    parser = argparse.ArgumentParser(prog="python -m wsopt.validate.measure", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path, required=True, help="the file to write")
    chosen = parser.parse_args(arguments)
    measured = measure_candidates(
        chosen.folder, progress=_show, keep=lambda found: write_json(chosen.json, measured_to_json(found))
    )
    counts = {
        status: sum(row.status == status for row in measured.rows)
        for status in ("ok", "wrong", "hang", "error")
    }
    print(", ".join(f"{count} {status}" for status, count in counts.items()))
    return 0


def _show(stage: str, done: int, total: int) -> None:
    print(f"{stage}: {done} of {total}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
