"""What a tile of whole rows costs: its share of device memory, shared memory, and arithmetic by phases.

A phase ends in a reduction, which all that depends on it has to wait for. Within a phase instructions are
independent, so it takes the busiest pipe's time after the starts of its reductions.
"""

from __future__ import annotations

import math

from wsopt.frontend.types import Region
from wsopt.graph.types import DType
from wsopt.machine.types import Machine
from wsopt.perf import costs
from wsopt.perf.pipes import element_mix, pipe_cycles
from wsopt.program.program import Unit
from wsopt.program.row_layout import RowLayout, row_layout
from wsopt.program.steps import arguments
from wsopt.program.types import Structure
from wsopt.tensors.statements import Reduction, Statement
from wsopt.tensors.views import FULL, Role

RowItem = Statement | Reduction
_MEASURED_EXCHANGES = 2
"""Exchanges between threads in a reduction of the accumulators' layout, whose start was measured."""


ROW_GRAIN = 4
"""Cycles of one unit of the model's time where rows stream, whose intervals have some thousand."""


def memory_cycles(nbytes: int, tiles: int, machine: Machine) -> int:
    """Cycles for which bytes hold an SM's share of device memory, or its path from L2 where that is narrower.

    To the nearest grain: rounded up, a tile of few rows would pay more for each than one of many.
    """
    sharers = min(tiles, machine.sm_count)
    share = machine.dram_sustained_bandwidth / sharers / (machine.sustained_clock_mhz * 1e6)
    return max(1, round(max(nbytes / share, costs.load_cycles(nbytes, machine)) / ROW_GRAIN)) * ROW_GRAIN


def filled(region: Region, s: Structure) -> float:
    """The share of a tile's columns that a row has; the others are padding."""
    return min(1.0, region.extent(Role.COLUMN) / s.columns)


def shared_cycles(nbytes: int, machine: Machine) -> int:
    """Cycles for which bytes hold the port of shared memory."""
    return math.ceil(nbytes / machine.shared_memory_bytes_per_cycle)


def widening_cycles(region: Region, s: Structure, machine: Machine) -> int:
    """Cycles in which 16-bit elements become f32, one instruction each; others are what they are."""
    narrow = sum(view.dtype.bits == 16 for view in region.operands)
    return math.ceil(narrow * s.rows * s.columns / machine.scalar_alone["logic"])


def row_phases(region: Region) -> tuple[tuple[RowItem, ...], ...]:
    """The items of a tile in phases: each needs nothing but earlier phases, and reductions of its own last.

    What one later phase alone reads is computed there, so that no tile is held for it.
    """
    level: dict[str, int] = {}
    late: set[str] = set()
    for item in region.statements:
        level[item.name] = max((level[n] + (n in late) for n in arguments(item) if n in level), default=0)
        if isinstance(item, Reduction):
            late.add(item.name)
    for item in reversed(region.statements):
        users = [level[user.name] for user in region.statements if item.name in arguments(user)]
        if isinstance(item, Statement) and users:
            level[item.name] = max(level[item.name], min(users))
    last = max(level.values(), default=0)
    return tuple(
        tuple(item for item in region.statements if level[item.name] == number) for number in range(last + 1)
    )


def held_between(
    region: Region, phases: tuple[tuple[RowItem, ...], ...]
) -> list[tuple[str, int, int, DType]]:
    """Tiles that one phase leaves to later ones: (name, phase that makes it, last that reads it, type).

    What is read from shared memory is there from phase -1 on, in f32: it is converted once.
    """
    made = {source.name: (-1, DType.F32) for source in region.row_sources}
    for number, phase in enumerate(phases):
        for item in phase:
            if isinstance(item, Statement) and item.spans == FULL:
                made[item.name] = (number, item.dtype)
    found = []
    for name, (number, dtype) in made.items():
        readers = [n for n, phase in enumerate(phases) if any(name in arguments(item) for item in phase)]
        stored = any(output.value == name for output in region.outputs)
        last = max([*readers, *([len(phases)] if stored else [])], default=number)
        if last > number:
            found.append((name, number, last, dtype))
    return found


def _fused(region: Region, item: Statement) -> bool:
    """Whether a multiplication becomes part of the one addition that reads it."""
    if item.primitive != "mul":
        return False
    readers = [other for other in region.statements if item.name in arguments(other)]
    return len(readers) == 1 and (
        (isinstance(readers[0], Reduction) and readers[0].kind == "sum")
        or (isinstance(readers[0], Statement) and readers[0].primitive in ("add", "sub"))
    )


def _vector_elements(region: Region, items: tuple[RowItem, ...], s: Structure, layout: RowLayout) -> float:
    """Elements of column vectors that the items' threads load, once for every row that a warp has."""
    names = {name for item in items for name in arguments(item)}
    columns = [x for x in region.sources if x.name in names and x.spans == frozenset({Role.COLUMN})]
    return len(columns) * s.columns * layout.rows


def _reduction_start(item: Reduction, layout: RowLayout, machine: Machine) -> float:
    """Cycles that a reduction takes besides its elements: exchanges within a warp, then between warps.

    A warp's start was measured with two exchanges. Warps that share a row meet at two barriers, around a K-iteration
    of their results through shared memory.
    """
    exchanges = math.log2(layout.lanes[1])
    cycles = machine.tile_start[f"row_{item.kind}"] * exchanges / _MEASURED_EXCHANGES
    if layout.warps[1] > 1:
        latency = machine.latency
        cycles += 2 * latency.barrier + latency.smem_store + latency.smem_load
        cycles += math.log2(layout.warps[1]) * latency.shuffle
    return cycles


def phase_cycles(
    region: Region, items: tuple[RowItem, ...], s: Structure, machine: Machine
) -> tuple[int, tuple[tuple[Unit, int], ...]]:
    """Cycles that a phase holds its consumer for, alone; and those that it holds each unit for."""
    layout = row_layout(region, s.rows, s.columns, s.consumer_warps, machine)
    elements = s.rows * s.columns
    mix = element_mix(items, FULL, lambda item: _fused(region, item))
    alone, contended = pipe_cycles(mix, elements, machine)
    slots = machine.schedulers_per_sm * machine.threads_per_warp
    vectors = _vector_elements(region, items, s, layout)
    traffic = vectors * 2 / machine.shared_memory_bytes_per_cycle
    if vectors:
        contended[Unit.SHARED] = traffic
    busiest = max(*alone.values(), mix.instructions * elements / slots, traffic, 0.0)
    starts = sum(_reduction_start(i, layout, machine) for i in items if isinstance(i, Reduction))
    chain = machine.latency.arithmetic * sum(isinstance(i, Statement) for i in items)
    chain += machine.latency.special * sum(_is_special(item) for item in items)
    chain += 2 * machine.latency.smem_load if vectors else 0.0
    pipes = tuple((pipe, math.ceil(cycles)) for pipe, cycles in sorted(contended.items()))
    return math.ceil(busiest + starts + chain), pipes


def _is_special(item: RowItem) -> bool:
    return isinstance(item, Statement) and item.primitive in ("exp2", "rsqrt", "div", "sqrt", "log2")
