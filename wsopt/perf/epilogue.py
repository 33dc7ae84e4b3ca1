"""Cycles of one tile's epilogue: its arithmetic, and its waits for buffers and for the copies of inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from wsopt.machine.types import Machine
from wsopt.perf.costs import load_cycles, mma_cycles
from wsopt.perf.epilogue_cost import staging_cycles
from wsopt.perf.stores import tile_stores
from wsopt.program.program import Iteration, TileProgram
from wsopt.program.staging import kind, kind_bytes
from wsopt.program.types import Sharing
from wsopt.schedule.types import EpilogueBuffers


@dataclass(frozen=True, slots=True)
class Epilogues:
    """Cycles of the epilogue of `each` tile that another of its block follows, and of a block's `last` one.

    `under`: whether each runs under the next tile's products, with two sets of sums.
    """

    each: int
    last: int
    under: bool = False


def epilogues(program: TileProgram, machine: Machine, buffers: EpilogueBuffers) -> Epilogues:
    """Cycles of a block's epilogues."""
    each = epilogue_cycles(program, machine, buffers)
    return Epilogues(each, epilogue_cycles(program, machine, buffers, last=True), buffers.sums > 1)


def epilogue_cycles(
    program: TileProgram, machine: Machine, buffers: EpilogueBuffers, *, last: bool = False
) -> int:
    """Cycles of one tile's epilogue, of the `last` one of a block until its stores have begun.

    Stores wait for those that still read their buffers; a subtile whose input had to wait for a buffer waits for
    what is left of the copy.
    """
    cost, s = program.epilogue, program.structure
    if program.iteration is Iteration.TILE:
        return 0
    cycles = cost.together if _together(program) else cost.alone
    cycles -= math.floor(cost.stores * (machine.tma_store_box_cycles - _starts(machine, buffers).own))
    total = stored_cycles(program, machine, buffers, cycles, last=last or not s.persistent)
    if buffers.inputs:
        copy = _copy_cycles(program, machine)
        late = max(0, copy - (buffers.inputs - 1) * cycles // s.subtiles)
        total += (s.subtiles - buffers.inputs) * late
    return total


def _together(program: TileProgram) -> bool:
    """Whether all consumers of a block are in the epilogue at once.

    Cooperative ones are, unless each goes on to its next tile by itself: a loop that computes values has
    consumers in every phase.
    """
    s = program.structure
    return s.sharing is Sharing.COOPERATIVE and not (s.persistent and program.computes_with_products)


@dataclass(frozen=True, slots=True)
class _Starts:
    """Starting a store: `own` are the cycles that it takes of the consumer's, `later` those until the other side of a
    barrier hears. A consumer that starts its stores itself is `held` until those before them have been read.
    """

    own: float
    later: float
    held: bool


def _starts(machine: Machine, buffers: EpilogueBuffers) -> _Starts:
    latency = machine.latency
    if not buffers.store_warp:
        return _Starts(machine.tma_store_box_cycles, 0.0, held=True)
    return _Starts(latency.mbarrier_arrive, latency.mbarrier_wake + latency.mbarrier_wait, held=False)


def stored_cycles(
    program: TileProgram, machine: Machine, buffers: EpilogueBuffers, cycles: int, *, last: bool
) -> int:
    """Cycles of an epilogue that takes `cycles` without waits for stores.

    A subtile's outputs are staged one after the other, behind its arithmetic. An SM's stores read their buffers one
    after the other, those of cooperative consumers side by side, and to start one is to wait for those before it:
    the consumer's time, unless a store warp does it. A subtile whose first store has to wait for another's buffer
    lets the other consumers go ahead, so that its wait counts from where its staging would have ended; for its
    further stores nothing is left to do but to wait and then to stage. What the tile before has left has been read by
    the end of this one's loop; before the next tile's inputs are copied a consumer waits for what this one leaves,
    under the first passes of its loop. The `last` tile has none after it, and ends when its last store begins.
    """
    s = program.structure
    plan, contention = tile_stores(program, buffers), s.consumers if _together(program) else 1
    views = {output.name: output.view for output in program.after.tile_outputs}
    starts = _starts(machine, buffers)
    stage = {name: staging_cycles(view, s, machine, contention) + starts.own for name, view in views.items()}
    rate = machine.tma_store_bytes_per_cycle / contention
    drain = {name: kind_bytes(kind(view), s) / rate for name, view in views.items()}
    before = max(0.0, cycles / s.subtiles - sum(stage.values()))
    now, read = 0.0, list[float]()
    for number, store in enumerate(plan.stores):
        waits = store.pending is not None and store.pending < len(read)
        free = read[-1 - (store.pending or 0)] + starts.later if waits else 0.0
        if number % len(views):
            now = max(now, free) + stage[store.output]
        else:
            now = max(now + before + stage[store.output], free)
        asked = now if starts.held else now + starts.later + machine.tma_store_box_cycles
        begun = max([asked, *read[-1:]])
        now = begun if starts.held else now
        read.append(begun + drain[store.output])
    if last:
        return math.ceil(
            max(cycles, now) + (0.0 if starts.held else starts.later + machine.tma_store_box_cycles)
        )
    if starts.held:  # the last of the consumers, for the others' last stores
        now += drain[plan.stores[-1].output] * (contention - 1) / contention
    if plan.refill is not None and s.sharing is Sharing.COOPERATIVE:
        under = 0 if program.adds_partials or program.computes_with_products else 1
        under += refill(program, machine, buffers).first
        now = max(now, read[-1 - plan.refill] - under * _pass_products(program, machine))
    return max(cycles, math.ceil(now))


@dataclass(frozen=True, slots=True)
class Refill:
    """When a tile's epilogue inputs are copied: the first subtile after so many steady passes of the loop, the others
    so many passes `apart`; at once where that is 0.
    """

    first: int
    apart: int


def refill(program: TileProgram, machine: Machine, buffers: EpilogueBuffers) -> Refill:
    """When the epilogue's inputs are copied to their buffers.

    Where the stores of the tile before may still be reading those, so late that all have been read under the
    products; and each subtile when the one before it is there, for all at once they get into the way of K-blocks.
    Earlier and together where they would else come late. At the loop's start where consumers work in ping-pong, for
    they copy while another has the tensor core; in a loop that computes values, which has the copies before it; and
    where consumers have no part in the loop, which another partition's products are.
    """
    s = program.structure
    apart = program.computes_with_products or program.tensor_columns
    if not buffers.inputs or apart or s.sharing is Sharing.PING_PONG:
        return Refill(0, 0)
    product = _pass_products(program, machine)
    copies = math.ceil(_copy_cycles(program, machine) / product)
    needed = 0
    if tile_stores(program, buffers).refill is not None:
        rate, box = machine.tma_store_bytes_per_cycle, machine.tma_store_box_cycles
        stores = [box + kind_bytes(kind(output.view), s) / rate for output in program.after.tile_outputs]
        needed = math.ceil(s.consumers * s.subtiles * sum(stores) / product)
    latest, further = program.k_iterations - 1 - copies, (buffers.inputs - 1) * copies
    return Refill(max(0, min(needed, latest)), copies if 0 < further <= latest - needed else 0)


def _pass_products(program: TileProgram, machine: Machine) -> int:
    """Cycles for which the products of one pass of all cooperative consumers hold the tensor core."""
    s, whole = program.structure, program.whole
    return s.copies * s.at_once * whole.products * mma_cycles(whole.dtype, s, machine)


def _copy_cycles(program: TileProgram, machine: Machine) -> int:
    """Cycles from asking for a subtile of the epilogue's inputs until it is there."""
    return math.ceil(machine.latency.tma_load_dram) + load_cycles(program.epilogue.input_bytes, machine)
