"""Processes of this machine: forks of this one, or interpreters of their own."""

from __future__ import annotations

import base64
import multiprocessing
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, TypeVar

from wsopt.errors import InternalError, RequirementError
from wsopt.pool.share import cores, shared_among, take_share
from wsopt.pool.workers import Gathering, Progress, Workers, not_kept, silent

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

TRIES = 3
"""How often processes may end before their work is done, with nothing done in between, until that is given up."""


@dataclass(frozen=True, slots=True)
class _Processes:
    """Processes of this machine: as many at once as `count` or, where that is 0, as there are cores."""

    count: int = 0

    @property
    def at_once(self) -> int:
        """As `Workers.at_once`."""
        return self.count or cores()


class Forks(_Processes):
    """Forks of this process. With one core, or one task, all is done in this process. No process may be forked where
    CUDA is in use.
    """

    __slots__ = ()

    def results(
        self,
        function: Callable[[_Task], _Result],
        tasks: Sequence[_Task],
        progress: Progress = silent,
        keep: Callable[[int, _Result], None] = not_kept,
    ) -> list[_Result]:
        """As `Workers.results`. Raises RequirementError where processes end again and again."""
        processes = min(len(tasks), self.at_once)
        if processes <= 1:
            return _one_by_one(function, tasks, progress, keep)
        gathering: Gathering[_Result] = Gathering(len(tasks), progress, keep, lost=BrokenProcessPool)
        fruitless = 0
        while not gathering.settled:
            before = len(gathering.found)
            context = multiprocessing.get_context("fork")
            with ProcessPoolExecutor(processes, context, take_share, (processes,)) as pool:
                _hand_out(pool, function, tasks, gathering)
            fruitless = 0 if len(gathering.found) > before else fruitless + 1
            if fruitless == TRIES and not gathering.settled:
                raise RequirementError(
                    f"processes that work here were ended {TRIES} times before their work was done; where the system "
                    "does that for want of memory, fewer of them at once or more memory help"
                )
        return gathering.outcome()


def _one_by_one(
    function: Callable[[_Task], _Result],
    tasks: Sequence[_Task],
    progress: Progress,
    keep: Callable[[int, _Result], None],
) -> list[_Result]:
    found: list[_Result] = []
    for place, task in enumerate(tasks):
        progress(place, len(tasks))
        found.append(function(task))
        keep(place, found[-1])
    return found


def _hand_out(
    pool: Executor,
    function: Callable[[_Task], _Result],
    tasks: Sequence[_Task],
    gathering: Gathering[_Result],
) -> None:
    """Have tasks that are left done, and take their results."""
    places: dict[Any, int] = {}
    try:
        places = {pool.submit(function, tasks[place]): place for place in gathering.left}
    except BrokenProcessPool:  # a process was lost while tasks were still handed out
        return
    gathering.take(places, as_completed(places))


class Interpreters(_Processes):
    """An interpreter of its own for each task, which no thread and no CUDA context of this process disturbs."""

    __slots__ = ()

    def results(
        self,
        function: Callable[[_Task], _Result],
        tasks: Sequence[_Task],
        progress: Progress = silent,
        keep: Callable[[int, _Result], None] = not_kept,
    ) -> list[_Result]:
        """As `Workers.results`. Raises InternalError where an interpreter fails outside of the function."""
        gathering: Gathering[_Result] = Gathering(len(tasks), progress, keep)
        processes = max(1, min(len(tasks), self.at_once))
        with ThreadPoolExecutor(processes) as pool:
            _hand_out(pool, lambda task: _in_interpreter(function, task, processes), tasks, gathering)
        return gathering.outcome()


def _in_interpreter(function: Callable[[_Task], _Result], task: _Task, processes: int) -> _Result:
    """The function's result of a task, from another interpreter of so many. Raises what it raises there."""
    sent = base64.b64encode(pickle.dumps((function, task)))
    for _ in range(TRIES):
        done = subprocess.run(
            [sys.executable, "-m", "wsopt.pool.child"],
            input=sent, capture_output=True, check=False,
            env=_environment() | shared_among(processes),
        )  # fmt: skip
        if done.returncode >= 0:
            break
        # A signal has ended it, so what it was asked to do says nothing: it is asked again.
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or [f"status {done.returncode}"]
        raise InternalError(f"the process that works on a task ended with: {last[0]}")
    outcome = pickle.loads(base64.b64decode(done.stdout))  # what our own process has written
    if isinstance(outcome, BaseException):
        raise outcome
    result: _Result = outcome[0]
    return result


def _environment() -> dict[str, str]:
    """The environment with this process's places to import from, which a test or a notebook may have added to."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(one for one in sys.path if one)}


LOCAL: Workers = Forks()
"""The processes that work where nothing else is asked for."""
