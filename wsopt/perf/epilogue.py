"""Cycles of one tile's epilogue: its arithmetic, and its waits for buffers and for the copies of inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from wsopt.machine.cost import unit_cycles
from wsopt.machine.types import TILE_ROWS, Machine
from wsopt.machine.types import Unit as MachineUnit
from wsopt.perf.contention import held_cycles, issue_cycles
from wsopt.perf.copies import copy_issue, load_cycles
from wsopt.perf.splits import SplitCost, split_cost
from wsopt.perf.stores import kind, kind_bytes, tile_stores
from wsopt.program.epilogue import Epilogue, EpilogueCost
from wsopt.program.facts import Shares
from wsopt.program.known import of_loop, of_program
from wsopt.program.program import Iteration, OpKind, TileProgram
from wsopt.program.types import Sharing, Structure, column_role, row_role
from wsopt.schedule.types import EpilogueBuffers, PartitionRole
from wsopt.tensors.statements import Reduction
from wsopt.tensors.views import View

_ROWS_OF_A_MATRIX, _COLUMNS_OF_A_MATRIX = 8, 8
"""An accumulator lies over threads in matrices of 8 x 8: each thread has two neighbours of a row (PTX ISA, wgmma)."""
_CYCLES_OF_A_LINE = 1.0
"""Cycles of each row that a warp's store by address touches: an estimate, not measured."""
_QUEUED = 0.65
"""Share of a copy for which the read of a store's buffer waits. Heads of 72 that are stored in three parts took
43.0 us through one buffer, 38.7 through two and 38.8 through three (`docs/calibration/h200_one_buffer.json`).
"""
_LEAST_BITS = {"store": 8, "load": 16}
"""Elements of fewer bits are counted as these: narrower ones were not measured."""

# --- without waits --------------------------------------------------------------------------------------


def _moved_cycles(what: str, view: View, s: Structure, machine: Machine, contention: int) -> float:
    """Cycles in which one consumer of `contention` moves a subtile between registers and shared memory.

    Its warpgroups take rows of their own; a transposed tile meets every bank twice.
    """
    groups = s.consumer_warps // machine.warps_per_warpgroup
    name = f"shared_{what}_{max(view.dtype.bits, _LEAST_BITS[what])}"
    columns = s.subtile_columns * s.rows / TILE_ROWS / groups * (2 if s.swap else 1)
    slowest = max(machine.tile_alone[name], contention * groups * machine.tile_crowded[name])
    return machine.tile_start[name] + columns * slowest


def staging_cycles(view: View, s: Structure, machine: Machine, contention: int) -> float:
    """Cycles of a subtile's values on their way into shared memory, while `contention` consumers are at it, with the
    fence and the barrier behind it.
    """
    return _moved_cycles("store", view, s, machine, contention) + machine.latency.barrier


def _column_vectors(after: Epilogue, s: Structure) -> list[View]:
    """The vectors along the accumulator's columns that a consumer holds in shared memory."""
    return [x.view for x in after.vectors if column_role(s.swap) in x.spans] if after.prefetched else []


def _prefetched_registers(after: Epilogue, s: Structure, machine: Machine) -> int:
    """Registers a thread that rows, columns and scalars take, from the start of the loop on."""
    row, column, threads = row_role(s.swap), column_role(s.swap), s.consumer_warps * machine.threads_per_warp
    by_row, by_column = s.rows // s.consumer_warps // _ROWS_OF_A_MATRIX, max(1, s.vector_columns // threads)
    spans = (source.spans for source in (after.vectors if after.prefetched else ()))
    return sum(by_column if column in one else by_row if row in one else 1 for one in spans)


