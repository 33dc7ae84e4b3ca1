"""Gains from more of each budget: the search again, on a card with a little more of it.

Every structure is open again, so the answer is the best that the model can do with the change, not what the
schedule at hand would gain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from wsopt.lowering.lower import Cuttable
from wsopt.machine.frozen import FrozenMap
from wsopt.machine.types import Machine, Unit
from wsopt.program.conditions import Conditions
from wsopt.program.types import Structure
from wsopt.schedule.budget import BARRIER_BYTES
from wsopt.schedule.certificate import Certificate
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.solve.search import Search

MORE = 1.1
"""How much of a budget a variant has."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A card with more of one budget: what it is called, what there is of it now, and then."""

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
    """The model's best on the card as it is, and on each variant of it."""

    base: VerifiedSchedule
    effects: tuple[Effect, ...]


def variants(verified: VerifiedSchedule) -> tuple[Variant, ...]:
    """The card with more of each budget, one at a time; each kind of figure as the machine file states it."""
    machine = verified.machine
    slot = sum(plan.slot_bytes + 2 * BARRIER_BYTES for plan in verified.program.rings)
    shared = machine.shared_memory_per_block_bytes
    return (
        _shared("shared memory +10 %", machine, math.ceil(shared * MORE)),
        _shared("one more slot of the ring", machine, shared + slot),
        _registers(machine),
        _rates(machine, "tensor rate +10 %", tuple(machine.tensor), ("tensor", "dense_tflops")),
        *_special_functions(machine),
        _bandwidth(machine, "L2 bandwidth +10 %", ("l2_bandwidth", "l2_distinct_bandwidth")),
        _bandwidth(machine, "memory bandwidth +10 %", ("dram_sustained_bandwidth", "dram_bandwidth")),
    )


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
    step = machine.register_granularity
    most = math.ceil(machine.setmaxnreg_max_registers * MORE / step) * step
    file = math.ceil(machine.registers_per_sm * MORE)
    more = replace(
        machine,
        registers_per_sm=file,
        setmaxnreg_max_registers=most,
        max_registers_per_thread=machine.max_registers_per_thread + most - machine.setmaxnreg_max_registers,
    )
    now = f"{machine.registers_per_sm:,}, {machine.setmaxnreg_max_registers} a thread"
    return Variant("registers +10 %", now, f"{file:,}, {most} a thread", more)


def _rates(machine: Machine, name: str, kinds: tuple[str, ...], tables: tuple[str, ...]) -> Variant:
    """More of these kinds in tables of rates."""
    changed: dict[str, Any] = {table: _scaled(getattr(machine, table), kinds) for table in tables}
    first: Mapping[str, float] = getattr(machine, tables[0])
    now = first[kinds[0]]
    unit = f"{kinds[0]} an SM and cycle"
    return Variant(name, f"{now:g} {unit}", f"{now * MORE:g} {unit}", replace(machine, **changed))


def _scaled(table: Mapping[str, float], kinds: tuple[str, ...]) -> FrozenMap[float]:
    return FrozenMap({kind: rate * MORE if kind in kinds else rate for kind, rate in table.items()})


def _special_functions(machine: Machine) -> Iterator[Variant]:
    """The pipe of exp2 with all that goes to it; nothing for a card that gives exp2 no pipe of its own."""
    if machine.scalar_unit.get("exp2") is Unit.MUFU:
        rest = tuple(
            kind for kind, unit in machine.scalar_unit.items() if unit is Unit.MUFU and kind != "exp2"
        )
        yield _rates(machine, "exp2 and its pipe +10 %", ("exp2", *rest), ("scalar",))


def _bandwidth(machine: Machine, name: str, figures: tuple[str, ...]) -> Variant:
    now = getattr(machine, figures[0])
    more = replace(machine, **{figure: getattr(machine, figure) * MORE for figure in figures})
    return Variant(name, f"{now / 1e12:.3g} TB/s", f"{now * MORE / 1e12:.3g} TB/s", more)


def sensitivity(
    verified: VerifiedSchedule,
    certificate: Certificate,
    progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> Sensitivity:
    """Solve again on the card as it is and on every variant, under the same conditions. `progress` is told the
    variant's name.
    """
    region, machine, margin = verified.program.region, verified.machine, certificate.margin
    conditions = verified.program.conditions
    every = variants(verified)
    progress("as it is", 0, len(every) + 1)
    base, rejected = _base(region, machine, conditions, certificate)
    effects = []
    for done, variant in enumerate(every, 1):
        progress(variant.name, done, len(every) + 1)
        found, _ = Search(region, variant.machine, margin, conditions, rejected=rejected).run()
        effects.append(Effect(variant, found))
    return Sensitivity(base, tuple(effects))


def _base(
    region: Cuttable, machine: Machine, conditions: Conditions, certificate: Certificate
) -> tuple[VerifiedSchedule, frozenset[Structure]]:
    """The best on the card as it is, and the structures that the compiler was seen to reject.

    Which these were is not in the certificate, but that they would have been better and how many they are.
    """
    rejected: frozenset[Structure] = frozenset()
    count = dict(certificate.infeasible).get("ptxas", 0)
    while True:
        best, _ = Search(region, machine, certificate.margin, conditions, rejected=rejected).run()
        better = best.schedule.prediction.microseconds < certificate.bound_us
        if not better or len(rejected) == count:
            return best, rejected
        rejected |= {best.schedule.structure}
