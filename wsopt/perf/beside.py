"""What reductions beside the products of a K-block cost. The order of consumers' work is the solver's."""

from __future__ import annotations

import math

from wsopt.frontend.types import Region
from wsopt.machine.cost import InstructionMix, unit_cycles
from wsopt.machine.types import Machine
from wsopt.perf.pipes import PIPES, statement_mix
from wsopt.program.beside import k_block_layout, views_read
from wsopt.program.program import Unit
from wsopt.program.types import Structure
from wsopt.tensors.statements import Reduction
from wsopt.tensors.views import K_BLOCK

_WIDENING = InstructionMix({"logic": 1})
"""A 16-bit number in a register of its own, as f32: a shift, a mask or a permutation."""


def beside_cycles(region: Region, s: Structure, machine: Machine) -> tuple[int, tuple[tuple[Unit, int], ...]]:
    """Cycles that the work on one K-block holds its consumer for, alone; and those that it holds each unit for."""
    elements = s.rows * s.depth
    views = views_read(region)
    mix = _WIDENING * float(len(views))
    starts = 0.0
    layout = k_block_layout(region, s, machine)
    for item in region.beside:
        if isinstance(item, Reduction):
            mix = mix + InstructionMix({"max" if item.kind == "max" else "add": 1})
            starts += math.log2(layout.lanes[1]) * machine.latency.shuffle
            starts += s.rows * layout.lanes[1] * math.log2(layout.lanes[1]) / machine.scalar_alone["shuffle"]
        elif item.spans == K_BLOCK:
            mix = mix + statement_mix(item)
    nbytes = sum(elements * view.dtype.bits // 8 for view in views)
    shared = math.ceil(nbytes / machine.shared_memory_bytes_per_cycle)
    pipes = {
        PIPES[unit]: math.ceil(cycles)
        for unit, cycles in unit_cycles(machine, mix, elements).items()
        if unit in PIPES
    }
    busiest = max(*pipes.values(), shared, 0)
    chain = machine.latency.smem_load + machine.latency.arithmetic * len(region.beside)
    held = tuple(sorted(({Unit.SHARED: shared} | pipes).items()))
    return math.ceil(busiest + starts + chain), held