def _cycles(after: Epilogue, s: Structure, machine: Machine, contention: int, arithmetic: float) -> int:
    """Cycles of a consumer's epilogue while `contention` are at theirs: by subtiles, and once a tile.

    Prefetched vectors were loaded before, those along the columns through shared memory, from which a thread reads
    two neighbours at a time. Where they come late their latency shows.
    """
    latency, count = machine.latency, len(_column_vectors(after, s))
    threads = s.consumer_warps * machine.threads_per_warp
    reads = contention * threads * s.subtile_columns / _COLUMNS_OF_A_MATRIX / machine.scalar["ldst"]
    once = count * (latency.smem_store + latency.barrier)
    subtile = latency.tma_load_l2 / 2 if after.late else count * (latency.smem_load + reads)
    subtile += math.fsum(
        latency.mbarrier_wait + _moved_cycles("load", source.view, s, machine, contention)
        for source in after.full
    )
    stored = [staging_cycles(output.view, s, machine, contention) for output in after.tile_outputs]
    subtile += math.fsum(stored) + len(stored) * machine.tma_store_box_cycles
    by_threads = sum(output.by_threads for output in after.outputs)
    lines = s.rows * s.subtile_columns / machine.threads_per_warp * _ROWS_OF_A_MATRIX
    subtile += by_threads * contention * lines * _CYCLES_OF_A_LINE
    # Threads store a row's elements one by one, a warp neighbours of one row.
    staged = s.rows * s.subtile_columns / machine.threads_per_warp * len(after.tile_outputs)
    subtile += after.ragged * contention * staged * _CYCLES_OF_A_LINE
    starts = (machine.tile_start[f"row_{i.kind}"] for i in after.items if isinstance(i, Reduction))
    once += latency.mma_latency + s.rows / TILE_ROWS * math.fsum(starts)
    return math.ceil(arithmetic + s.subtiles * subtile + once)


