"""Benchmarks build folders in processes of their own, so that a kernel that hangs is reported, not suffered.

`python -m wsopt.bench.bench DIR... --json FILE` needs torch and triton only.
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from wsopt.bench.bench_options import DEFAULT_BASELINES, BenchOptions
from wsopt.bench.rows import Document, Row, row_from_json, to_text
from wsopt.bench.table import text_table
from wsopt.errors import CheckError
from wsopt.exit_status import with_exit_status
from wsopt.runtime import guard

WORKER = (sys.executable, "-m", "wsopt.bench.bench_worker")


@dataclass(frozen=True, slots=True)
class _Report:
    """A worker's output so far: facts of the machine, how many folders it started, rows."""

    facts: Mapping[str, Any]
    started: int
    rows: tuple[Row, ...]


def bench_folders(
    folders: Sequence[Path],
    options: BenchOptions | None = None,
    *,
    json_path: Path | None = None,
    worker: Sequence[str] = WORKER,
    progress: Callable[[Row], None] = lambda _row: None,
) -> Document:
    """Benchmark build folders; every one gets a row, also if its kernel hangs or its process dies.

    With `json_path` the document is written there after each row, so that an interruption keeps the rest.
    `progress` is called with each row. Raises CheckError if no worker could say what it runs on.
    """
    options = options or BenchOptions()
    pending, rows, facts = list(folders), list[Row](), dict[str, Any]()
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def keep(report: _Report) -> None:
        if json_path is not None and report.rows:
            _write(json_path, to_text(_document(date, {**facts, **report.facts}, [*rows, *report.rows])))

    while pending:
        batch = pending if options.together else pending[:1]
        report, failure = _run_worker(batch, options, worker, keep)
        done = list(report.rows)
        if len(done) < len(batch) and failure is not None:
            done.append(failure)
        facts |= report.facts
        rows += done
        del pending[: len(done)]
        document = _document(date, facts, rows)
        if json_path is not None:
            _write(json_path, to_text(document))
        for row in done:
            progress(row)
    if not facts:
        raise CheckError(f"no benchmark could start: {rows[0].message if rows else 'no folders'}")
    return document


def _document(date: str, facts: Mapping[str, Any], rows: Sequence[Row]) -> Document:
    machine, versions = (tuple(sorted(facts.get(name, {}).items())) for name in ("machine", "versions"))
    return Document(date, machine, versions, tuple(rows))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


# --- one worker -----------------------------------------------------------------------------------------


def _run_worker(
    batch: Sequence[Path], options: BenchOptions, worker: Sequence[str], keep: Callable[[_Report], None]
) -> tuple[_Report, Row | None]:
    """Run a worker on folders: its output, and a row for the folder at which it ended without one, if it did. `keep`
    is called with what there is whenever the worker has written more.
    """
    with tempfile.TemporaryDirectory(prefix="wsopt-bench-") as folder:
        rows, log = Path(folder) / "rows.jsonl", Path(folder) / "log.txt"
        command = [*worker, "--rows", str(rows), "--options", options.to_text(), *map(str, batch)]
        with log.open("wb") as output:
            # A session of its own, for Inductor starts processes that have to go too.
            process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        try:
            in_time = guard.watch(process, _told(rows, keep), options.limit_s)
        finally:
            guard.end(process)
        report = _read(rows)
        # A worker that wrote a row for its failure has nothing more to say.
        if len(report.rows) and len(report.rows) == report.started:
            return report, None
        path = batch[len(report.rows)]
        if not in_time:
            return report, Row(path.name, path.name, "hang", f"no result within {options.limit_s:g} s")
        return report, Row(path.name, path.name, "error", guard.last_words(log, process.returncode))


def _told(rows: Path, keep: Callable[[_Report], None]) -> Callable[[], bool]:
    """Whether a worker has written more, which is kept then."""
    grown = guard.grows(rows)

    def told() -> bool:
        found = grown()
        if found:
            keep(_read(rows))
        return found

    return told


def _read(rows: Path) -> _Report:
    lines = []
    if rows.exists():
        for text in rows.read_text(encoding="utf-8").splitlines():
            # A worker that was killed may leave half a line.
            with contextlib.suppress(ValueError):
                lines.append(json.loads(text))
    facts: Mapping[str, Any] = next((line for line in lines if "machine" in line), {})
    started = sum("start" in line for line in lines)
    return _Report(facts, started, tuple(row_from_json(line["row"]) for line in lines if "row" in line))


# --- the command ----------------------------------------------------------------------------------------


@with_exit_status
def main(arguments: Sequence[str]) -> int:
    """The command line; 0 if every row is ok, else 4, or the exit status of an error."""
    document = _command(arguments)
    print(text_table(document), end="")
    return 0 if all(row.status == "ok" for row in document.rows) else CheckError.exit_status


def _command(arguments: Sequence[str]) -> Document:
    parser = argparse.ArgumentParser(prog="python -m wsopt.bench.bench", description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--baseline", default=",".join(DEFAULT_BASELINES), help="names with commas between")
    parser.add_argument("--json", type=Path, help="write the document here")
    parser.add_argument(
        "--against", default="", metavar="DIR", help="a build of the same graph to time beside"
    )
    parser.add_argument("--together", action="store_true", help="share a process, which starts once")
    for field in fields(BenchOptions):
        if field.type in ("int", "float"):
            kind = int if field.type == "int" else float
            parser.add_argument("--" + field.name.replace("_", "-"), type=kind, default=field.default)
    chosen = vars(parser.parse_args(arguments))
    folders, json_path, names = (chosen.pop(name) for name in ("folders", "json", "baseline"))
    options = BenchOptions(baselines=tuple(filter(None, names.split(","))), **chosen)
    return bench_folders(folders, options, json_path=json_path, progress=_show)


def _show(row: Row) -> None:
    print(f"{row.folder}: {row.status} {row.message}".rstrip(), file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
