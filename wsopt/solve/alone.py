"""Lower bound of a loop's II: its consumers scheduled to the optimum without copies and rings.

Copies and rings are left out, and with them most of a model's freedom; what is left still has all that makes
loops that compute values slower than their units: each consumer's one thread, which hands slots back too, its
registers, and how its phases fit between those of the others. A model with fewer operations and constraints
has every schedule of the whole one, so its least II is none that the whole model goes below.

The least II is found by asking for one after the other: with II fixed a model has no products of variables and is
decided in a hundredth of the work that it takes with II free, so asking often is cheap.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from wsopt.machine.types import Machine
from wsopt.program.epilogue import EpilogueCost
from wsopt.program.program import TileOp, TileProgram
from wsopt.program.types import Space
from wsopt.solve.bound import ii_bounds
from wsopt.solve.model import CONSUMER_FAMILIES, overlapped, stretches
from wsopt.solve.variables import Model
from wsopt.solve.worker import is_feasible, solved

_LIMIT = 4.0
"""Deterministic time for the bound of one loop: what is proved until then holds."""


_TRIES = 200
"""How many II are asked for where one says nothing of others: more than separate a bound from what it bounds."""

Probe = Callable[[int], bool | None]


@dataclass(frozen=True, slots=True)
class Least:
    """No II below `bound` has a schedule; `found` says whether `bound` itself has one."""

    bound: int
    found: bool


def least_interval(probe: Probe, low: int, most: int, unit: int, *, steady: bool) -> Least:
    """Ask `probe` for multiples of `unit` from `low` to `most`: whether one has a schedule, or None if undecided.

    If it is `steady`, every II above one with a schedule has one too, and steps double until one is found, then
    halve. Otherwise each is asked for in turn. An undecided one ends it.
    """
    step, high = unit, most + unit
    for _ in range(_TRIES):
        if low >= high:
            break
        at = min(low + step - unit, low + (high - unit - low) // (2 * unit) * unit)
        answer = probe(at)
        if answer is None:
            break
        if answer:
            high, step = at, high
        else:
            low, step = at + unit, step * 2 if steady else step
    return Least(low, low == high <= most)


def consumers_alone(program: TileProgram) -> TileProgram:
    """The operations of the consumers, whose tiles are always there.

    What the epilogue and the bytes cost is left out too: structures that differ in nothing else are one.
    """
    return replace(
        _only(program, [op for op in program.ops if op.consumer is not None]),
        structure=replace(program.structure, subtiles=1),
        conditions=program.conditions.of_loop,
        values=tuple(value for value in program.values if value.space is Space.TENSOR),
        rings=(),
        epilogue=EpilogueCost(0, 0, 0, 0, 0, 0),
        tile_l2_bytes=0,
        dram_bytes=0,
    )


def one_consumer(program: TileProgram) -> TileProgram:
    """The first consumer's operations, with the registers that it has beside the others."""
    live = tuple(tile for tile in program.live if tile.consumer == 0)
    return replace(_only(program, program.by_consumer[0]), live=live)


def _only(program: TileProgram, ops: Sequence[TileOp]) -> TileProgram:
    """The program with these of its operations, and the dependences between them."""
    ids = {op.id for op in ops}
    edges = tuple(edge for edge in program.edges if {edge.source, edge.target} <= ids)
    return replace(program, ops=tuple(ops), edges=edges)


def consumers_interval(program: TileProgram, machine: Machine, margin: int) -> int:
    """Cycles that the II of a loop that computes values has at least; 0 for others.

    Those of plain products are held back by units and rings, which `bound` counts. If there is no schedule in
    the range of II that the model looks at, it is the first II behind that.
    """
    if not program.computes_with_products:
        return 0
    return _least(consumers_alone(program), machine, margin, ii_bounds(program, machine)[1])


@functools.lru_cache(maxsize=1024)
def _least(program: TileProgram, machine: Machine, margin: int, most: int) -> int:
    """The bound of one consumer, where steps may double, and from there on that of all together.

    What is not decided within the limit ends it.
    """
    low, left = ii_bounds(program, machine)[0], _LIMIT
    for part in (one_consumer(program), program):

        def probe(interval: int, part: TileProgram = part) -> bool | None:
            nonlocal left
            # The first operation's stage: no other of its consumer is so many II or more before or after it.
            anchor = overlapped(part)
            m = Model(part, machine, margin, (interval, interval), 2 * anchor + 1)
            for family in CONSUMER_FAMILIES:
                family(m)
            m.cp.add(m.stage[part.ops[0].id] == anchor)
            m.cp.add(m.cycle[part.ops[0].id] == 0)
            solver, status = solved(m.cp, _LIMIT)
            left -= solver.response_proto.deterministic_time
            return is_feasible(status) if left > 0 else None

        low = least_interval(probe, low, most, program.grain, steady=stretches(part)).bound
    return low
