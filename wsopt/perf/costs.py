"""What operations cost on a machine, in cycles: one function a kind, from counts of what it does.

Arithmetic is counted from instruction mixes; waits and hand-overs from the machine's latencies. Every figure
that these functions read stands in the machine's file with its source.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from wsopt.graph.types import DType
from wsopt.machine.cost import InstructionMix, alu_cycles, unit_cycles
from wsopt.machine.types import Machine
from wsopt.perf.pipes import PIPES, pipe_cycles
from wsopt.program.facts import Member
from wsopt.program.program import Unit
from wsopt.program.types import Structure

_SWIZZLE_BYTES = 128
_MEASURED_EXCHANGES = 2
"""Exchanges between threads in a reduction of the accumulators' layout, whose start was measured."""

TILE_GRAIN = 4
"""Cycles of one unit of the model's time where an iteration is a tile, whose intervals have some thousand."""

PROMOTION = InstructionMix({"add": 1})
"""What adding a partial sum takes, an element."""

Pipes = tuple[tuple[Unit, int], ...]


@dataclass(frozen=True, slots=True)
class Cost:
    """Cycles of an operation: `issue` of its thread, `busy` of its `unit`, `latency` until its result is there, and
    those of further units; `instructions` of the tensor core, a warpgroup.
    """

    issue: int
    latency: int
    unit: Unit | None = None
    busy: int = 0
    pipes: Pipes = ()
    instructions: int = 0


# --- copies ---------------------------------------------------------------------------------------------


def load_cycles(nbytes: float, machine: Machine, clock_mhz: float | None = None) -> int:
    """Cycles for which bytes hold the SM's path from L2, at the bandwidth that all SMs share.

    The bandwidth does not go with the SMs' clock; without one, cycles are of the sustained clock.
    """
    return _share_cycles(nbytes, machine.l2_bandwidth, machine, clock_mhz)


def gpc_cycles(nbytes: float, machine: Machine, clock_mhz: float) -> int:
    """Cycles for which bytes hold an SM's share of its GPC's path, which fetches once what several SMs read."""
    return _share_cycles(nbytes, machine.l2_distinct_bandwidth, machine, clock_mhz)


def _share_cycles(nbytes: float, bandwidth: float, machine: Machine, clock_mhz: float | None) -> int:
    clock = clock_mhz or machine.sustained_clock_mhz
    return math.ceil(nbytes * machine.sm_count * clock * 1e6 / bandwidth)


def memory_cycles(nbytes: int, tiles: int, machine: Machine) -> int:
    """Cycles for which bytes hold an SM's share of device memory, or its path from L2 where that is narrower.

    To the nearest grain: rounded up, a tile of few rows would pay more for each than one of many.
    """
    sharers = min(tiles, machine.sm_count)
    share = machine.dram_sustained_bandwidth / sharers / (machine.sustained_clock_mhz * 1e6)
    return max(1, round(max(nbytes / share, load_cycles(nbytes, machine)) / TILE_GRAIN)) * TILE_GRAIN


def line_bytes(rows: int, row_bytes: int, pitch_bytes: int, machine: Machine) -> float:
    """Bytes of the L2 lines that a box touches: `rows` rows, `pitch_bytes` apart in memory.

    A row narrower than a line still costs one; rows that do not start with a line straddle another, on the
    average over the places where they can start, and where they do not start with a sector either, each line
    costs more. A row wider than a swizzle is copied in pieces of one, and each of them straddles.
    """
    line = machine.l2_line_bytes
    step = math.gcd(pitch_bytes, line)
    pieces = math.ceil(row_bytes / _SWIZZLE_BYTES)
    width = row_bytes / pieces
    lines = max(1.0, width / line + 1 - step / line)
    if step < machine.l2_sector_bytes:
        lines *= machine.sector_split_factor
    return rows * pieces * lines * line


def box_lines(shape: tuple[int, ...], member: Member, machine: Machine) -> float:
    """Bytes of L2 lines that a copy of this shape touches of a tensor."""
    *rows, columns = shape
    width = member.view.dtype.bits // 8
    pitch = member.view.strides[-2] if rows else columns
    return line_bytes(math.prod(rows), columns * width, pitch * width, machine)


def copy_cost(busy: int, first: float, machine: Machine, pipes: Pipes = ()) -> Cost:
    """A TMA copy, which holds the way for `busy` cycles; its first bytes come after `first`."""
    return Cost(math.ceil(machine.latency.mbarrier_wait), math.ceil(first) + busy, Unit.TMA, busy, pipes)


def release_cost(machine: Machine, *, meets: bool) -> Cost:
    """Handing a slot back. Where nothing else has a consumer's warps agree that it was read, they meet first."""
    latency = machine.latency
    arrive = latency.mbarrier_arrive
    return Cost(math.ceil(latency.barrier + arrive if meets else arrive), math.ceil(latency.mbarrier_wake))


