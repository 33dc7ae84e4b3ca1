"""How long compiling takes, cold: `python -m wsopt.bench.compile_times GRAPH.json... --json FILE`. Needs no GPU.

One graph after the other is compiled by a process of its own that finds an empty cache, as a first call does. Give it
a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGES = ("ortools", "triton", "wsopt")


def compiled(graph: Path, machine: str) -> dict[str, Any]:
    """The seconds that compiling a graph takes by the clock and of all cores, and what the search came to.

    `status` is the certificate's, or "failed" with the last line of what the process said.
    """
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["compile", str(graph.resolve()), "--machine", machine, "-o", "build", "--json"]
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "wsopt", *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
            env=os.environ | {"WSOPT_CACHE_DIR": str(Path(folder) / "cache")},
        )
        seconds = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    row: dict[str, Any] = {"graph": graph.stem, "seconds": round(seconds, 1), "core_seconds": round(spent, 1)}
    if done.returncode:
        return row | {"status": "failed", "message": "".join(done.stderr.splitlines()[-1:])}
    found = json.loads(done.stdout)
    return row | {"status": found["status"], "gap": found["gap"], "structures": found["structures"]}


def document(graphs: Sequence[Path], machine: str) -> dict[str, Any]:
    """All graphs' times, with the machine and the versions that they were taken with."""
    rows = []
    for graph in graphs:
        rows.append(compiled(graph, machine))
        print(line(rows[-1]), file=sys.stderr, flush=True)
    return {
        "kind": "compile_times",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "compiled_for": machine,
        "host": {
            "cores": os.cpu_count(),
            "processor": platform.machine(),
            "python": platform.python_version(),
        },
        "versions": {name: version(name) for name in PACKAGES},
        "geometric_mean_s": round(statistics.geometric_mean(row["seconds"] for row in rows), 1),
        "most_s": max(row["seconds"] for row in rows),
        "rows": rows,
    }


def line(row: dict[str, Any]) -> str:
    """A graph's times as a line of text."""
    return f"{row['graph']:26} {row['seconds']:6.1f} s {row['core_seconds']:6.1f} s of cores  {row['status']}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile the graphs of the command line; 1 if one was not compiled."""
    parser = argparse.ArgumentParser(prog="python -m wsopt.bench.compile_times", description=__doc__)
    parser.add_argument("graphs", type=Path, nargs="+")
    parser.add_argument("--machine", default="h200")
    parser.add_argument("--json", type=Path, help="write the document here")
    given = parser.parse_args(arguments)
    found = document(given.graphs, given.machine)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(
        f"{len(found['rows'])} graphs: geometric mean {found['geometric_mean_s']} s, most {found['most_s']} s"
    )
    return int(any(row["status"] == "failed" for row in found["rows"]))


if __name__ == "__main__":
    sys.exit(main())
