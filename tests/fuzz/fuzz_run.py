"""Compiles random graphs for a while: `python tests/fuzz/fuzz_run.py --seconds 60`; `make fuzz` runs it.

Every graph has to compile, or to be refused with status 3. Whatever else happens is a finding: it is printed with
seed and index, its graph is written to `--out`, and the run ends with status 1. `--only INDEX` repeats one graph.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from multiprocessing.connection import wait
from pathlib import Path

from fuzz_graphs import FAMILIES, Made, random_graph
from fuzz_judge import COMPILED, Verdict, Worker
from fuzz_shrink import shrunk
from fuzz_table import Case, feature_table, kind_of, reasons

from wsopt.runtime.guard import append_line

LIMIT_S = 300.0
"""Seconds after which a compilation counts as hanging; the slowest searches take some eighty."""


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=60.0, help="begin no graph after so many seconds")
    parser.add_argument("--graphs", type=int, default=10**9, help="try at most so many graphs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="index of the first graph")
    parser.add_argument("--only", type=int, help="try this graph alone")
    parser.add_argument("--family", choices=FAMILIES, help="graphs of this family alone")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--out", type=Path, default=Path("out/fuzz"), help="folder for verdicts and the graphs of findings"
    )
    parser.add_argument("--shrink", action="store_true", help="make the graphs of findings small")
    return parser.parse_args()


def indices(o: argparse.Namespace) -> Iterator[int]:
    """The graphs to try, until the time is over."""
    if o.only is not None:
        yield o.only
        return
    end = time.monotonic() + o.seconds
    for index in range(o.first, o.first + o.graphs):
        if time.monotonic() > end:
            return
        yield index


def judged(o: argparse.Namespace) -> Iterator[tuple[Made, Case]]:
    """Graphs with their verdicts, as they come."""
    workers = [Worker(LIMIT_S) for _ in range(1 if o.only is not None else o.jobs)]
    busy: dict[Worker, tuple[int, Made]] = {}
    left = indices(o)
    while True:
        for worker in (w for w in workers if w not in busy):
            index = next(left, None)
            if index is None:
                break
            busy[worker] = index, random_graph(o.seed, index, o.family)
            worker.give(busy[worker][1].data)
        if not busy:
            break
        ready = wait([worker.connection for worker in busy], timeout=1.0)
        for worker in [w for w in busy if w.connection in ready or w.late]:
            index, made = busy.pop(worker)
            verdict = worker.answer()
            yield made, Case(index, made.features | {*verdict.chosen}, verdict)
    for worker in workers:
        worker.end()


def tell(o: argparse.Namespace, made: Made, case: Case) -> None:
    """Print a finding, and write its graph."""
    path = o.out / f"{o.seed}_{case.index}.json"
    path.write_text(json.dumps(made.data, indent=1) + "\n", encoding="utf-8")
    print(
        f"FINDING seed {o.seed} graph {case.index} ({path}), status {case.verdict.status}: {case.verdict.text}"
    )
    if o.shrink:
        small, verdict = _smallest(made, case.verdict)
        path.with_suffix(".small.json").write_text(json.dumps(small, indent=1) + "\n", encoding="utf-8")
        print(f"  smaller: {json.dumps(small)}\n  {verdict.text}")
    sys.stdout.flush()


def _smallest(made: Made, verdict: Verdict) -> tuple[dict[str, object], Verdict]:
    """The smallest graph that ends as this one did, and how that ended."""
    worker, last = Worker(LIMIT_S), [verdict]

    def ends_alike(data: dict[str, object]) -> bool:
        worker.give(data)
        found = worker.answer()
        alike = found.status == verdict.status and kind_of(found.text) == kind_of(verdict.text)
        if alike:
            last[0] = found
        return alike

    small = shrunk(made.data, ends_alike)
    worker.end()
    return small, last[0]


def main() -> int:
    """Run, print the table; 1 if there are findings."""
    o = options()
    cases: list[Case] = []
    o.out.mkdir(parents=True, exist_ok=True)
    for made, case in judged(o):
        cases.append(case)
        append_line(o.out / "verdicts.jsonl", {"seed": o.seed, "graph": case.index, **asdict(case.verdict)})
        if case.verdict.is_finding:
            tell(o, made, case)
        elif o.only is not None:
            print(f"{json.dumps(made.data)}\nstatus {case.verdict.status}: {case.verdict.text}")
    print(f"\n{feature_table(cases)}\n\nReasons of refusals:\n{reasons(cases)}\n")
    compiled = sum(case.verdict.status == COMPILED for case in cases)
    findings = [case.index for case in cases if case.verdict.is_finding]
    slowest = max(cases, key=lambda case: case.verdict.seconds)
    print(
        f"seed {o.seed}: {len(cases)} graphs, {compiled} compiled ({compiled / len(cases):.0%}), "
        f"{len(cases) - compiled - len(findings)} refused, {len(findings)} findings {findings}; "
        f"the slowest, {slowest.index}, took {slowest.verdict.seconds:.1f} s"
    )
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
