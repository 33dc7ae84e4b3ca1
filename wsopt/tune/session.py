"""`wsopt tune`: writes the candidates of a graph as folders, measures them one by one, and stores the results."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wsopt.build import Build
from wsopt.cache import cache_folder
from wsopt.errors import InputError, Problem
from wsopt.folder import replace_folder
from wsopt.graph.types import Graph
from wsopt.machine.types import Machine
from wsopt.pool.workers import Workers
from wsopt.report import layout
from wsopt.tune.candidates import MANIFEST, Candidate, Candidates, candidates_text
from wsopt.tune.choose import Choice, choose
from wsopt.tune.database import Database
from wsopt.tune.measure import Measure, Tuning, measure_candidates, measure_folder
from wsopt.tune.races import Race, code_digest, key
from wsopt.tune.tuned import candidate_builds, choice_note, graph_key

DEFAULT_KEEP = 8

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Session:
    """A tuning run's graph and options: `keep` candidates, and no measurement is started after `seconds`.

    `again` measures what is known already; `workers` search instead of this process, if some are
    given; `tell` is called with a line for people.
    """

    graph: Graph
    machine: Machine
    keep: int = DEFAULT_KEEP
    seconds: float = float("inf")
    again: bool = False
    use_cache: bool = True
    workers: Workers | None = None
    measure: Measure = measure_folder
    progress: Progress = lambda stage, done, total: None
    tell: Callable[[str], None] = lambda message: None

    def candidates(self) -> tuple[Build, ...]:
        """The model's best, checked, simulated and compiled; of two with the same code the better one."""
        return candidate_builds(
            self.graph,
            self.machine,
            self.keep,
            use_cache=self.use_cache,
            workers=self.workers,
            progress=self.progress,
        )

    def write(self, path: Path) -> tuple[Build, ...]:
        """Write the candidates to a folder, for a machine that has a GPU and no solver; whole or not at all."""
        check_candidates_target(path)
        found = self.candidates()
        files = {MANIFEST: candidates_text(self._listed(found))}
        for rank, build in enumerate(found, 1):
            files |= {f"{_name(rank)}/{name}": text for name, text in build.files.items()}
        replace_folder(path, files)
        return found

    def run(self) -> dict[str, Any]:
        """Measure the candidates here and remember each as it ends; what was found, as plain data."""
        database = Database(cache_folder(), self.tell)
        known = {key(race) for race in database.races() if race.status != "error"}
        with tempfile.TemporaryDirectory(prefix="wsopt-tune-") as folder:
            found = self.write(Path(folder) / "candidates")
            tuning = Tuning(
                measure=self.measure,
                seconds=self.seconds,
                known=lambda race: not self.again and key(race) in known,
                on_race=lambda race: database.put([race]),
                progress=self.progress,
            )
            here = measure_candidates(Path(folder) / "candidates", tuning)[0]
        same = ("graph", "machine", "triton", "card")
        races = [r for r in database.races() if all(getattr(r, n) == getattr(here, n) for n in same)]
        return result(found, choose([code_digest(build.kernel) for build in found], races))

    def _listed(self, found: Sequence[Build]) -> Candidates:
        rows = tuple(
            Candidate(
                rank=rank,
                folder=_name(rank),
                source=code_digest(build.kernel),
                predicted_us=build.summary["predicted_us"],
                bound_us=rank_bound_us(build),
            )
            for rank, build in enumerate(found, 1)
        )
        return Candidates(
            graph=graph_key(self.graph),
            graph_name=self.graph.name,
            machine=self.machine.name,
            sms=self.machine.sm_count,
            keep=self.keep,
            candidates=rows,
        )


def rank_bound_us(build: Build) -> float:
    """Lower bound in microseconds, within the model, of all schedules that are not ranked before this one."""
    return float(json.loads(build.files["schedule.json"])["certificate"]["rank_bound_us"])


def _name(rank: int) -> str:
    return f"{rank:02}"


def check_candidates_target(path: Path) -> None:
    """Raise InputError if `path` is something that candidates must not replace."""
    if path.is_dir() and not any(path.iterdir()):
        return
    if path.is_symlink() or (path.exists() and not (path / MANIFEST).is_file()):
        raise InputError(str(path), [Problem("", "is there and holds no candidates; give another folder")])
    if not path.parent.is_dir():
        raise InputError(str(path), [Problem("", f"the folder {path.parent} does not exist")])


def result(found: Sequence[Build], choice: Choice) -> dict[str, Any]:
    """The object that `tune --json` prints: the choice, and a row for every candidate."""
    rows = []
    for build, pace, race in zip(found, choice.paces, choice.races, strict=True):
        kernel = build.summary["kernels"][0]
        rows.append(
            {
                "predicted_us": build.summary["predicted_us"],
                "bound_us": rank_bound_us(build),
                "structure": kernel["structure"],
                "rings": kernel["rings"],
                "status": race.status if race else "not measured",
                "message": race.message if race else "",
                "time_us": race.time_us if race else None,
                "ratio": pace.ratio if pace else None,
                "spread": pace.spread if pace else None,
            }
        )
    summary = found[0].summary
    chosen = {"chosen": choice_note(choice), "candidates": rows}
    return {"name": summary["name"], "machine": summary["machine"], **chosen}


def table(found: Mapping[str, Any], width: int = 100) -> list[str]:
    """The rows of a result as lines for people."""
    rows = []
    for rank, row in enumerate(found["candidates"], 1):
        s, depth = row["structure"], max(row["rings"].values())
        tile = f"{s['rows']}x{s['columns']}x{s['depth']}"
        rows.append(
            (
                f"{rank}{' *' if rank == found['chosen']['rank'] else ''}",
                f"{s['consumers']} x {tile} {s['sharing']}, ring {depth}, "
                f"subtiles {s['subtiles']}, group {s['group']}",
                f"{row['predicted_us']:,.2f}",
                "-" if row["time_us"] is None else f"{row['time_us']:,.2f}",
                "-" if row["ratio"] is None else f"{row['ratio']:.4f}",
                "-" if row["spread"] is None else f"{row['spread']:.4f}",
                row["message"] if row["status"] != "not measured" else "not measured",
            )
        )
    header = ("", "schedule", "predicted us", "measured us", "speed", "spread", "")
    return layout.table(header, rows, "<<>>>><", width)


def import_races(races: Sequence[Race], database: Database, triton: str) -> str:
    """Remember races from a file; returns a line for people."""
    database.put(races)
    graphs = len({race.graph for race in races})
    cards = ", ".join(sorted({race.card for race in races})) or "no card"
    line = f"{len(races)} results of {graphs} graph{'' if graphs == 1 else 's'} on {cards}"
    others = sorted({race.triton for race in races} - {triton})
    if others:
        count = sum(race.triton != triton for race in races)
        line += f"; {count} were measured with Triton {', '.join(others)} and wait for it (this is {triton})"
    return line
