"""Gains from more of each budget: the search again, on a card with a little more of it.

Every structure is open again, so the answer is the best that the model can do with the change, not what the
schedule at hand would gain.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from wsopt.deadline import UNLIMITED, Deadline
from wsopt.errors import TimeOverError
from wsopt.machine.frozen import FrozenMap
from wsopt.machine.types import Machine, Unit
from wsopt.program.types import Structure
from wsopt.schedule.certificate import Certificate
from wsopt.schedule.memory import BARRIER_BYTES
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.solve.search import Search
from wsopt.solve.worker import limited

MORE = 1.1
"""How much of a budget a variant has."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A card with more of one budget: the budget's name, its size on the card as it is, and the larger one."""

    name: str
    now: str
    then: str
    machine: Machine


@dataclass(frozen=True, slots=True)
class Effect:
    """Gain of a variant: the best schedule on it."""

    variant: Variant
    verified: VerifiedSchedule


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The model's best on the card as it is, and on each variant of it but the `skipped` ones, for which there was no
    time.
    """

    base: VerifiedSchedule
    effects: tuple[Effect, ...]
    skipped: tuple[str, ...] = ()


def variants(verified: VerifiedSchedule) -> tuple[Variant, ...]:
    """The card with more of each budget, one at a time; each kind of figure as the machine file states it.

    With the pipe of exp2 goes all that it computes; a card that gives exp2 no pipe of its own has no such variant.
    """
    machine = verified.machine
    slot = sum(plan.slot_bytes + 2 * BARRIER_BYTES for plan in verified.program.rings)
    slot *= verified.program.structure.blocks_an_sm  # several blocks share what an SM has more
    shared = machine.shared_memory_per_block_bytes
    mufu = {kind for kind, unit in machine.scalar_unit.items() if unit is Unit.MUFU}
    exp2 = [("exp2 and its pipe +10 %", "exp2", mufu, ("scalar",))] if "exp2" in mufu else []
    return (
        _shared("shared memory +10 %", machine, math.ceil(shared * MORE)),
        _shared("one more slot of the ring", machine, shared + slot),
        _registers(machine),
        _tensor_rate(machine),
        *(_rates(machine, *rates) for rates in exp2),
        _bandwidth(machine, "L2 bandwidth +10 %", ("l2_bandwidth", "l2_distinct_bandwidth")),
        _bandwidth(
            machine,
            "memory bandwidth +10 %",
            ("dram_sustained_bandwidth", "dram_read_bandwidth", "dram_bandwidth"),
        ),
    )


_LEAST_CYCLES = ("mma_least_cycles", "mma_least_cycles_per_column", "mma_least_cycles_registers")


def _shared(name: str, machine: Machine, nbytes: int) -> Variant:
    now = machine.shared_memory_per_block_bytes
    more = replace(
        machine,
        shared_memory_per_block_bytes=nbytes,
        shared_memory_per_sm_bytes=machine.shared_memory_per_sm_bytes + nbytes - now,
    )
    return Variant(name, f"{now:,} bytes", f"{nbytes:,} bytes", more)


def _registers(machine: Machine) -> Variant:
    """A larger file, and more of it for a thread: one without the other would mostly buy nothing."""
    step, most_now = machine.register_granularity, machine.setmaxnreg_max_registers
    most = math.ceil(most_now * MORE / step) * step
    file = math.ceil(machine.registers_per_sm * MORE)
    more = replace(
        machine,
        registers_per_sm=file,
        setmaxnreg_max_registers=most,
        max_registers_per_thread=machine.max_registers_per_thread + most - most_now,
    )
    now, then = f"{machine.registers_per_sm:,}, {most_now} a thread", f"{file:,}, {most} a thread"
    return Variant("registers +10 %", now, then, more)


def _tensor_rate(machine: Machine) -> Variant:
    """A faster tensor core, whose instructions of few columns take as much less."""
    tables = ("tensor", "dense_tflops")
    found = _rates(machine, "tensor rate +10 %", next(iter(machine.tensor)), machine.tensor, tables)
    least = {figure: getattr(machine, figure) / MORE for figure in _LEAST_CYCLES}
    return replace(found, machine=replace(found.machine, **least))


def _rates(
    machine: Machine, name: str, first: str, kinds: Collection[str], tables: tuple[str, ...]
) -> Variant:
    """More of these kinds, of which the `first` is told, in tables of rates by kind."""
    before: dict[str, Mapping[str, float]] = {table: getattr(machine, table) for table in tables}
    more: dict[str, Any] = {
        table: FrozenMap({kind: rate * MORE if kind in kinds else rate for kind, rate in rates.items()})
        for table, rates in before.items()
    }
    now, then = (f"{rates[tables[0]][first]:g} {first} an SM and cycle" for rates in (before, more))
    return Variant(name, now, then, replace(machine, **more))


def _bandwidth(machine: Machine, name: str, figures: tuple[str, ...]) -> Variant:
    more = {figure: getattr(machine, figure) * MORE for figure in figures}
    now, then = (f"{rate / 1e12:.3g} TB/s" for rate in (getattr(machine, figures[0]), more[figures[0]]))
    return Variant(name, now, then, replace(machine, **more))


def sensitivity(
    verified: VerifiedSchedule,
    certificate: Certificate,
    progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
    deadline: Deadline = UNLIMITED,
) -> Sensitivity:
    """Solve again on the card as it is and on every variant, under the same conditions. `progress` is told the
    variant's name. Raises TimeOverError if the time is over before the card as it is was solved for.
    """
    every, rejected = variants(verified), frozenset[Structure]()
    program, margin = verified.program, certificate.margin
    bounded = deadline.bounded(verified.schedule.name, lambda stage, done, total: None)

    def best_on(machine: Machine) -> VerifiedSchedule:
        search = Search(program.region, machine, margin, program.conditions, rejected=rejected)
        search.progress = search.bounding = functools.partial(bounded, "what-if")
        with limited(deadline.end):
            return search.run()[0]

    progress("as it is", 0, len(every) + 1)
    # Which structures the compiler rejected is not in the certificate, but that they would have been better, and how
    # many they are.
    count = dict(certificate.infeasible).get("ptxas", 0)
    base = best_on(verified.machine)
    while len(rejected) < count and base.schedule.prediction.microseconds < certificate.bound_us:
        rejected |= {base.schedule.structure}
        base = best_on(verified.machine)
    effects = []
    for done, variant in enumerate(every, 1):
        progress(variant.name, done, len(every) + 1)
        with suppress(TimeOverError):
            best = best_on(variant.machine)
        if deadline.over:  # what was cut short is not the best
            break
        effects.append(Effect(variant, best))
    return Sensitivity(base, tuple(effects), tuple(variant.name for variant in every[len(effects) :]))
