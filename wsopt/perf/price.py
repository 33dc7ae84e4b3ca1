"""A tile program with its prices on a machine: of its operations, its epilogue, and what its K-blocks ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from wsopt.lowering.lower import Cuttable, unpriced
from wsopt.machine.types import Machine
from wsopt.perf.costs import TILE_GRAIN, copy_cost, cost
from wsopt.perf.demand import dram_bytes, k_block_demand, last_demand, ring_slots
from wsopt.perf.effective_ii import steady_loop
from wsopt.perf.epilogue import epilogue_cost
from wsopt.program.counts import Copy, Cost
from wsopt.program.program import EpilogueCost, Iteration, TileOp, TileProgram
from wsopt.program.types import Structure
from wsopt.program.units import with_units
from wsopt.tensors.views import Output

_VALUE_GRAIN = 16
"""Cycles of one unit of the model's time where arithmetic waits for products: there are many operations of many."""


def lower(region: Cuttable, s: Structure, machine: Machine) -> TileProgram:
    """The tile program of a region cut to a structure. Costs are in cycles of `machine`."""
    return priced(unpriced(region, s, machine), machine)


def priced(program: TileProgram, machine: Machine) -> TileProgram:
    """The program with the cycles of its operations and of its epilogue. Where its ring has an effective II of its
    own, with what a K-block asks for, and copies at the clock that the power limit leaves the loop.
    """
    s, after, clock = program.structure, program.after, None
    if program.iteration is Iteration.TILE:
        program = replace(program, epilogue=_in_loop(after.outputs, s), grain=TILE_GRAIN)
    elif program.work is not None:
        program = replace(program, epilogue=epilogue_cost(after, s, machine), grain=_VALUE_GRAIN)
    else:
        program = replace(
            program, epilogue=epilogue_cost(after, s, machine), dram_bytes=dram_bytes(program, machine)
        )
        demand = k_block_demand(program, machine)
        program = replace(program, demand=demand, last_demand=last_demand(program, demand, machine))
        clock = steady_loop(demand, machine, ring_slots(program, machine)).clock_mhz
    prices = {
        counts: copy_cost(counts, machine, clock) if isinstance(counts, Copy) else cost(counts, machine)
        for counts in {op.counts for op in program.ops}
    }
    ops = tuple(_at(op, prices[op.counts]) for op in program.ops)
    return with_units(replace(program, ops=ops), machine)


def _in_loop(outputs: Sequence[Output], s: Structure) -> EpilogueCost:
    """Epilogue of a loop that stores whole tiles itself: their buffers alone, one of each output."""
    sizes = [s.rows * s.columns * output.view.dtype.bits // 8 for output in outputs]
    return EpilogueCost(0, 0, sum(sizes), 0, 0, len(sizes))


def _at(op: TileOp, price: Cost) -> TileOp:
    return replace(
        op,
        unit=price.unit,
        issue=price.issue,
        busy=price.busy,
        latency=price.latency,
        pipes=price.pipes,
        instructions=price.instructions,
    )