def store_cost(copied: int, staged: int, outputs: int, tiles: int, machine: Machine) -> Cost:
    """A tile's outputs: `staged` bytes into buffers, of which `copied` go on; the buffers are held until then."""
    latency, shared = machine.latency, shared_cycles(staged, machine)
    issue = outputs * (2 * latency.barrier + latency.smem_store + latency.fence) + shared
    drain = latency.tma_store / 2 + load_cycles(copied, machine)
    pipes = ((Unit.SHARED, shared), (Unit.MEMORY, memory_cycles(copied, tiles, machine)))
    return Cost(math.ceil(issue), math.ceil(issue + drain), pipes=pipes)


# --- products -------------------------------------------------------------------------------------------


def mma_cycles(dtype: DType, s: Structure, machine: Machine) -> int:
    """Cycles of the tensor core for one product of one consumer's rows, all columns, one K-block.

    Two warpgroups in one partition start every product together, and lose a little by it.
    """
    macs = s.rows * s.columns * s.depth
    joint = s.consumer_warps > machine.warps_per_warpgroup
    rate = machine.tensor[dtype.value] * (1 - machine.joint_warpgroups_loss * joint)
    return math.ceil(macs / rate)


def mma_instructions(dtype: DType, s: Structure, machine: Machine) -> int:
    """Tensor instructions of that product, a warpgroup."""
    groups = s.consumer_warps // machine.warps_per_warpgroup
    return product_instructions(s.rows, s.depth, dtype, machine) // groups


def mma_cost(dtype: DType, s: Structure, machine: Machine, products: int) -> Cost:
    """A product of a loop of `products` alone: the tensor core is shared fairly, so that each takes as long as all of
    its K-block together.
    """
    latency, busy = machine.latency, mma_cycles(dtype, s, machine)
    count = mma_instructions(dtype, s, machine)
    sharers = s.at_once * products
    return Cost(
        math.ceil(count * latency.wgmma_issue + latency.mbarrier_wait),
        math.ceil(latency.mbarrier_wait + latency.fence + busy * sharers + latency.wgmma_latency),
        Unit.TENSOR,
        busy,
        instructions=count,
    )


