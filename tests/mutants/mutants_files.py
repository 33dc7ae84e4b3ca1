"""Outcomes as lines of JSON, written as they come, so that a run that was cut off goes on from there."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from mutants_run import Outcome

from wsopt.interpret import Place


def line(outcome: Outcome) -> str:
    """One outcome as a line."""
    return json.dumps(asdict(outcome), sort_keys=True)


def read(paths: list[Path]) -> dict[tuple[str, Place], Outcome]:
    """The outcomes in some files, by kernel and place; a line that was cut off is left out."""
    found = {}
    for path in paths:
        for text in path.read_text(encoding="utf-8").splitlines(keepends=True):
            if text.endswith("\n"):
                data = json.loads(text)
                outcome = Outcome(data["kernel"], Place(**data["place"]), data["fault"], data["idle"])
                found[outcome.kernel, outcome.place] = outcome
    return found
