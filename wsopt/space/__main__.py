"""Solves graphs with all limits of the emitter and without each: `python -m wsopt.space GRAPH... --json FILE`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from wsopt import __version__
from wsopt.exit_status import with_exit_status
from wsopt.frontend.region import find_region
from wsopt.graph.parse import load_graph
from wsopt.machine.load import load_machine
from wsopt.machine.types import Machine
from wsopt.solve.without import WORK, Relaxed, Without
from wsopt.space.figures import Figures, Gain, Row, to_json


def figures(graphs: Sequence[Path], machine: Machine, work: float, date: str) -> Figures:
    """The figures of graphs, one after the other; progress goes to stderr."""
    rows = []
    for path in graphs:
        print(path.stem, file=sys.stderr)
        relaxed = Relaxed(find_region(load_graph(path)), machine, work=work)
        best = relaxed.base.schedule
        gains = tuple(_gain(one) for one in relaxed.without_each())
        rows.append(Row(path.stem, relaxed.base_us, best.structure.describe(), best.ii, gains))
    versions = {"wsopt": __version__, "ortools": version("ortools")}
    return Figures(machine.name, date, versions, work, tuple(rows))


def _gain(found: Without) -> Gain:
    """What was found without a limit, as a record."""
    told = found.schedule.structure.describe() if found.schedule is not None else ""
    return Gain(found.limit, found.structures, found.best_us, found.least_us, found.decided, told, found.ii)


@with_exit_status
def main(arguments: Sequence[str]) -> int:
    """The command line: 0, or the exit status of what is wrong with an input."""
    parser = argparse.ArgumentParser(prog="python -m wsopt.space", description=__doc__)
    parser.add_argument("graphs", type=Path, nargs="+", help="graph files")
    parser.add_argument("--machine", default="h200")
    parser.add_argument("--json", type=Path, required=True, help="the file to write")
    parser.add_argument(
        "--work", type=float, default=WORK, help="deterministic time of each search without a limit"
    )
    parser.add_argument("--date", default=datetime.now(UTC).date().isoformat())
    chosen = parser.parse_args(arguments)
    found = figures(chosen.graphs, load_machine(chosen.machine), chosen.work, chosen.date)
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    chosen.json.write_text(json.dumps(to_json(found), indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
