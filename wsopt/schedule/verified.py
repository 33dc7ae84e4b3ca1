"""A schedule that the checker has accepted: the only form in which one goes on to be emitted."""

from __future__ import annotations

from dataclasses import InitVar, dataclass

from wsopt.machine.types import Machine
from wsopt.program.program import TileProgram
from wsopt.schedule.types import Schedule


class _Seal:
    """Held by the checker alone; without it no `VerifiedSchedule` can be made."""


SEAL = _Seal()


@dataclass(frozen=True, slots=True)
class VerifiedSchedule:
    """A schedule with the tile program and the machine that it was checked against.

    The seal is asked for and not kept, so `dataclasses.replace` cannot pass it on to another schedule.
    """

    schedule: Schedule
    program: TileProgram
    machine: Machine
    seal: InitVar[_Seal]

    def __post_init__(self, seal: _Seal) -> None:
        if seal is not SEAL:
            raise TypeError("a VerifiedSchedule is made by checker.verify alone")


def for_trial(
    verified: VerifiedSchedule,
    *,
    schedule: Schedule | None = None,
    program: TileProgram | None = None,
    machine: Machine | None = None,
) -> VerifiedSchedule:
    """A copy with a schedule, program or machine that nobody has checked: to try the compiler on it, to price a
    change, or to see whether it is written alike.

    No kernel from it is handed over.
    """
    return VerifiedSchedule(
        schedule or verified.schedule, program or verified.program, machine or verified.machine, SEAL
    )
