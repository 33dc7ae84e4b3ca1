"""Exit statuses of modules that `python -m` runs: one for each kind of error that a person can cause."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence

from wsopt.errors import WsoptError

CommandLine = Callable[[Sequence[str]], int]
"""A function of a command's arguments that returns its exit status."""


def with_exit_status(main: CommandLine) -> CommandLine:
    """The command line that prints a WsoptError on standard error, and returns the exit status of its kind."""

    @functools.wraps(main)
    def command(arguments: Sequence[str]) -> int:
        try:
            return main(arguments)
        except WsoptError as error:
            print(error, file=sys.stderr)
            return error.exit_status

    return command