def epilogue_cost(after: Epilogue, s: Structure, machine: Machine) -> EpilogueCost:
    """The epilogue of one consumer's tile. The pipes of its arithmetic are added up: with two or three warps a
    scheduler one does not run under another. Sums come from tensor memory first, where they are not in registers.
    """
    units = unit_cycles(machine, after.mix, s.rows * s.columns)
    alone = math.fsum(cycles for unit, cycles in units.items() if unit is not MachineUnit.ISSUE)
    if after.sum_bytes:
        read = after.sum_bytes / machine.tensor_memory_bytes_per_cycle
        alone += s.subtiles * machine.latency.smem_load + read
    threads = s.consumer_warps * machine.threads_per_warp
    subtile, full = s.rows * s.subtile_columns // threads, len(after.full)
    several = s.at_once * s.loops_an_sm
    live = subtile * (1 + full) // 2 if s.subtiles > 1 or full else subtile // 4
    inputs = [kind(source.view) for source in after.full]
    outputs = {kind(output.view) for output in after.tile_outputs}
    return EpilogueCost(
        alone=_cycles(after, s, machine, 1, alone),
        together=_cycles(after, s, machine, several, alone * several),
        staged_bytes=sum(kind_bytes(one, s) for one in outputs),
        input_bytes=sum(kind_bytes(one, s) for one in inputs),
        registers=min(live, 64) + _prefetched_registers(after, s, machine),
        stores=s.subtiles * len(after.tile_outputs),
        lent_bytes=sum(kind_bytes(one, s) for one in outputs & {*inputs}),
        vector_bytes=sum(s.vector_columns * view.dtype.bits // 8 for view in _column_vectors(after, s)),
    )


# --- with waits for stores and copies -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Epilogues:
    """Cycles of the epilogue of `each` tile that another of its block follows, and of a block's `last` one.

    `under`: whether each runs under the next tile's products, with two sets of sums and nothing else to do there.
    """

    each: int
    last: int
    under: bool = False


def epilogues(program: TileProgram, machine: Machine, buffers: EpilogueBuffers) -> Epilogues:
    """Cycles of a block's epilogues. Where sums are split, only the last part of a tile has an epilogue, and each
    part is charged its share of that.
    """
    last = epilogue_cycles(program, machine, buffers, last=True)
    persistent = program.structure.persistent
    each = epilogue_cycles(program, machine, buffers) if persistent else last
    split, splits = split_cost(program, machine), program.structure.splits
    if program.shares is not None:
        return _of_shares(program.shares, split, each, last, in_turn=program.work is not None)
    each, last = split.part + math.ceil((split.all + each) / splits), split.part + split.all + last
    return Epilogues(each, last, buffers.sums > 1 and not program.computes)


def _of_shares(shares: Shares, split: SplitCost, each: int, last: int, *, in_turn: bool) -> Epilogues:
    """Cycles of the epilogues of a block that has an equal share of the K-blocks. It has parts of two tiles at most,
    those at the ends of its share, and adds up the parts of one of them, the last; its other tiles are its own. Where
    it has them `in_turn`, each costs the mean of all.
    """
    apart = min(2, shares.tiles)
    end = split.part + split.all + last
    before = max(0, shares.tiles - apart) * each + (apart - 1) * split.part
    if in_turn:
        return Epilogues(math.ceil((before + end) / shares.tiles), last)
    return Epilogues(math.ceil(before / max(1, shares.tiles - 1)), end)


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
    cycles -= math.floor(cost.stores * (machine.tma_store_box_cycles - _starts(machine, buffers)[0]))
    total = stored_cycles(program, machine, buffers, cycles, last=last or not s.persistent)
    if buffers.inputs:
        copy = _copy_cycles(program, machine)
        late = max(0, copy - (buffers.inputs - 1) * cycles // s.subtiles)
        total += (s.subtiles - buffers.inputs) * late + _copying(program, machine, buffers)
        total += copy if s.parted else 0  # asked for when the last part is there
    return total


def _copying(program: TileProgram, machine: Machine, buffers: EpilogueBuffers) -> int:
    """Cycles by which starting the copies of inputs makes a tile longer than its loop: on a consumer's thread, or on
    that of the loading warp, which starts those of all consumers that are in the tile.
    """
    s, by_loader, n = program.structure, buffers.inputs_by_loader, program.k_iterations
    turns = s.consumers if s.sharing is Sharing.PING_PONG and not by_loader else 1
    copies = s.subtiles * len(program.after.full) * copy_issue(machine) * (s.at_once if by_loader else 1)
    loads = sum(op.issue for op in program.ops if op.kind is OpKind.TMA_LOAD)
    idle = turns * _pass_products(program)
    if by_loader and n * (loads - idle) + copies <= 0:  # as nearly always: no thread need be looked at
        return 0
    threads = issue_cycles(program)
    own = loads if by_loader else threads.get(f"{PartitionRole.CONSUMER}0", 0)
    if n * (own - idle) + copies <= 0:  # and here no unit
        return 0
    loop = max(loads, *threads.values(), *held_cycles(program).values())
    return max(0, n * (own - turns * loop) + copies)


def _together(program: TileProgram) -> bool:
    """Whether all consumers of a block are in the epilogue at once.

    Cooperative ones are, unless each goes on to its next tile by itself: a loop that computes values has
    consumers in every phase.
    """
    s = program.structure
    return s.sharing is Sharing.COOPERATIVE and not (s.persistent and program.computes_with_products)


def _starts(machine: Machine, buffers: EpilogueBuffers) -> tuple[float, float]:
    """Cycles of the consumer's thread in which it starts a store, and cycles until a store warp has heard of it."""
    if not buffers.store_warp:
        return machine.tma_store_box_cycles, 0.0
    latency = machine.latency
    return latency.mbarrier_arrive, latency.mbarrier_wake + latency.mbarrier_wait


def stored_cycles(
    program: TileProgram, machine: Machine, buffers: EpilogueBuffers, cycles: int, *, last: bool
) -> int:
    """Cycles of an epilogue that takes `cycles` without waits for stores.

    A subtile's outputs are staged one after the other, behind its arithmetic. An SM's stores read their buffers one
    after the other, those of cooperative consumers side by side, and to start one is to wait for those before it:
    the consumer is `held`, unless a store warp does it. A subtile whose first store has to wait for another's buffer
    lets the other consumers go ahead, so that its wait counts from where its staging would have ended; for its
    further stores nothing is left to do but to wait and then to stage. In a loop that computes values a buffer is
    read behind the copies of the next tile that are under way. What the tile before has left has been read by the end
    of this one's loop; before the next tile's inputs are copied a consumer waits for what this one leaves,
    under the first passes of its loop; or the loading warp waits, and a consumer for the copies that are not there by
    its next epilogue. The `last` tile has none after it, and ends when its last store begins.
    """
    s = program.structure
    plan, contention = tile_stores(program, buffers), s.consumers if _together(program) else 1
    box, held, (own, later) = machine.tma_store_box_cycles, not buffers.store_warp, _starts(machine, buffers)
    stage, drain = _staged(program, machine, contention, own)
    before = max(0.0, cycles / s.subtiles - math.fsum(stage.values()))
    now, read, behind = 0.0, list[float](), _behind_copies(program) if s.persistent else 0.0
    for number, store in enumerate(plan.stores):
        waits = store.pending is not None and store.pending < len(read)
        free = read[-1 - (store.pending or 0)] + behind + later if waits else 0.0
        if number % len(stage):
            now = max(now, free) + stage[store.output]
        else:
            now = max(now + before + stage[store.output], free)
        begun = max([now if held else now + later + box, *read[-1:]])
        now = begun if held else now
        read.append(begun + drain[store.output])
    if last:
        return math.ceil(max(cycles, now) + (0.0 if held else later + box))
    if held:  # the last of the consumers, for the others' last stores
        now += (drain[plan.stores[-1].output] if plan.stores else 0.0) * (contention - 1) / contention
    if buffers.inputs_by_loader and s.sharing is Sharing.COOPERATIVE:
        free = now if plan.refill is None else max(now, read[-1 - plan.refill])
        now = max(
            now, free + _brought(program, machine, cycles) - program.k_iterations * _pass_products(program)
        )
    elif plan.refill is not None and s.sharing is Sharing.COOPERATIVE:
        under = 0 if program.adds_partials or program.computes_with_products else 1
        under += refill(program, machine, buffers).first
        now = max(now, read[-1 - plan.refill] - under * _pass_products(program))
    return max(cycles, math.ceil(now))


@of_loop
def _behind_copies(program: TileProgram) -> float:
    """Cycles for which a store's read of its buffer waits for copies of the next tile's K-blocks, which free slots
    have begun while consumers of a loop that computes values are in their epilogues.
    """
    if not program.computes_with_products:
        return 0.0
    return _QUEUED * max(op.busy for op in program.of(OpKind.TMA_LOAD))


@of_program
def _staged(
    program: TileProgram, machine: Machine, contention: int, own: float
) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Cycles in which a subtile of each output is staged, its start included, which takes `own` of them; and in which
    its buffer is read.
    """
    s, views = program.structure, {output.name: output.view for output in program.after.tile_outputs}
    rate = machine.tma_store_bytes_per_cycle / contention
    stage = {name: staging_cycles(view, s, machine, contention) + own for name, view in views.items()}
    drain = {name: kind_bytes(kind(view), s) / rate for name, view in views.items()}
    return MappingProxyType(stage), MappingProxyType(drain)


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
    where consumers have no part in the loop, which another partition's products are, or none in the copies; and
    behind the loop where sums are split, for only one part of a tile has an epilogue.
    """
    s = program.structure
    apart = program.computes_with_products or program.tensor_columns or buffers.inputs_by_loader
    if not buffers.inputs or apart or s.sharing is Sharing.PING_PONG or s.parted:
        return Refill(0, 0)
    product = _pass_products(program)
    copies = math.ceil(_copy_cycles(program, machine) / product)
    needed = 0
    if tile_stores(program, buffers).refill is not None:
        rate, box = machine.tma_store_bytes_per_cycle, machine.tma_store_box_cycles
        stores = [box + kind_bytes(kind(output.view), s) / rate for output in program.after.tile_outputs]
        needed = math.ceil(s.consumers * s.subtiles * math.fsum(stores) / product)
    latest, further = program.k_iterations - 1 - copies, (buffers.inputs - 1) * copies
    return Refill(max(0, min(needed, latest)), copies if 0 < further <= latest - needed else 0)


def k_blocks_ahead(program: TileProgram, machine: Machine, ii: int, slots: int) -> int:
    """K-blocks of a tile whose copies the loading warp starts behind those of the epilogue's inputs, if it brings
    both: none if the ring's slots are K-blocks enough for the inputs to come under.
    """
    copy = math.ceil(_brought(program, machine, program.epilogue.alone))
    copies = program.structure.copies
    return min(program.k_iterations * copies, max(0, math.ceil(copy * copies / ii) - slots))


def _brought(program: TileProgram, machine: Machine, cycles: int) -> float:
    """Cycles before an epilogue, which takes `cycles`, at which the loading warp has to start the copies of inputs
    for each subtile's to be there in time.
    """
    s, latency = program.structure, math.ceil(machine.latency.tma_load_dram)
    load = s.at_once * load_cycles(program.epilogue.input_bytes, machine)
    return latency + max((number + 1) * load - number * cycles / s.subtiles for number in range(s.subtiles))


def _pass_products(program: TileProgram) -> float:
    """Cycles for which the products of one pass of all cooperative consumers hold the tensor core; 0 where values are
    computed between them.
    """
    return 0.0 if program.demand is None else program.structure.copies * program.demand.tensor


def _copy_cycles(program: TileProgram, machine: Machine) -> int:
    """Cycles from asking for a subtile of the epilogue's inputs until it is there."""
    return math.ceil(machine.latency.tma_load_dram) + load_cycles(program.epilogue.input_bytes, machine)
