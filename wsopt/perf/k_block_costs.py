"""What the steps of a loop that computes values cost: arithmetic by pipe, products by their operands.

A phase is one run of independent instructions, so its pipes work side by side: alone it takes the busiest
pipe's time after the starts of its reductions, and beside other consumers it holds each pipe for its share.
"""

from __future__ import annotations

import math

from wsopt.frontend.extents import pow2
from wsopt.frontend.types import Region
from wsopt.machine.cost import InstructionMix
from wsopt.machine.types import Machine
from wsopt.perf.lanes import lane_sums, saved_cycles
from wsopt.perf.pipes import element_mix, pipe_cycles
from wsopt.program.program import Unit
from wsopt.program.steps import BodyItem, arguments
from wsopt.program.types import Structure
from wsopt.tensors.statements import Reduction, Statement
from wsopt.tensors.views import K_BLOCK, Role, Source


def inner_extent(region: Region, machine: Machine) -> int:
    """Elements of the inner axis as tiles hold it: a power of two, and what one tensor instruction takes."""
    least = machine.mma_k_bytes * 8 // region.operand_dtype.bits
    return max(least, pow2(region.extent(Role.INNER)))


def phase_mix(region: Region, items: tuple[BodyItem, ...]) -> InstructionMix:
    """Instructions an element of the K-block's tile; a product of a number that one sum takes is part of it."""
    counted = [item for item in items if isinstance(item, Statement | Reduction)]
    mix = element_mix(counted, K_BLOCK, lambda item: _fused(region, item))
    short = [source for source in _tiles(region, items) if source.view.dtype.bits < 32]
    return mix + InstructionMix({"convert": 0.5 * len(short)}) if short else mix


def _tiles(region: Region, items: tuple[BodyItem, ...]) -> tuple[Source, ...]:
    """The streamed tensors of which a phase reads whole tiles."""
    names = {name for item in items for name in arguments(item)}
    return tuple(s for s in region.streamed_sources if s.spans == K_BLOCK and s.name in names)


def _reading(
    region: Region, items: tuple[BodyItem, ...], s: Structure, machine: Machine
) -> tuple[float, float]:
    """Cycles in which a phase reads its streamed tiles from shared memory: alone, and of the ports.

    Vectors cost the wait and the latency alone.
    """
    names = {name for item in items for name in arguments(item)}
    waits = sum(source.name in names for source in region.streamed_sources)
    alone = waits * (machine.latency.mbarrier_wait + machine.latency.smem_load)
    contended = 0.0
    for source in _tiles(region, items):
        kind = f"shared_load_{max(16, source.view.dtype.bits)}"
        columns = s.rows / machine.mma_rows * s.depth
        alone += machine.tile_start[kind] + columns * machine.tile_alone[kind]
        contended += columns * machine.tile_crowded[kind]
    return alone, contended


def _fused(region: Region, item: Statement) -> bool:
    """Whether a multiplication becomes part of the one addition that reads it."""
    if item.primitive != "mul":
        return False
    readers = [other for other in region.body if item.name in arguments(other)]
    return len(readers) == 1 and isinstance(readers[0], Statement) and readers[0].primitive in ("add", "sub")


def phase_cycles(
    region: Region, items: tuple[BodyItem, ...], s: Structure, machine: Machine
) -> tuple[int, tuple[tuple[Unit, int], ...]]:
    """Cycles that a phase holds its consumer for, alone; and those that it holds each pipe for."""
    elements = s.rows * s.depth
    mix = phase_mix(region, items)
    alone, contended = pipe_cycles(mix, elements, machine)
    slots = machine.schedulers_per_sm * machine.threads_per_warp
    busiest = max(*alone.values(), mix.instructions * elements / slots, 0.0)
    starts = sum(machine.tile_start[f"row_{i.kind}"] for i in items if isinstance(i, Reduction))
    apart = lane_sums(region, s, machine)
    starts -= saved_cycles(machine) * sum(item.name in apart for item in items)
    chain = machine.latency.arithmetic * sum(isinstance(i, Statement) for i in items)
    chain += machine.latency.special * sum(isinstance(i, Statement) and "exp" in i.primitive for i in items)
    reading, ports = _reading(region, items, s, machine)
    if ports:
        contended[Unit.SHARED] = ports
    pipes = tuple((pipe, math.ceil(cycles)) for pipe, cycles in sorted(contended.items()))
    return math.ceil(busiest + starts + chain + reading), pipes


def rescale_cycles(s: Structure, machine: Machine) -> int:
    """Cycles in which a consumer multiplies its sums by a factor of each row."""
    return math.ceil(s.rows * s.columns / machine.scalar_alone["mul"] + machine.latency.arithmetic)


def product_cycles(
    rows: int, columns: int, deep: int, region: Region, machine: Machine, *, held: bool
) -> int:
    """Cycles of the tensor core for a product; with `held` its left operand is in registers."""
    dtype = region.operand_dtype
    rate = machine.tensor[dtype.value]
    full = machine.mma_rows * columns * (machine.mma_k_bytes * 8 // dtype.bits) / rate
    least = machine.mma_least_cycles + columns * machine.mma_least_cycles_per_column
    one = max(full, machine.mma_least_cycles_registers if held else least)
    return math.ceil(one * product_instructions(rows, deep, region, machine))


def product_instructions(rows: int, deep: int, region: Region, machine: Machine) -> int:
    """Tensor instructions of a product, all warpgroups of the partition together."""
    return (rows // machine.mma_rows) * (deep * region.operand_dtype.bits // 8 // machine.mma_k_bytes)


def product_issue(instructions: int, busy: int, machine: Machine) -> int:
    """Cycles for which issuing a product holds its consumer: what the queue does not take has to wait."""
    waiting = max(0.0, instructions - machine.mma_queue) * busy / instructions
    return math.ceil(max(instructions * machine.latency.wgmma_issue, waiting))