def product_cost(
    s: Structure, columns: int, deep: int, dtype: DType, machine: Machine, *, registers: bool
) -> Cost:
    """A product that consumers' arithmetic waits for, or feeds: then its left operand is in `registers`."""
    count, latency = product_instructions(s.rows, deep, dtype, machine), machine.latency
    rate = machine.tensor[dtype.value]
    full = machine.mma_rows * columns * (machine.mma_k_bytes * 8 // dtype.bits) / rate
    least = machine.mma_least_cycles + columns * machine.mma_least_cycles_per_column
    busy = math.ceil(max(full, machine.mma_least_cycles_registers if registers else least) * count)
    # What the queue does not take has to wait, and its consumer with it.
    waiting = max(0.0, count - machine.mma_queue) * busy / count
    issue = math.ceil(max(count * latency.wgmma_issue, waiting))
    result = latency.wgmma_latency_registers if registers else latency.wgmma_latency
    groups = s.consumer_warps // machine.warps_per_warpgroup
    return Cost(
        math.ceil(issue + latency.mbarrier_wait),
        math.ceil(busy + result),
        Unit.TENSOR,
        busy,
        instructions=count // groups,
    )


def product_instructions(rows: int, deep: int, dtype: DType, machine: Machine) -> int:
    """Tensor instructions of a product, all warpgroups of the partition together."""
    return (rows // machine.mma_rows) * (deep * dtype.bits // 8 // machine.mma_k_bytes)


def promotion_cost(s: Structure, machine: Machine) -> Cost:
    """Adding a K-block's partial sums to the sums."""
    groups = s.consumer_warps // machine.warps_per_warpgroup
    alone = alu_cycles(machine, PROMOTION, s.rows * s.columns) / groups
    cycles = math.ceil(alone + machine.latency.arithmetic)
    return Cost(cycles, cycles, Unit.ALU, cycles)


def rescale_cost(s: Structure, machine: Machine) -> Cost:
    """Multiplying a consumer's sums by a factor of each row."""
    cycles = math.ceil(s.rows * s.columns / machine.scalar_alone["mul"] + machine.latency.arithmetic)
    return Cost(cycles, cycles, pipes=((Unit.FMA, cycles),))


# --- arithmetic -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowReduction:
    """A maximum or a sum of each row, which `lanes` threads of a warp share, and `warps` warps. What stays `apart` in
    the threads is not exchanged.
    """

    kind: str
    lanes: int = 4
    warps: int = 1
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """What a run of instructions takes, whose only order is that of its reductions and of its longest chain.

    `mix` is of each of `elements`; the chain has `statements`, of them `special` functions. `waits` for tiles of a
    ring are told; `tiles` are the bits of those that are read as accumulators lie, `vectors` elements of 16 bits that
    threads load besides.
    """

    mix: InstructionMix
    elements: int
    statements: int
    special: int
    reductions: tuple[RowReduction, ...]
    waits: int = 0
    tiles: tuple[int, ...] = ()
    vectors: float = 0.0


def arithmetic_cost(work: Arithmetic, s: Structure, machine: Machine) -> Cost:
    """A phase holds its consumer for its busiest pipe's time after the starts of its reductions; beside other
    consumers it holds each pipe for its share.
    """
    alone, contended = pipe_cycles(work.mix, work.elements, machine)
    slots = machine.schedulers_per_sm * machine.threads_per_warp
    traffic = work.vectors * 2 / machine.shared_memory_bytes_per_cycle
    busiest = max(*alone.values(), work.mix.instructions * work.elements / slots, traffic, 0.0)
    starts = sum(_start(reduction, machine) for reduction in work.reductions)
    starts -= _MEASURED_EXCHANGES * machine.latency.shuffle * sum(one.apart for one in work.reductions)
    chain = machine.latency.arithmetic * work.statements + machine.latency.special * work.special
    chain += 2 * machine.latency.smem_load if work.vectors else 0.0
    reading, ports = _reading(work, s, machine)
    if ports or traffic:
        contended[Unit.SHARED] = ports + traffic
    cycles = math.ceil(busiest + starts + chain + reading)
    pipes = tuple((pipe, math.ceil(held)) for pipe, held in sorted(contended.items()))
    return Cost(cycles, cycles, pipes=pipes)


def _start(reduction: RowReduction, machine: Machine) -> float:
    """Cycles that a reduction takes besides its elements: exchanges within a warp, then between warps.

    A warp's start was measured with two exchanges. Warps that share a row meet at two barriers, around a trip of
    their results through shared memory.
    """
    exchanges = math.log2(reduction.lanes)
    cycles = machine.tile_start[f"row_{reduction.kind}"] * exchanges / _MEASURED_EXCHANGES
    if reduction.warps > 1:
        latency = machine.latency
        cycles += 2 * latency.barrier + latency.smem_store + latency.smem_load
        cycles += math.log2(reduction.warps) * latency.shuffle
    return cycles


def _reading(work: Arithmetic, s: Structure, machine: Machine) -> tuple[float, float]:
    """Cycles in which a phase reads its streamed tiles from shared memory: alone, and of the ports.

    Vectors of a ring cost the wait and the latency alone.
    """
    alone = work.waits * (machine.latency.mbarrier_wait + machine.latency.smem_load)
    contended, columns = 0.0, s.rows / machine.mma_rows * s.depth
    for bits in work.tiles:
        kind = f"shared_load_{max(16, bits)}"
        alone += machine.tile_start[kind] + columns * machine.tile_alone[kind]
        contended += columns * machine.tile_crowded[kind]
    return alone, contended


def shared_cycles(nbytes: int, machine: Machine) -> int:
    """Cycles for which bytes hold the port of shared memory."""
    return math.ceil(nbytes / machine.shared_memory_bytes_per_cycle)


def read_cost(nbytes: int, widened: int, machine: Machine) -> Cost:
    """Reading a tile of whole rows; `widened` elements of 16 bits become f32, one instruction each."""
    cycles, widening = (
        shared_cycles(nbytes, machine),
        math.ceil(widened / machine.scalar_alone["logic"]),
    )
    issue = math.ceil(machine.latency.mbarrier_wait + machine.latency.smem_load + max(cycles, widening))
    return Cost(issue, issue, pipes=((Unit.ALU, widening), (Unit.SHARED, cycles)))


def beside_cost(work: Arithmetic, nbytes: int, rows: int, machine: Machine) -> Cost:
    """Arithmetic on a K-block's tile that the tensor core is reading too; its `statements` have the reductions in."""
    shuffles, starts = machine.scalar_alone["shuffle"], 0.0
    for one in work.reductions:
        starts += math.log2(one.lanes) * machine.latency.shuffle
        starts += rows * one.lanes * math.log2(one.lanes) / shuffles
    units = unit_cycles(machine, work.mix, work.elements)
    pipes = {PIPES[unit]: math.ceil(cycles) for unit, cycles in units.items() if unit in PIPES}
    shared = shared_cycles(nbytes, machine)
    chain = machine.latency.smem_load + machine.latency.arithmetic * work.statements
    cycles = math.ceil(max(*pipes.values(), shared, 0) + starts + chain)
    return Cost(cycles, cycles, pipes=tuple(sorted(({Unit.SHARED: shared} | pipes).items())))
