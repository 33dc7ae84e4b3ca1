"""Builds one piece in a process of its own: its graph and machine come as JSON, the build's files or an error go out.

What comes of it is in the cache of builds then, so that any process has it at once.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from wsopt.driver import build
from wsopt.entries import extended
from wsopt.errors import CheckError, InfeasibleError, LoweringError, UndecidedError, WsoptError
from wsopt.frontend.region import find_region
from wsopt.graph.parse import parse_graph
from wsopt.graph.types import Graph
from wsopt.machine.load import load_machine
from wsopt.solve.search import Search
from wsopt.torch.outcomes import Refusal, keep_bound, keep_refusal, too_slow


def main() -> None:
    """Read the task from standard input and write the outcome to standard output."""
    task: dict[str, Any] = json.load(sys.stdin)
    try:
        outcome = _outcome(parse_graph(task["graph"], "piece"), task["machine"], task["below_us"])
    except WsoptError as error:
        outcome = {"error": str(error), "status": error.exit_status, "bound_us": None}
    json.dump(outcome, sys.stdout)


def _outcome(graph: Graph, machine: str, below_us: float | None) -> dict[str, Any]:
    slow = None if below_us is None else _too_slow(graph, machine, below_us)
    if slow is not None:
        return {"error": slow.text, "status": InfeasibleError.exit_status, "bound_us": slow.bound_us}
    try:
        found = build(graph, load_machine(machine))
    except (LoweringError, InfeasibleError, CheckError) as error:
        if not (extended() or isinstance(error, UndecidedError)):
            keep_refusal(graph, machine, str(error))
        raise
    return {"files": found.files, "summary": found.summary, "seconds": found.seconds}


def _too_slow(graph: Graph, machine: str, below_us: float) -> Refusal | None:
    """The refusal of a graph whose least bound is too much; None if a schedule may take less than `below_us`."""
    bound_us = Search(find_region(graph), load_machine(machine)).least_bound_us()
    if not extended():
        keep_bound(graph, machine, bound_us)
    return too_slow(bound_us, below_us) if bound_us >= below_us else None


if __name__ == "__main__":
    main()
