"""A search under conditions that says, where nothing meets them, which of them to leave out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from wsopt.candidates import Candidate, Contest
from wsopt.errors import CheckError, InfeasibleError, UndecidedError
from wsopt.program.conditions import FREE, Conditions


def candidates(contest: Contest) -> tuple[Candidate, ...]:
    """The contest's candidates, best first.

    Raises what the contest raises. Where no schedule meets its conditions the InfeasibleError names the fewest to
    leave out, one of them or all, with which a kernel was found that the compiler leaves whole.
    """
    try:
        return contest.run()
    except UndecidedError:
        raise
    except InfeasibleError as error:
        if not contest.conditions:
            raise
        raise InfeasibleError(f"{error}; {_remedy(contest)}") from error


def _remedy(contest: Contest) -> str:
    """Words for conditions that can be met: those left without one, the last one first, or none at all."""
    for left_out, conditions in _fewer(contest.conditions):
        with suppress(InfeasibleError, CheckError):
            fewer = Contest(
                contest.region, contest.machine, 1, conditions, contest.deadline, contest.progress
            )
            (found,) = fewer.run()
            said = (
                f"under {conditions.text} there is one" if conditions else "without conditions there is one"
            )
            schedule = found.verified.schedule
            rings = ", ".join(f"{name} of {depth} slots" for name, depth in schedule.rings)
            return f"leave out {left_out}: {said}, {schedule.structure.describe()}, {rings}"
    return "and none without them either: see what `wsopt compile` says of the graph"


def _fewer(conditions: Conditions) -> Iterator[tuple[str, Conditions]]:
    """Each condition that may be left out, with the others, and then all."""
    several = list(conditions.without_one())
    yield from several
    if len(several) > 1:
        yield conditions.text, FREE
