"""`wsopt tune`: measure the model's best candidates, and carry results from one machine to another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from wsopt.cli.options import AsJson, MachineName
from wsopt.requirements import require_torch
from wsopt.terminal import print_json, print_text, progress, tell

OneGraph = Annotated[Path | None, typer.Argument(metavar="[GRAPH.json]", help="the compute graph")]
Keep = Annotated[int, typer.Option("-k", min=1, max=64, metavar="N", help="candidates: the model's best")]
Seconds = Annotated[
    float | None, typer.Option(min=1, metavar="S", help="start no measurement after so many seconds")
]
Again = Annotated[bool, typer.Option("--again", help="measure what is known already")]
Scheduler = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="a Dask scheduler, of whose workers one finds the candidates"),
]
Candidates = Annotated[
    Path | None, typer.Option(metavar="DIR", help="only write the candidates, to measure elsewhere")
]
ExportTo = Annotated[
    Path | None, typer.Option("--export", metavar="FILE", help="write all results to a file")
]
ImportFrom = Annotated[
    Path | None, typer.Option("--import", metavar="FILE", help="take in results from a file")
]


def tune(
    graph: OneGraph = None,
    keep: Keep = 8,
    machine: MachineName = "h200",
    seconds: Seconds = None,
    again: Again = False,
    scheduler: Scheduler = None,
    candidates: Candidates = None,
    export_to: ExportTo = None,
    import_from: ImportFrom = None,
    as_json: AsJson = False,
) -> None:
    """Measure the model's best schedules on this GPU.

    The results are remembered, and `wsopt compile --tuned` chooses by them.

    Without a GPU here: `tune GRAPH --candidates DIR`; `python -m wsopt.tune.measure DIR -o FILE` where there is
    one (torch and triton are all it needs); `tune --import FILE` here.
    """
    if sum(item is not None for item in (graph, export_to, import_from)) != 1:
        raise typer.BadParameter("give a graph, or --export FILE, or --import FILE")
    if export_to is not None:
        found = _export(export_to)
    elif import_from is not None:
        found = _import(import_from)
    else:
        assert graph is not None
        found = _tune(graph, keep, machine, seconds, again, candidates, scheduler)
    if as_json:
        print_json(found)
    else:
        print_text(_text(found))


def _export(path: Path) -> dict[str, Any]:
    from wsopt.cache import cache_folder
    from wsopt.tune.database import Database
    from wsopt.tune.races import write_races

    races = Database(cache_folder(), tell).races()
    write_races(path, races)
    return {"exported": len(races), "file": str(path)}


def _import(path: Path) -> dict[str, Any]:
    from wsopt.cache import cache_folder
    from wsopt.tune.database import Database
    from wsopt.tune.races import load_races
    from wsopt.tune.session import import_races
    from wsopt.tune.tuned import triton_version

    races = load_races(path)
    told = import_races(races, Database(cache_folder(), tell), triton_version())
    return {"imported": len(races), "file": str(path), "what": told}


def _tune(
    graph: Path,
    keep: int,
    machine: str,
    seconds: float | None,
    again: bool,
    candidates: Path | None,
    scheduler: str | None,
) -> dict[str, Any]:
    from wsopt.graph.parse import load_graph
    from wsopt.machine.load import load_machine
    from wsopt.pool.cluster import workers_at
    from wsopt.tune.session import Session

    read, record = load_graph(graph), load_machine(machine)
    if candidates is None:
        require_torch(
            "measuring", "`wsopt tune GRAPH --candidates DIR` writes what can be measured elsewhere"
        )
    limit = float("inf") if seconds is None else seconds
    with progress() as show, workers_at(scheduler) as those:
        workers = None if scheduler is None else those
        session = Session(read, record, keep, limit, again, workers=workers, progress=show, tell=tell)
        if candidates is None:
            return session.run()
        found = session.write(candidates)
    return {"name": read.name, "machine": record.name, "candidates": len(found), "directory": str(candidates)}


def _text(found: dict[str, Any]) -> str:
    """The result of a tuning command as text for people."""
    match found:
        case {"exported": int(count), "file": file}:
            return f"{count} results written to {file}"
        case {"imported": int(), "what": what, "file": file}:
            return f"{what}, from {file}"
        case {"directory": where, "candidates": count}:
            return (
                f"{count} candidates written to {where}; where the GPU is: "
                f"python -m wsopt.tune.measure {where} -o results.json; then here: wsopt tune --import results.json"
            )
        case _:
            return _table(found)


def _table(found: dict[str, Any]) -> str:
    from wsopt.report.tuned import tuned_text
    from wsopt.tune.session import table

    return (
        "\n".join([f"{found['name']} on {found['machine']}", "", *table(found)])
        + "\n"
        + tuned_text(found["chosen"])
    )
