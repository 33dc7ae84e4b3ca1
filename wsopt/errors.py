"""Every error that wsopt reports to a person, each with the exit status of the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


class WsoptError(Exception):
    """Base of all errors a user can cause or must know of; its text is one or two lines."""

    exit_status: ClassVar[int] = 4


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault in an input file: where it is (a JSON pointer), what was found and what is allowed.

    An empty pointer is the file as a whole, which needs no place beside the file's name.
    """

    pointer: str
    message: str

    def __str__(self) -> str:
        return f"{self.pointer}: {self.message}" if self.pointer else self.message


class InputError(WsoptError):
    """The input is wrong: not JSON, not of the format, or not consistent. Holds every fault of the file."""

    exit_status = 2

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        self.source = source
        self.problems = tuple(problems)
        super().__init__("\n".join(f"{source}: {problem}" for problem in self.problems))

    def __reduce__(self) -> tuple[type[InputError], tuple[str, tuple[Problem, ...]]]:
        """How another process gets it: by what it was made of, which its text is not."""
        return type(self), (self.source, self.problems)


class LoweringError(WsoptError):
    """A well-formed graph or machine that is outside what can be compiled today; names the node and why."""

    exit_status = 3


class InfeasibleError(WsoptError):
    """No schedule of any legal structure fits the machine; names the budget that was exceeded."""

    exit_status = 3


class UndecidedError(InfeasibleError):
    """No schedule was found, and the work limit left structures open: nothing is proved."""


class TimeOverError(UndecidedError):
    """The time that a command may take was over before it had what has to be done."""


class TooSlowError(InfeasibleError):
    """No schedule takes less than the microseconds that its kernel may take; the least are `bound_us`."""

    def __init__(self, name: str, bound_us: float, below_us: float) -> None:
        self.name, self.bound_us, self.below_us = name, bound_us, below_us
        super().__init__(
            f"graph {name}: no schedule is faster than {bound_us:.1f} us, it may take {below_us:.1f}"
        )

    def __reduce__(self) -> tuple[type[TooSlowError], tuple[str, float, float]]:
        """How another process gets it: by what it was made of, which its text is not."""
        return type(self), (self.name, self.bound_us, self.below_us)


class CheckError(WsoptError):
    """A check of a schedule or of an emitted kernel failed; nothing is handed over."""

    exit_status = 4


class NeverRunError(CheckError):
    """A kernel has lines that its simulation never runs: another schedule is to be taken."""


class RequirementError(WsoptError):
    """A package or a GPU that the command needs is missing here; says how to get it, or what works without."""

    exit_status = 2


class NotMeasuredError(WsoptError):
    """A request needs a measurement that does not exist; the message says which do, and how to make one."""

    exit_status = 2


class InternalError(WsoptError):
    """wsopt has contradicted itself: no fault of the input, and to be reported with `--debug`'s traceback."""

    exit_status = 1

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(
            f"internal error: {what}; this is a fault of wsopt, not of your input: please report it with the graph "
            "and what the same command prints with --debug"
        )

    def __reduce__(self) -> tuple[type[InternalError], tuple[str]]:
        """How another process gets it: by what it was made of, which its text is not."""
        return type(self), (self.what,)
