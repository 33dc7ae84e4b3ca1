"""Arguments and options that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Graph = Annotated[Path, typer.Argument(metavar="GRAPH.json", help="the compute graph")]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="a folder that compile wrote")]
Folders = Annotated[list[Path], typer.Argument(metavar="DIR...", help="folders that compile wrote")]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON object and nothing else")]
MachineName = Annotated[
    str, typer.Option("--machine", metavar="NAME|FILE", help="a card's name or a machine file")
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="a Dask scheduler, such as tcp://10.0.0.1:8786, whose workers search"
    ),
]


def listed(given: list[str] | None) -> str | None:
    """One list of an option that may be given several times, each a list with commas; None if it never was."""
    return ",".join(given) if given else None
