"""Cycles of operations on a machine: one function a kind of counts (`program/facts.py`).

Arithmetic is counted from instruction mixes; waits and hand-overs from the machine's latencies. Every figure
that these functions read stands in the machine's file with its source.
"""

from __future__ import annotations

import functools
import math

from wsopt.machine.cost import InstructionMix, alu_cycles, unit_cycles
from wsopt.machine.types import Machine
from wsopt.machine.types import Unit as MachineUnit
from wsopt.perf.copies import (
    copy_issue,
    copy_lines,
    exchange_cycles,
    load_cycles,
    memory_cycles,
    place_cycles,
)
from wsopt.perf.instructions import converting
from wsopt.perf.reductions import starts
from wsopt.program.facts import (
    Arithmetic,
    Beside,
    Copy,
    Cost,
    Counts,
    Moved,
    Product,
    Promotion,
    Read,
    Release,
    Rescale,
    Signal,
    Store,
    Transform,
)
from wsopt.program.ids import Unit
from wsopt.tensors.parts import parts

_PIPES = {MachineUnit.ALU: Unit.ALU, MachineUnit.FMA: Unit.FMA, MachineUnit.MUFU: Unit.MUFU}
"""The units of the model that are pipes of the arithmetic."""

BARRIER_CHAIN = 3
"""Dependent instructions from a slot's number to a barrier's address and phase, as machine code has them."""

DIVIDED_CHAIN = 6
"""The same from the number of a K-block, where slots are divided out: beside arithmetic that waits for products."""

OPERAND_CHAIN = 3
"""Dependent instructions from the address of a slot to the descriptors of a product's operands, likewise."""

PROMOTION = InstructionMix({"add": 1})
"""What adding a partial sum takes, an element."""
SCALED_PROMOTION = InstructionMix({"fma": 1})
"""What adding a partial sum times a factor takes, an element."""


@functools.singledispatch
def cost(counts: Counts, machine: Machine) -> Cost:
    """Cost of an operation on a machine, by what its counts are; copies at the sustained clock."""
    raise AssertionError(f"no cost of {counts}")


@cost.register
def _given(counts: Cost, machine: Machine) -> Cost:
    return counts


# --- copies and stores ----------------------------------------------------------------------------------


@cost.register
def copy_cost(copy: Copy, machine: Machine, clock_mhz: float | None = None) -> Cost:
    """A TMA copy: its first bytes come after a while, then it holds the way for all of its lines' bytes. At the
    sustained clock, if no other is given.
    """
    latency, pipes = machine.latency, tuple[tuple[Unit, int], ...]()
    if copy.from_memory:
        touched = max(copy.from_memory, copy_lines(copy, machine)) if copy.lines else copy.from_memory
        busy, first = load_cycles(touched, machine), latency.tma_load_dram
        piece = copy.row_bytes if copy.lines else 0
        memory = memory_cycles(copy.from_memory, copy.tiles, machine, touched, piece)
        pipes = ((Unit.MEMORY, memory),)
    else:
        busy = load_cycles(copy_lines(copy, machine), machine, clock_mhz)
        first = machine.first_bytes(latency.tma_load_l2)
    first += latency.other_block * copy.paired
    issue, places = copy_issue(machine) + exchange_cycles(copy, machine), place_cycles(copy, machine)
    return Cost(places + max(1, copy.apart) * issue, places + math.ceil(first) + busy, Unit.TMA, busy, pipes)


@cost.register
def _signal(signal: Signal, machine: Machine) -> Cost:
    """An arrival at a barrier, which wakes those who wait for it."""
    return Cost(math.ceil(machine.latency.mbarrier_arrive), math.ceil(machine.latency.mbarrier_wake))


@cost.register
def _release(release: Release, machine: Machine) -> Cost:
    latency = machine.latency
    issue = latency.mbarrier_arrive + (latency.barrier if release.meets else 0)
    told = latency.mbarrier_wake + latency.other_block * release.paired
    return Cost(0 if release.by_commit else math.ceil(issue), math.ceil(told))


@cost.register
def _store(store: Store, machine: Machine) -> Cost:
    """Outputs go into buffers, which are held until their copies have read them; what threads store by address does
    not. The fence waits for what was written before it.
    """
    latency, shared = machine.latency, _shared_cycles(store.staged, machine, store.across)
    each = 2 * latency.barrier + latency.smem_store + latency.fence_behind_stores
    issue = store.outputs * each / store.passes + shared
    accesses = _accesses(store.by_address - store.scattered, store.at_once, _STORE, machine)
    accesses += _accesses(store.scattered, 1, _SCATTERED, machine)
    issue += store.values * latency.smem_store + accesses
    drain = latency.tma_store / 2 + load_cycles(store.copied, machine) if store.outputs else 0.0
    memory = memory_cycles(store.copied, store.tiles, machine, piece=store.piece, written=True)
    pipes = ((Unit.SHARED, shared + accesses), (Unit.MEMORY, memory))
    return Cost(math.ceil(issue), math.ceil(issue + drain), pipes=pipes)


