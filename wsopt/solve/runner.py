"""The runner-up of a search: the best schedule of another structure than the winner's."""

from __future__ import annotations

from wsopt.checker import verify
from wsopt.perf.price import lower
from wsopt.schedule.certificate import Certificate
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.solve.optimum import solve


def runner_up(verified: VerifiedSchedule, certificate: Certificate) -> VerifiedSchedule | None:
    """The first of the runners-up, solved; of the winner's own structure a schedule with another order.

    None if there is none, or if its structure has no schedule after all: then its bound was all that it had.
    """
    if not certificate.runners_up:
        return None
    structure, machine = certificate.runners_up[0].structure, verified.machine
    same = structure == verified.schedule.structure
    program = verified.program if same else lower(verified.program.region, structure, machine)
    found = solve(program, machine, certificate.margin, *([verified.schedule] if same else []))
    return None if found.schedule is None else verify(found.schedule, program, machine, certificate.margin)
