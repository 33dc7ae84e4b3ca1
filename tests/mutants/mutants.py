"""Deletes every wait, arrival, expectation and fence of every kernel, one at a time, and looks for what shows it.

    python tests/mutants/mutants.py                       all of it, as `make mutants` does
    python tests/mutants/mutants.py prepare -o DIR        the kernels into a folder
    python tests/mutants/mutants.py run DIR -o FILE       their mutants; with FILE there, those it does not have yet
    python tests/mutants/mutants.py merge DIR FILE ...    the table of some files

`run` and `merge` need NumPy, ml_dtypes and greenlet alone, and the repository in PYTHONPATH. Status 1: a mutant that
nothing shows and no entry of superfluous.toml explains, an entry that is not needed, or mutants that were not run.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from multiprocessing import get_context
from pathlib import Path

from mutants_files import line, read
from mutants_listed import Listed, complaints, places, read_list
from mutants_prepared import load, names, save
from mutants_run import Bench, Outcome, outcomes

from wsopt.interpret import Place, deletions

CHUNK = 6
"""Mutants that a process takes at a time."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; return the status."""
    chosen = _parser().parse_args(arguments)
    match chosen.command:
        case "prepare":
            return _prepare(chosen.output, chosen.only)
        case "run":
            _run(chosen.folder, chosen.output, chosen.jobs, chosen.seconds, chosen.only)
            return 0
        case "merge":
            return _report(chosen.folder, chosen.results, chosen.only)
    with tempfile.TemporaryDirectory() as scratch:
        folder, results = Path(scratch) / "kernels", Path(scratch) / "results.jsonl"
        _prepare(folder, chosen.only)
        _run(folder, results, chosen.jobs, None, chosen.only)
        return _report(folder, [results], chosen.only)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command")
    prepare, run, merge = (commands.add_parser(name) for name in ("prepare", "run", "merge"))
    for command in (run, merge):
        command.add_argument("folder", type=Path)
    prepare.add_argument("-o", "--output", type=Path, required=True)
    run.add_argument("-o", "--output", type=Path, required=True)
    run.add_argument("--seconds", type=float, help="when to stop; what was done is kept")
    merge.add_argument("results", type=Path, nargs="+")
    for command in (parser, run):
        command.add_argument("--jobs", type=int, default=os.cpu_count())
    for command in (parser, prepare, run, merge):
        command.add_argument("--only", nargs="+", metavar="KERNEL", help="these kernels alone")
    return parser


def _prepare(folder: Path, only: list[str] | None) -> int:
    sys.path.append(str(Path(__file__).parents[1] / "helpers"))
    from mutants_kernels import kernels, prepare

    for name in only or kernels():
        began = time.monotonic()
        save(prepare(name), folder)
        print(f"prepared {name} in {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
    return 0


# --- running --------------------------------------------------------------------------------------------


@cache
def _bench(folder: Path, name: str) -> Bench:
    return Bench.of(load(folder, name))


def _task(folder: Path, name: str, chosen: frozenset[Place], listed: frozenset[Place]) -> list[Outcome]:
    return list(outcomes(_bench(folder, name), chosen, listed))


def _run(folder: Path, output: Path, jobs: int, seconds: float | None, only: list[str] | None) -> None:
    """Run the mutants that `output` has no outcome of yet, in as many processes as there are jobs."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the processes have all cores at work
    done = read([output]) if output.exists() else {}
    listed = read_list()
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))
    tasks = [
        pool.submit(_task, folder, name, chunk, places(listed, name) & chunk)
        for name in only or names(folder)
        for chunk in _chunks(place for place in _places(folder, name) if (name, place) not in done)
    ]
    with output.open("a", encoding="utf-8") as file:
        try:
            for task in as_completed(tasks, seconds):
                file.writelines(line(outcome) + "\n" for outcome in task.result())
                file.flush()
        except TimeoutError:
            print("out of time", file=sys.stderr)
        finally:
            pool.shutdown(cancel_futures=True)


def _places(folder: Path, name: str) -> list[Place]:
    return [place for place, _ in deletions(load(folder, name).source)]


def _chunks(found: Iterable[Place]) -> list[frozenset[Place]]:
    whole = list(found)
    return [frozenset(whole[i : i + CHUNK]) for i in range(0, len(whole), CHUNK)]


# --- the table ------------------------------------------------------------------------------------------


def _report(folder: Path, results: list[Path], only: list[str] | None) -> int:
    """Print what became of the mutants of each kernel, and what is wrong; return the status."""
    listed, found = read_list(), read(results)
    chosen = only or names(folder)
    expected = {(name, place) for name in chosen for place in _places(folder, name)}
    done = [outcome for key, outcome in sorted(found.items()) if key in expected]
    print(_table(chosen, done, listed, expected))
    missing = len(expected) - len(done)
    wrong = complaints(done, listed, chosen if not missing else ())
    if missing:
        wrong.append(f"{missing} mutants were not run")
    print("\n".join(wrong))
    return 1 if wrong else 0


def _table(chosen: list[str], done: list[Outcome], listed: Listed, expected: set[tuple[str, Place]]) -> str:
    made = Counter(name for name, _ in expected)
    caught = Counter(outcome.kernel for outcome in done if outcome.fault)
    known = Counter(o.kernel for o in done if not o.fault and (o.kernel, o.place) in listed)
    left = Counter(o.kernel for o in done if not o.fault and (o.kernel, o.place) not in listed)
    rows = [(name, made[name], caught[name], known[name], left[name]) for name in chosen]
    rows.append(("all", *(sum(column) for column in zip(*(row[1:] for row in rows), strict=True))))
    head = f"{'kernel':28} {'mutants':>8} {'caught':>8} {'listed':>8} {'survived':>8}"
    return "\n".join([head, *(f"{name:28} {a:8} {b:8} {c:8} {d:8}" for name, a, b, c, d in rows)])


if __name__ == "__main__":
    sys.exit(main())
