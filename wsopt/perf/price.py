"""A tile program with its prices on a machine: of its operations, its epilogue, and what its K-blocks ask for.

The demand of a K-block of a loop of products on the shared paths is in the steady state, and in the tail wave.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from dataclasses import replace

from wsopt.entries import extended
from wsopt.lowering.lower import Cuttable, grid_of, unpriced
from wsopt.machine.types import Machine
from wsopt.perf.copies import TILE_GRAIN
from wsopt.perf.costs import copy_cost, cost, waited_for
from wsopt.perf.demand import demand_apart, dram_bytes, last_demand, ring_slots, with_gpc
from wsopt.perf.effective_ii import steady_loop
from wsopt.perf.epilogue import epilogue_cost
from wsopt.perf.timing import instructions
from wsopt.program.changed import changed
from wsopt.program.epilogue import EpilogueCost
from wsopt.program.facts import Arithmetic, Copy, Cost, Read, TileGrid
from wsopt.program.program import Iteration, TileOp, TileProgram
from wsopt.program.types import Structure
from wsopt.program.units import with_units

_VALUE_GRAIN = 16
"""Cycles of one unit of the model's time where arithmetic waits for products: there are many operations of many."""

_CACHED_INSTRUCTIONS, _FETCH_CYCLES, _ROLE_INSTRUCTIONS = 2048, 2.4, 250
"""Instructions of 16 bytes that an SM's cache holds; the cycles that one takes to come from L2; and those of a role
beside its arithmetic (`docs/calibration/h200_rows.json`).
"""


def lower(region: Cuttable, s: Structure, machine: Machine) -> TileProgram:
    """The tile program of a region cut to a structure. Costs are in cycles of `machine`."""
    once = _without_order.__wrapped__ if extended() else _without_order
    program = once(region, changed(s, group=1), machine)
    return _finished(program, s, grid_of(region, s) if s.group > 1 else program.grid, machine)


def priced(program: TileProgram, machine: Machine) -> TileProgram:
    """The program with the cycles of its operations and of its epilogue. Where its ring has an effective II of its
    own, with what a K-block asks for, and copies at the clock that the power limit leaves the loop.
    """
    return _finished(_priced_apart(program, machine), program.structure, program.grid, machine)


def _finished(program: TileProgram, s: Structure, grid: TileGrid, machine: Machine) -> TileProgram:
    """A program whose prices apart are there, with all others: for an order of tiles, which a grid says."""
    if program.demand is not None:
        program = _in_order(program, s, grid, machine)
    elif s != program.structure:
        program = changed(program, structure=s, grid=grid)
    return with_units(program, machine)


@functools.lru_cache(maxsize=2048)
def _without_order(region: Cuttable, s: Structure, machine: Machine) -> TileProgram:
    """The prices that all rasterization orders of a structure share."""
    return _priced_apart(unpriced(region, s, machine), machine)


