"""Output of the commands on standard output, and their progress on a terminal."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


def print_text(text: str) -> None:
    """Text on standard output, with a newline at its end."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def print_json(data: Any) -> None:
    """One JSON value on one line of standard output."""
    print_text(json.dumps(data))


def tell(message: str) -> None:
    """A line for people on standard error."""
    sys.stderr.write(f"wsopt: {message}\n")


@dataclass(slots=True)
class _Stage:
    """The stage that a command has last reported; an interruption is told with it."""

    name: str = ""
    done: int = 0
    total: int = 0


_STAGE = _Stage()


def interrupted() -> str:
    """One line on an interruption: in which stage it came, and after how many of its steps."""
    if not _STAGE.name:
        return "interrupted"
    steps = f", {_STAGE.done:,} of {_STAGE.total:,} steps done" if _STAGE.total else ""
    return f"interrupted in the stage {_STAGE.name}{steps}"


@contextlib.contextmanager
def progress() -> Iterator[Callable[[str, int, int], None]]:
    """A display of stages on a terminal for as long as a context lasts; silent in a pipe.

    Yields what is to be called with a stage's name, the steps of it that are done, and their number.
    """
    bar = _bar() if sys.stderr.isatty() else None
    tasks: dict[str, TaskID] = {}

    def show(stage: str, done: int, total: int) -> None:
        _STAGE.name, _STAGE.done, _STAGE.total = stage, done, total
        if bar is None:
            return
        for other in tasks.keys() - {stage}:
            bar.update(tasks[other], visible=False)
        if stage not in tasks:  # a stage has a clock of its own, from which the time that is left follows
            tasks[stage] = bar.add_task(stage, total=None)
        bar.update(tasks[stage], completed=done, total=total or None, visible=True)

    try:
        yield show
        _STAGE.name = ""  # what comes after is no part of the stage
    finally:
        if bar is not None:
            bar.stop()


def _bar() -> Progress:
    """A line for the stage at work: its name, a bar, steps, the time that it has taken, the time that is left."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.progress import TimeRemainingColumn as Left

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    bar = Progress(*columns, TextColumn("left"), Left(), console=Console(stderr=True), transient=True)
    bar.start()
    return bar