# --- products -------------------------------------------------------------------------------------------


def mma_cycles(product: Product, machine: Machine) -> int:
    """Cycles of a product at the tensor core's rate.

    Two warpgroups in one partition start every product together, and lose a little by it. So do two blocks.
    """
    joint = product.warps > machine.warps_per_warpgroup
    rate = machine.tensor_rate(product.dtype.value) * (1 - machine.joint_warpgroups_loss * joint)
    rate *= 1 - machine.paired_blocks_loss * product.paired
    return math.ceil(product.rows * product.columns * product.deep / rate)


def instructions(product: Product, machine: Machine) -> int:
    """Tensor instructions of a product, all warpgroups of the partition together; each part of its columns has its
    own.
    """
    deep = product.deep * product.dtype.bits // 8 // machine.mma_k_bytes
    return (product.rows // machine.mma_rows) * deep * len(parts(product.columns))


def tensor_cycles(product: Product, machine: Machine) -> float:
    """Cycles for which a product's instructions hold the tensor core, one behind the other."""
    lengths = [part.length for part in parts(product.columns)]
    each = math.fsum(_instruction_cycles(product, columns, machine) for columns in lengths)
    return each * (instructions(product, machine) // len(lengths))


@cost.register
def _product(product: Product, machine: Machine) -> Cost:
    """In a loop of products alone the tensor core is shared fairly, so that each takes as long as all of its K-block
    together, and its thread goes on when the first stretch is issued. Else consumers' arithmetic waits for a product,
    or feeds it: then its left operand is in registers.
    """
    every, latency = instructions(product, machine), machine.latency
    count = every // (product.warps // machine.warps_per_warpgroup)
    if product.sharers:
        busy = mma_cycles(product, machine)
        chain = (BARRIER_CHAIN + OPERAND_CHAIN) * latency.arithmetic
        issue = chain + latency.fence + (count - _later(product, count)) * latency.mma_issue
        result = latency.mbarrier_wait + latency.fence + busy * product.sharers + latency.mma_latency
    else:
        busy = math.ceil(tensor_cycles(product, machine))
        # What the queue does not take has to wait, and its consumer with it.
        waiting = max(0.0, every - machine.mma_queue) * busy / every
        issue = math.ceil(max(every * latency.mma_issue, waiting))
        result = busy + (latency.mma_latency_registers if product.registers else latency.mma_latency)
    issue += product.factors * latency.smem_load
    ends = math.ceil(issue + latency.mbarrier_wait), math.ceil(result)
    return Cost(*ends, Unit.TENSOR, busy, instructions=count)


def _later(product: Product, count: int) -> int:
    """Of a product's instructions those behind the first stretch, which has those of one instruction's depth."""
    return count - count // (1 << product.stretches - 1)


def rest_cycles(product: Product, machine: Machine) -> float:
    """Cycles for which a product's further stretches hold its thread, each with a fence and descriptors before it."""
    latency, count = machine.latency, cost(product, machine).instructions
    begin = latency.fence + OPERAND_CHAIN * latency.arithmetic
    return (product.stretches - 1) * begin + _later(product, count) * latency.mma_issue


def _instruction_cycles(product: Product, columns: int, machine: Machine) -> float:
    """Cycles of one tensor instruction of so many columns, where arithmetic waits for the product or feeds it."""
    rate = machine.tensor_rate(product.dtype.value)
    full = machine.mma_rows * columns * machine.mma_depth(product.dtype.bits) / rate
    least = machine.mma_least_cycles + columns * machine.mma_least_cycles_per_column
    return max(full, machine.mma_least_cycles_registers if product.registers else least)


@cost.register
def _promotion(added: Promotion, machine: Machine) -> Cost:
    mix = SCALED_PROMOTION if added.scaled else PROMOTION
    alone = alu_cycles(machine, mix, added.elements) / (added.warps // machine.warps_per_warpgroup)
    cycles = math.ceil(alone + machine.latency.arithmetic)
    return Cost(cycles, cycles, Unit.ALU, cycles)


@cost.register
def _rescale(rescaled: Rescale, machine: Machine) -> Cost:
    """Sums in tensor memory come into registers and go back: those of lazy rows on the average."""
    latency = machine.latency
    cycles = math.ceil(
        rescaled.moved * (rescaled.elements / machine.scalar_alone["mul"] + latency.arithmetic)
    )
    trip = 0.0
    if rescaled.apart:
        trip = latency.mbarrier_wait + rescaled.moved * 2 * _tensor_memory_cycles(rescaled.apart, machine)
    if rescaled.moved < 1:  # the least factor of all threads
        trip += math.log2(machine.threads_per_warp) * latency.shuffle
        trip += latency.smem_store + latency.barrier + latency.smem_load
    both = math.ceil(cycles + trip)
    return Cost(both, both, pipes=((Unit.FMA, cycles),))


@cost.register
def _moved(moved: Moved, machine: Machine) -> Cost:
    """Of a tile that comes into registers its barrier is waited for first; one that is written is told of."""
    latency = machine.latency
    told = latency.mbarrier_arrive if moved.written else latency.mbarrier_wait
    cycles = math.ceil(told + _tensor_memory_cycles(moved.nbytes, machine))
    return Cost(cycles, cycles)


def _tensor_memory_cycles(nbytes: int, machine: Machine) -> float:
    """Cycles in which bytes go between registers and tensor memory, and the last of them are there."""
    return machine.latency.smem_load + nbytes / machine.tensor_memory_bytes_per_cycle


# --- arithmetic -----------------------------------------------------------------------------------------


_COLUMNS_AT_ONCE = 2
"""Vectors along the columns that a trip to L2 brings: registers hold no more. One comes while its tile is reduced.
Norms with a weight, a bias, a scale and a shift that every tile loads took 27.5 to 36.3 us where 21.5 to 24.5 were
predicted without these trips (`docs/calibration/h200_vectors_a_tile.json`).
"""


@cost.register
def _arithmetic(work: Arithmetic, machine: Machine) -> Cost:
    """A phase holds its consumer for its busiest pipe's time after the starts of its reductions; beside other
    consumers it holds each pipe for its share.
    """
    alone, contended = dict[MachineUnit, float](), _pipes(work, machine)
    for kind, count in work.mix.items():
        unit = machine.scalar_unit[kind]
        if unit in _PIPES:
            alone[unit] = alone.get(unit, 0.0) + count * work.elements / machine.scalar_alone[kind]
    slots = machine.schedulers_per_sm * machine.threads_per_warp
    traffic = work.vectors * 2 / machine.shared_memory_bytes_per_cycle
    held = (*alone.values(), work.mix.instructions * work.elements / slots, traffic)
    # What a lone warp does on one pipe hides little of what it does on another: by their two-norm a softmax of
    # 128,256 columns takes what it was measured to (`docs/calibration/h200_long_rows.json`).
    busiest = math.hypot(*held) if work.lone else max(held)
    chain = machine.latency.arithmetic * work.statements + machine.latency.special * work.special
    chain += 2 * machine.latency.smem_load if work.vectors else 0.0
    chain += waited_for(work, machine)
    reading, ports = _reading(work, machine)
    if ports or traffic:
        contended[Unit.SHARED] = ports + traffic
    cycles = math.ceil(busiest + starts(work.reductions, machine) + chain + reading)
    pipes = tuple((pipe, math.ceil(held)) for pipe, held in sorted(contended.items()))
    return Cost(cycles, cycles, pipes=pipes)


def waited_for(work: Arithmetic, machine: Machine) -> float:
    """Cycles in which a phase waits for what its threads load, vectors along the columns and values of rows, from L2:
    lines of those have values of other blocks' rows as well (`docs/calibration/h200_columns_together.json`).
    """
    columns = work.columns // _COLUMNS_AT_ONCE * machine.latency.tma_load_l2
    return columns + work.trips * machine.latency.tma_load_l2


def _pipes(work: Arithmetic, machine: Machine) -> dict[Unit, float]:
    """Cycles for which arithmetic holds each pipe where all keep at it."""
    units = unit_cycles(machine, work.mix, work.elements)
    return {_PIPES[unit]: cycles for unit, cycles in units.items() if unit in _PIPES}


def _reading(work: Arithmetic, machine: Machine) -> tuple[float, float]:
    """Cycles in which a phase reads its streamed tiles from shared memory: alone, and of the ports.

    Vectors of a ring cost the wait and the latency alone.
    """
    alone = work.waits * (machine.latency.mbarrier_wait + machine.latency.smem_load)
    contended, columns = 0.0, work.elements / machine.mma_rows
    for bits in work.tiles:
        kind = f"shared_load_{max(16, bits)}"
        alone += machine.tile_start[kind] + columns * machine.tile_alone[kind]
        contended += columns * machine.tile_crowded[kind]
    return alone, contended


def _shared_cycles(nbytes: int, machine: Machine, across: int = 0) -> int:
    """Cycles for which bytes hold the port of shared memory, and elements that threads move one by one: a cycle for a
    warp's, however few bytes they are.
    """
    alone = math.ceil(across / machine.threads_per_warp)
    return math.ceil(nbytes / machine.shared_memory_bytes_per_cycle) + alone


_DIVISION, _DIVISION_CROWDED = 92, 0.4
"""Cycles of a division of whole numbers that nothing hides, with what is computed from it, in a role of one
warpgroup; and how much longer it takes for each further one, in times (`docs/calibration/h200_rows.json`).
"""


@cost.register
def _read(read: Read, machine: Machine) -> Cost:
    """Where the tile lies is found first. Numbers of 16 bits become f32 by one instruction each. What threads load
    by address comes after the latency of device memory, a warp's access at a time: nothing was copied ahead.
    """
    cycles = _shared_cycles(read.nbytes, machine, read.across)
    widening = math.ceil(converting(read) / machine.scalar_alone["logic"])
    crowded = 1 + _DIVISION_CROWDED * (read.warps / machine.warps_per_warpgroup - 1)
    place = _DIVISION * crowded * read.divisions
    waits = machine.latency.mbarrier_wait + machine.latency.smem_load
    latency = math.ceil(waits + max(cycles, widening))
    pipes: tuple[tuple[Unit, int], ...] = ((Unit.ALU, widening), (Unit.SHARED, cycles))
    if read.by_address:
        accesses = _accesses(read.by_address, read.at_once, _LOAD, machine)
        latency = math.ceil(
            machine.latency.mbarrier_wait + machine.latency.tma_load_dram + max(accesses, widening)
        )
        fetched = read.from_memory
        memory = memory_cycles(fetched, read.tiles, machine, piece=read.piece) if fetched else 0
        latency += cycles
        pipes = ((Unit.ALU, widening), (Unit.SHARED, accesses + cycles), (Unit.MEMORY, memory))
    return Cost(math.ceil(place) + latency, latency, pipes=pipes)


def _accesses(elements: int, at_once: int, each: float, machine: Machine) -> int:
    """Cycles for which threads that move elements by address hold the way through the first cache: `each` for a
    warp's, where they are moved one by one; else 64 bytes a cycle.
    """
    cycles = each if at_once == 1 else _WIDE_ACCESS
    return math.ceil(elements / at_once / machine.threads_per_warp * cycles)


_LOAD, _STORE, _WIDE_ACCESS = 4.0, 5.2, 8
"""Cycles of a warp's load of neighbours that begin anywhere, of a store of them, and of either of 512 bytes, 16 a
thread. By the first two kernels of rows of 333 and of 50,257 columns take what they were measured to within 10 %
(`docs/calibration/h200_resident.json`).
"""

_SCATTERED = 64
"""Cycles of a warp's store of elements that have a sector each: pairs whose halves are stored apart took 328 us for
33.5 million elements (`docs/calibration/h200_fences.json`).
"""


@cost.register
def _transform(transform: Transform, machine: Machine) -> Cost:
    """A read of shared memory, arithmetic, and a write to it, which a fence and a barrier tell products of: one after
    the other, for every thread has all of its tile in registers between.
    """
    alone, latency = _arithmetic(transform.work, machine), machine.latency
    shared = _shared_cycles(transform.read + transform.written, machine)
    trip = latency.mbarrier_wait + latency.smem_load + latency.fence_behind_stores + latency.mbarrier_arrive
    cycles = math.ceil(alone.issue + shared + trip)
    return Cost(cycles, cycles, pipes=(*alone.pipes, (Unit.SHARED, shared)))


@cost.register
def _beside(beside: Beside, machine: Machine) -> Cost:
    """Exchanges between threads are instructions of their own here, as many as a row has threads."""
    work, shuffles, starts = beside.work, machine.scalar_alone["shuffle"], 0.0
    for one in work.reductions:
        starts += math.log2(one.lanes) * machine.latency.shuffle
        starts += beside.rows * one.lanes * math.log2(one.lanes) / shuffles
    pipes = {pipe: math.ceil(cycles) for pipe, cycles in _pipes(work, machine).items()}
    shared = _shared_cycles(beside.nbytes, machine)
    chain = machine.latency.smem_load + machine.latency.arithmetic * work.statements
    cycles = math.ceil(max(*pipes.values(), shared, 0) + starts + chain)
    return Cost(cycles, cycles, pipes=tuple(sorted(({Unit.SHARED: shared} | pipes).items())))
