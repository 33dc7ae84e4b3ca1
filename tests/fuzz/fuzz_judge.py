"""Compiles one graph as `wsopt compile` does, and says how that ended; and workers that do so, one graph at a time.

A worker that dies or says nothing for too long is a finding as well: it is ended, and another one takes its place.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest import mock

from wsopt import deadline
from wsopt.driver import build
from wsopt.errors import LoweringError, WsoptError
from wsopt.graph.parse import parse_graph
from wsopt.machine import load_machine

COMPILED, REFUSED = 0, 3
SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a compilation ended: the exit status that the command would have had (-1: crashed or hung), and why.

    `chosen` are features of the schedule that was found.
    """

    status: int
    text: str
    seconds: float
    chosen: tuple[str, ...] = ()

    @property
    def is_finding(self) -> bool:
        """Whether this may not happen to a well-formed graph."""
        return self.status not in (COMPILED, REFUSED)


_LIMIT_S = 3600.0
"""More than any graph takes whose search ends at once: compiler and simulation are done whole."""


def judge(data: dict[str, Any]) -> Verdict:
    """Compile a graph; the search ends with its first schedule, so that the kernel does not depend on the clock."""
    began, stages, chosen = time.monotonic(), set[str](), tuple[str, ...]()
    try:
        graph = parse_graph(data, "graph.json")
        with mock.patch.object(deadline, "_SEARCH_SHARE", 0.0):
            made = build(
                graph,
                load_machine("h200"),
                seconds=_LIMIT_S,
                use_cache=False,
                progress=lambda stage, _done, _total: stages.add(stage),
            )
        chosen = ("chosen: splits",) if made.schedule.structure.splits > 1 else ()
        status, text = COMPILED, f"error {made.summary['verified']['interpreter']['max_relative_error']:.1e}"
    except WsoptError as error:
        status, text = error.exit_status, str(error)
        if isinstance(error, LoweringError) and stages:
            status, text = -1, f"refused only after the stages {sorted(stages)}: {text}"
    return Verdict(status, text, time.monotonic() - began, chosen)


def serve(connection: Connection, log: str) -> None:
    """Judge every graph that comes through the connection; what is printed goes to the file `log`."""
    with open(log, "w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    while True:
        data = connection.recv()
        if data is None:
            return
        connection.send(judge(data))


class Worker:
    """A process that judges graphs. `give` one, then `answer`; both sides may die."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.log = Path(tempfile.mkdtemp(prefix="wsopt-fuzz-")) / "log"
        self.connection: Connection
        self.process: BaseProcess
        self.began = 0.0
        self._start()

    def _start(self) -> None:
        self.connection, theirs = SPAWN.Pipe()
        self.process = SPAWN.Process(target=serve, args=(theirs, str(self.log)), daemon=True)
        self.process.start()
        theirs.close()

    def give(self, data: dict[str, Any]) -> None:
        """Begin with a graph."""
        self.began = time.monotonic()
        self.connection.send(data)

    @property
    def late(self) -> bool:
        """Whether the graph takes longer than it may."""
        return time.monotonic() - self.began > self.limit_s

    def answer(self) -> Verdict:
        """The verdict, which is there or is late."""
        try:
            if self.connection.poll(max(0.0, self.began + self.limit_s - time.monotonic())):
                verdict: Verdict = self.connection.recv()
                return verdict
            text = f"no end within {self.limit_s:.0f} s"
        except (EOFError, ConnectionResetError):
            text = ""
        self.process.kill()
        self.process.join()
        text = text or f"the process ended: {self._last_lines()}"
        self._start()
        return Verdict(-1, text, time.monotonic() - self.began)

    def _last_lines(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-12:]) or f"with status {self.process.exitcode}, and said nothing"

    def end(self) -> None:
        """Let the process go."""
        self.connection.send(None)
        self.process.join()
        self.log.unlink(missing_ok=True)
        self.log.parent.rmdir()