def _priced_apart(program: TileProgram, machine: Machine) -> TileProgram:
    """The program with all prices that no rasterization order changes; `demand` is that of a GPC which asks for
    nothing, or none where the ring has no effective II of its own.
    """
    s, after = program.structure, program.after
    if program.iteration is Iteration.TILE:
        # The loop stores whole tiles itself: there are their buffers alone, one of each output.
        sizes = [s.rows * s.columns * output.view.dtype.bits // 8 for output in after.tile_outputs]
        in_loop = EpilogueCost(0, 0, sum(sizes), 0, 0, len(sizes))
        program = changed(program, epilogue=in_loop, grain=TILE_GRAIN)
    elif program.work is not None:
        program = changed(program, epilogue=epilogue_cost(after, s, machine), grain=_VALUE_GRAIN)
    else:
        program = changed(program, epilogue=epilogue_cost(after, s, machine))
        program = changed(program, demand=demand_apart(program, machine))
    prices = {counts: cost(counts, machine) for counts in {op.counts for op in program.ops}}
    ops = tuple(_priced(op, prices[op.counts]) for op in program.ops)
    if program.iteration is Iteration.TILE:
        ops = _fetched(ops, fetch_cycles(program, machine) + block_cycles(program, machine))
        ops = _interleaved(ops, s, machine) if s.resident else ops
    return changed(program, ops=ops)


def _in_order(program: TileProgram, s: Structure, grid: TileGrid, machine: Machine) -> TileProgram:
    """A program of products with what depends on the order of its tiles, copies at the clock of its loop. What does
    not is the `program`'s, which all orders of a structure share.
    """
    assert program.demand is not None, "a loop of products asks for something"
    demand = with_gpc(program.demand, program, grid, machine)
    clock = steady_loop(demand, machine, ring_slots(program, machine)).clock_mhz
    return changed(
        program,
        structure=s,
        grid=grid,
        dram_bytes=dram_bytes(program, grid, machine),
        demand=demand,
        last_demand=last_demand(program, grid, demand, machine),
        ops=_at_clock(program, machine, clock),
    )


def _at_clock(program: TileProgram, machine: Machine, clock_mhz: float) -> tuple[TileOp, ...]:
    """The operations of a loop whose copies are priced at a clock."""
    copies = {op.counts for op in program.ops if isinstance(op.counts, Copy)}
    prices = {counts: copy_cost(counts, machine, clock_mhz) for counts in copies}
    return tuple(_priced(op, prices[op.counts]) if isinstance(op.counts, Copy) else op for op in program.ops)


def _fetched(ops: tuple[TileOp, ...], cycles: int) -> tuple[TileOp, ...]:
    """The operations where each consumer waits so many cycles of an iteration for instructions: with its reading."""
    return tuple(
        replace(op, issue=op.issue + cycles, latency=op.latency + cycles)
        if isinstance(op.counts, Read)
        else op
        for op in ops
    )


def _interleaved(ops: tuple[TileOp, ...], s: Structure, machine: Machine) -> tuple[TileOp, ...]:
    """The operations of a tile where an SM has several blocks, whose instructions are interleaved.

    While a tile passes through the SM, each block has done a share of one: an operation's cycles of issue and its
    latency are divided by the number of blocks. Arithmetic of a block with fewer warps than the SM has schedulers
    takes longer, as some schedulers issue none of it, but what it waits for does not. Blocks are at different
    operations at a time, so that units are held in no order: the first operation has the cycles that all of them hold
    each unit. It is the reading, which takes what the others do not hide where a block reads ahead.
    """
    held, few = Counter[str](), max(1.0, machine.schedulers_per_sm / s.consumer_warps)
    for op in ops:
        held.update(dict(op.pipes))

    def shared(op: TileOp) -> TileOp:
        longer = 0.0
        if isinstance(op.counts, Arithmetic):
            longer = (few - 1) * (op.issue - waited_for(op.counts, machine))
        issue, latency = (math.ceil((own + longer) / s.occupancy) for own in (op.issue, op.latency))
        return replace(op, issue=issue, latency=latency, pipes=())

    first, *others = map(shared, ops)
    if s.ahead:
        hidden = sum(op.issue for op in others)
        first = replace(first, issue=max(0, first.issue - hidden), latency=max(0, first.latency - hidden))
    return (replace(first, pipes=tuple(sorted(held.items()))), *others)


def block_cycles(program: TileProgram, machine: Machine) -> int:
    """Cycles of a tile, or of a part of a row, in which its block follows another one, where an SM has several of one
    tile each.
    """
    each = machine.block_turnover_cycles / program.row_parts
    return math.ceil(each) if program.structure.resident else 0


def fetch_cycles(program: TileProgram, machine: Machine) -> int:
    """Cycles of an iteration in which the consumers of rows wait for instructions: all of a tile's elements are one
    stretch of code, each consumer has its own, and what the cache does not hold comes anew every time.
    """
    code = instructions(program, machine) + _ROLE_INSTRUCTIONS * (len(program.by_consumer) + 1)
    return math.ceil(_FETCH_CYCLES * max(0.0, code - _CACHED_INSTRUCTIONS))


def _priced(op: TileOp, price: Cost) -> TileOp:
    """An operation with its price: made anew field by field, for `replace` takes a tenth of a search's bounds."""
    return TileOp(
        op.id, op.inputs, op.output, op.counts, op.items,
        price.unit, price.issue, price.busy, price.latency, price.pipes, price.instructions, op.apart,
        op.helper,
    )  # fmt: skip
