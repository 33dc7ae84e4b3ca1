"""Work on all cores: a function of each task in processes that are forks of this one, results in the tasks' order."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from typing import TypeVar

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


def in_processes(
    function: Callable[[_Task], _Result], tasks: Sequence[_Task], progress: Callable[[int, int], None]
) -> list[_Result]:
    """The function's results. `function` and tasks can be pickled; what it raises is raised here.

    With one core, or one task, all is done in this process.
    """
    workers = min(len(tasks), os.cpu_count() or 1)
    found: list[_Result] = []
    if workers <= 1:
        for task in tasks:
            progress(len(found), len(tasks))
            found.append(function(task))
        return found
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        progress(0, len(tasks))
        for result in pool.imap(function, tasks, chunksize=1):
            found.append(result)
            progress(len(found), len(tasks))
    return found
