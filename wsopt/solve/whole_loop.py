"""Lower bound of a loop's II whatever follows the loop: all of it, with copies and rings, scheduled to the optimum.

Of what follows a loop its model knows the time that it takes, which leaves every schedule there is, and the shared
memory of its buffers, which says how many slots rings may have together. So structures that differ in nothing else
have one loop: its least II is found once, and bounds all of them before any is solved. Loops are one only where
their models are the same to the letter: each is known by the text of its model.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ortools.sat.python import cp_model

from wsopt.machine.types import Machine
from wsopt.program.limits import Limit
from wsopt.program.program import OpKind, TileProgram
from wsopt.schedule import budget, memory
from wsopt.solve.alone import consumers_interval, least_interval
from wsopt.solve.bound import buffers_with_ends, depths, ii_bounds
from wsopt.solve.families import FAMILIES
from wsopt.solve.model import LOOP_FAMILIES, STORING_FAMILIES, enough_stages, stretches
from wsopt.solve.objective import floor_of_time
from wsopt.solve.variables import Model
from wsopt.solve.worker import is_feasible, solved

_LIMIT = 2.0
"""Deterministic time for one loop: what is proved until then holds. It is asked of all loops that may win, so that
what is left is better spent on schedules of the one that does.
"""
_STEPPING_LIMIT = 1.0
"""The same where consumers with programs of their own have said the most of it, and each II is asked for in turn."""
_TIGHT_LIMIT = 1.0
"""Work after which no II is asked for that costs no more than a larger one."""
_APART_LIMIT = 2.0
"""Work for one II of consumers with programs of their own, which is asked for to save work."""


@dataclass(frozen=True, slots=True)
class Refuted:
    """No II below `bound`, in cycles, has a schedule; `work` is the deterministic time that went into it, and with
    `given_up` there was not enough of it to ask for each II in turn.
    """

    bound: int
    work: float
    given_up: bool = False


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop whose II is looked for between `low` and `most`, in cycles; its rings' slots have `room` bytes together.
    Loops of one `text` are one.
    """

    program: TileProgram = field(compare=False)
    machine: Machine = field(compare=False)
    margin: int = field(compare=False)
    room: int = field(compare=False)
    low: int
    most: int
    text: bytes = b""

    def model(self, low: int, most: int) -> cp_model.CpModel:
        """The loop's model with an II from `low` to `most`, in cycles, and nothing to be minimized."""
        p, stages = self.program, enough_stages(self.program, self.machine)
        m = Model(p, self.machine, self.margin, (low, most), stages)
        own = STORING_FAMILIES if p.of(OpKind.TMA_STORE) else LOOP_FAMILIES
        for family in (*own, *(added.constrain for added in FAMILIES.values())):
            family(m)
        if m.depth:
            taken = zip(_slot_bytes(p), m.depth.values(), strict=True)
            m.cp.add(sum(one * depth for one, depth in taken) <= self.room)
        return m.cp

    @property
    def digest(self) -> bytes:
        """A digest of the text of the model with every II that is looked at."""
        return hashlib.sha256(str(self.model(self.low, self.most).proto).encode()).digest()


def loop_interval(program: TileProgram, machine: Machine, margin: int) -> Refuted:
    """The least II of a loop whatever follows it, at least.

    IIs that cost no more than a larger one, since units and rings keep the time from being less, are asked for as
    long as that is little work.
    """
    low, most = ii_bounds(program, machine)
    low = max(low, consumers_interval(program, machine, margin))
    loop = _Loop(program, machine, margin, _room(program, machine), low, most)
    text = loop.digest
    if _apart(program):
        text += _with_programs_apart(loop).digest
    return _refuted(replace(loop, text=text), floor_of_time(program, machine).interval)


def loaders_interval(program: TileProgram, machine: Machine, margin: int) -> int:
    """The same with whatever number of loading warps: none of them has a schedule below."""
    least, enough = ii_bounds(program, machine)[0], floor_of_time(program, machine).interval
    bound = None
    for asked in by_loaders(program):
        own = loop_interval(asked, machine, margin).bound
        bound = own if bound is None else min(bound, own)
        # A larger one costs no more, so that the others say nothing of the time.
        if bound <= max(least, enough):
            break
    return bound or 0


def by_loaders(program: TileProgram) -> Iterator[TileProgram]:
    """The program with each number of loading warps in turn, as II is: a further warp has to make the kernel faster.

    With one, no ring has a choice, and most models are decided as if there were no other.
    """
    most = budget.most_loaders(program)
    if most == 1 or program.conditions.loaders:
        yield program
        return
    for number in range(1, most + 1):
        yield replace(program, conditions=replace(program.conditions, loaders=number))


@functools.lru_cache(maxsize=1024)
def _refuted(loop: _Loop, enough: int) -> Refuted:
    """What is found when IIs are asked for until one has a schedule, those below `enough` while that is easy."""
    p, work = loop.program, 0.0
    low = loop.low
    if _apart(p):
        apart = _with_programs_apart(loop)

        def alone(interval: int) -> bool | None:
            return is_feasible(solved(apart.model(interval, interval), _APART_LIMIT)[1])

        low = least_interval(alone, low, loop.most, p.grain, steady=True).bound

    def probe(interval: int) -> bool | None:
        nonlocal work
        if work > (_TIGHT_LIMIT if interval < enough else limit):
            return None
        solver, status = solved(loop.model(interval, interval), limit - work)
        work += solver.response_proto.deterministic_time
        return is_feasible(status)

    steady = stretches(p) and all(family.steady for family in FAMILIES.values())
    limit = _STEPPING_LIMIT if _apart(p) else _LIMIT
    least = least_interval(probe, low, loop.most, p.grain, steady=steady)
    given_up = _apart(p) and not least.found and enough <= least.bound <= loop.most
    return Refuted(least.bound, work, given_up)


def _apart(program: TileProgram) -> bool:
    """Whether it helps to ask first where each consumer may run a program of its own: such a schedule stands at every
    larger II too, so that steps double and halve; without that each II has to be asked for in turn. Where products
    are computed with, `consumers_interval` has said so of one consumer.
    """
    steady = all(family.steady for family in FAMILIES.values())
    return steady and not program.computes_with_products and not stretches(program)


def _with_programs_apart(loop: _Loop) -> _Loop:
    """The loop with a program for each consumer: it has all schedules of the loop, and others."""
    lifted = loop.program.lifted | {Limit.ONE_PROGRAM}
    return replace(loop, program=replace(loop.program, lifted=lifted))


def _slot_bytes(program: TileProgram) -> list[int]:
    """Bytes of a slot of each ring, with its barriers."""
    return [plan.slot_bytes + 2 * memory.BARRIER_BYTES for plan in program.rings]


def _room(program: TileProgram, machine: Machine) -> int:
    """The most bytes that slots take beside the fewest buffers: of rooms that leave rings the same choices of slots
    it is the same.
    """
    held = min(memory.shared_memory(program, 0, one) for one in buffers_with_ends(program, machine))
    room, taken = memory.shared_capacity(program.structure, machine) - held, {0}
    for number, slot in enumerate(_slot_bytes(program)):
        own = [slot * depth for depth in depths(program, machine, number)]
        taken = {used + more for used in taken for more in own if used + more <= room}
    return max(taken, default=0)
