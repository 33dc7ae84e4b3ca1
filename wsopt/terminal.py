"""Output of the commands on standard output, and their progress on a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any


def print_text(text: str) -> None:
    """Text on standard output, with a newline at its end."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def print_json(data: Any) -> None:
    """One JSON value on one line of standard output."""
    print_text(json.dumps(data))


def tell(message: str) -> None:
    """A line for people on standard error."""
    sys.stderr.write(f"wsopt: {message}\n")


def progress() -> tuple[Callable[[str, int, int], None], Callable[[], None]]:
    """A progress display on a terminal, and how to end it; silent in a pipe."""
    if not sys.stderr.isatty():
        return (lambda stage, done, total: None), (lambda: None)
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True)
    task = bar.add_task("start", total=None)
    bar.start()

    def show(stage: str, done: int, total: int) -> None:
        bar.update(task, description=stage, completed=done, total=total or None)

    return show, bar.stop
