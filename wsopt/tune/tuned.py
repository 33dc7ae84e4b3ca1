"""`compile --tuned`: the build that earlier measurements choose, without measuring anything."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from wsopt.batch import BuildTask, build_one
from wsopt.build import Build
from wsopt.cache import cache_folder
from wsopt.driver import builds
from wsopt.errors import NotMeasuredError
from wsopt.graph.serialize import canonical_bytes
from wsopt.graph.types import Graph
from wsopt.machine.types import Machine
from wsopt.pool.workers import Workers
from wsopt.report.tuned import tuned_text
from wsopt.requirements import require_triton
from wsopt.tune.choose import Choice, choose
from wsopt.tune.database import Database
from wsopt.tune.races import Race, code_digest

_HOW = "measure it with `wsopt tune GRAPH`, or bring results in with `wsopt tune --import FILE`"


def graph_key(graph: Graph) -> str:
    """A digest of what a graph computes; its name and its words for people are no part of it."""
    return hashlib.sha256(canonical_bytes(replace(graph, name="graph", doc=""))).hexdigest()


def triton_version() -> str:
    """The Triton release that kernels are compiled with here. Raises RequirementError where there is none."""
    require_triton("choosing by measurements")
    return importlib.metadata.version("triton")


def tuned_build(
    graph: Graph,
    machine: Machine,
    *,
    card: str | None = None,
    use_cache: bool = True,
    progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
    tell: Callable[[str], None] = lambda message: None,
) -> Build:
    """The build that what was measured on `card` chooses among the model's candidates.

    The candidates are this version's; a result counts for each whose code is what was measured. Raises
    NotMeasuredError if nothing was measured that says which to take, else as `driver.build`.
    """
    require_triton("compiling a kernel")
    races = relevant(graph, machine, Database(cache_folder(), tell).races(), card)
    keep = max(race.keep for race in races)
    found = candidate_builds(graph, machine, keep, use_cache=use_cache, progress=progress)
    choice = choose([code_digest(build.kernel) for build in found], races)
    if choice.races[0] is None:
        raise _refuse(
            graph,
            f"this version's first choice was not measured on {races[0].card}, only {choice.measured} of its "
            f"other {len(found) - 1} candidates; model, machine file or emitter have changed since; {_HOW}",
        )
    return with_choice(found, choice)


def candidate_builds(
    graph: Graph,
    machine: Machine,
    keep: int,
    *,
    use_cache: bool = True,
    workers: Workers | None = None,
    progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> tuple[Build, ...]:
    """The model's `keep` best, checked, simulated and compiled; of several with the same code the best one.

    One of the `workers` finds them, if some are given.
    """
    different: dict[str, Build] = {}
    for build in _found(graph, machine, keep, workers, use_cache=use_cache, progress=progress):
        different.setdefault(code_digest(build.kernel), build)
    return tuple(different.values())


def _found(
    graph: Graph,
    machine: Machine,
    keep: int,
    workers: Workers | None,
    *,
    use_cache: bool,
    progress: Callable[[str, int, int], None],
) -> tuple[Build, ...]:
    if workers is None:
        return builds(graph, machine, keep, use_cache=use_cache, progress=progress)
    show = functools.partial(progress, "search")
    return build_one(BuildTask(graph, machine, keep), workers, use_cache=use_cache, progress=show)


def relevant(graph: Graph, machine: Machine, races: Sequence[Race], card: str | None) -> tuple[Race, ...]:
    """The races of this graph on one card under this Triton release; NotMeasuredError if none."""
    own = [race for race in races if (race.graph, race.machine) == (graph_key(graph), machine.name)]
    if not own:
        raise _refuse(graph, f"nothing was measured of it for {machine.name}; {_HOW}")
    triton = triton_version()
    same = [race for race in own if race.triton == triton]
    if not same:
        others = ", ".join(sorted({race.triton for race in own}))
        raise _refuse(graph, f"it was measured with Triton {others}, this is {triton}; {_HOW}")
    cards = sorted({race.card for race in same})
    if card is None and len(cards) > 1:
        raise _refuse(graph, f"it was measured on {' and on '.join(cards)}; say which with --card")
    chosen = tuple(race for race in same if race.card == (card or cards[0]))
    if not chosen:
        raise _refuse(graph, f"it was not measured on {card}, but on {', '.join(cards)}")
    return chosen


def with_choice(found: Sequence[Build], choice: Choice) -> Build:
    """The chosen build, whose summary and report say how it was chosen."""
    build, note = found[choice.index], choice_note(choice)
    data = json.loads(build.files["schedule.json"])
    data["summary"]["tuned"] = note
    files = {
        **build.files,
        "schedule.json": json.dumps(data, indent=1, ensure_ascii=False) + "\n",
        "report.txt": build.files["report.txt"] + tuned_text(note),
    }
    return Build(files, data["summary"], build.seconds)


def choice_note(choice: Choice) -> dict[str, Any]:
    """The choice as plain data: which rank, how much faster than the first, measured where and with what."""
    pace = choice.paces[choice.index]
    known = choice.races[choice.index] or next(race for race in choice.races if race is not None)
    return {
        "rank": choice.index + 1,
        "candidates": len(choice.paces),
        "measured": choice.measured,
        "ratio": pace.ratio if pace else None,
        "spread": pace.spread if pace else None,
        "noise": choice.noise,
        "card": known.card,
        "triton": known.triton,
        "date": known.date,
    }


def _refuse(graph: Graph, why: str) -> NotMeasuredError:
    return NotMeasuredError(f"graph {graph.name}: {why}")
