"""Measures candidates on this GPU, each in a process of its own beside the model's first choice.

`python -m wsopt.tune.measure DIR -o FILE` needs torch and triton only; DIR is what `wsopt tune --candidates DIR`
wrote, and `wsopt tune --import FILE` takes the result in.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wsopt.bench.bench import WORKER, bench_folders
from wsopt.bench.bench_options import BenchOptions
from wsopt.bench.rows import BaselineRow, Document, Row
from wsopt.errors import CheckError
from wsopt.exit_status import with_exit_status
from wsopt.tune.candidates import Candidate, Candidates, load_candidates
from wsopt.tune.races import Race, key, load_races, write_races

OPTIONS = BenchOptions(baselines=(), limit_s=120.0)

Measure = Callable[[Path, BenchOptions], Document]
Known = Callable[[Race], bool]


def measure_folder(folder: Path, options: BenchOptions) -> Document:
    """The benchmark of one folder, in a process of its own."""
    return bench_folders([folder], options, worker=WORKER)


@dataclass(frozen=True, slots=True)
class Tuning:
    """How candidates are measured: with which benchmark, until when, and what is known already.

    `known` is asked for each candidate but the first, whose own race says which card and Triton these are.
    """

    measure: Measure = measure_folder
    seconds: float = math.inf
    known: Known = lambda race: False
    on_race: Callable[[Race], None] = lambda race: None
    progress: Callable[[str, int, int], None] = lambda stage, done, total: None


def measure_candidates(path: Path, tuning: Tuning) -> tuple[Race, ...]:
    """Race every candidate of a folder that is not known against the first; the first races itself.

    `on_race` is called with each race as it ends, so that an interruption keeps those before it. After
    `seconds` no further one starts. Raises CheckError if the first choice itself fails here, a benchmark
    cannot run, or this is not the card that was compiled for.
    """
    found = load_candidates(path)
    first, races = found.candidates[0], list[Race]()
    deadline = time.monotonic() + tuning.seconds
    for done, candidate in enumerate(found.candidates):
        tuning.progress("measure", done, len(found.candidates))
        if races and tuning.known(_naming(candidate, races[0])):
            continue
        limit_s = min(OPTIONS.limit_s, deadline - time.monotonic())
        if races and limit_s <= 0:
            break
        race = _measured(path, found, candidate, tuning, max(limit_s, 1.0))
        if race.status == "hang" and limit_s < OPTIONS.limit_s and races:
            break  # it was the end of our time, not a kernel that does not end
        races.append(race)
        tuning.on_race(race)
        if candidate is first and race.status != "ok":
            told = f"{race.status}: {race.message}"
            raise CheckError(
                f"graph {found.graph_name}: the model's first choice fails on {race.card}: {told}"
            )
    return tuple(races)


def _naming(candidate: Candidate, like: Race) -> Race:
    """A race of this candidate on the same card, without figures."""
    return dataclasses.replace(like, source=candidate.source, rank=candidate.rank)


def _measured(path: Path, found: Candidates, candidate: Candidate, tuning: Tuning, limit_s: float) -> Race:
    """A candidate beside the first, in a process of its own."""
    against = str(path / found.candidates[0].folder)
    document = tuning.measure(
        path / candidate.folder, dataclasses.replace(OPTIONS, against=against, limit_s=limit_s)
    )
    facts, versions, row = dict(document.machine), dict(document.versions), document.rows[0]
    _check_card(found, facts)
    race = Race(
        graph=found.graph,
        machine=found.machine,
        source=candidate.source,
        against=found.candidates[0].source,
        triton=versions["triton"],
        card=str(facts["device"]),
        status=row.status,
        graph_name=found.graph_name,
        keep=found.keep,
        rank=candidate.rank,
        predicted_us=candidate.predicted_us,
        date=document.date,
        wsopt=versions.get("wsopt", ""),
        torch=versions.get("torch", ""),
        driver=str(facts.get("driver", "")),
        message=row.message,
    )
    return race if row.status != "ok" else _with_times(race, row)


def _check_card(found: Candidates, facts: Mapping[str, object]) -> None:
    sms = facts.get("multiprocessors", found.sms)
    if sms != found.sms:
        told = f"{facts['device']} has {sms} SMs, {found.machine} has {found.sms}; give its own --machine"
        raise CheckError(f"graph {found.graph_name}: compiled for another card: {told}")


def _with_times(race: Race, row: Row) -> Race:
    other: BaselineRow | None = next(iter(row.baselines), None)
    in_graph = other is not None and other.graph_time is not None and row.kernel_graph is not None
    ours = row.kernel_graph if in_graph else row.kernel
    theirs = (other.graph_time if in_graph else other.time) if other else None
    if other is None or ours is None or theirs is None:
        why = other.reason if other else "no row of it"
        raise CheckError(f"graph {race.graph_name}: the first choice cannot be timed beside: {why}")
    return dataclasses.replace(
        race,
        time_us=ours.median_us,
        against_us=theirs.median_us,
        ratio=other.graph_ratio if in_graph else other.ratio,
        spread=other.graph_spread if in_graph else other.spread,
    )


def described(race: Race) -> str:
    """A race's result in a few words."""
    if race.ratio is None or race.spread is None or race.time_us is None:
        return f"{race.status}: {race.message}"
    return f"{race.time_us:.2f} us, {race.ratio:.4f} +- {race.spread:.4f} times as fast as the first"


# --- the command ----------------------------------------------------------------------------------------


@with_exit_status
def main(arguments: Sequence[str]) -> int:
    """The command line; 0 if every candidate that was tried has a result, else the error's exit status."""
    parser = argparse.ArgumentParser(prog="python -m wsopt.tune.measure", description=__doc__)
    parser.add_argument("folder", type=Path, help="what `wsopt tune --candidates` wrote")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the file of results; added to")
    parser.add_argument("--seconds", type=float, default=math.inf, help="start no candidate after these")
    chosen = parser.parse_args(arguments)
    _command(chosen.folder, chosen.output, chosen.seconds)
    return 0


def _command(folder: Path, output: Path, seconds: float) -> None:
    races = {key(race): race for race in (load_races(output) if output.exists() else ())}

    def keep(race: Race) -> None:
        races[key(race)] = race
        write_races(output, races.values())
        print(f"candidate {race.rank}: {described(race)}", file=sys.stderr, flush=True)

    def known(race: Race) -> bool:
        return key(race) in races and races[key(race)].status != "error"

    measure_candidates(folder, Tuning(seconds=seconds, known=known, on_race=keep))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
