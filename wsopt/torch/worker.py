"""Builds one piece in a process of its own: its graph and machine come as JSON, the build's files or an error go out.

The files are in the cache of builds then, so that any process has them at once.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from wsopt.driver import build
from wsopt.errors import WsoptError
from wsopt.graph.parse import parse_graph
from wsopt.machine.load import load_machine


def main() -> None:
    """Read the task from standard input and write the outcome to standard output."""
    task: dict[str, Any] = json.load(sys.stdin)
    try:
        found = build(parse_graph(task["graph"], "piece"), load_machine(task["machine"]))
    except WsoptError as error:
        outcome: dict[str, Any] = {"error": str(error), "status": error.exit_status}
    else:
        outcome = {"files": found.files, "summary": found.summary, "seconds": found.seconds}
    json.dump(outcome, sys.stdout)


if __name__ == "__main__":
    main()
