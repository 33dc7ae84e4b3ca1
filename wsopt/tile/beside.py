"""What consumers compute beside the products of a slab: reductions of their operand's rows, from shared memory.

A product is asynchronous, so its consumer reads the slab that the tensor core is multiplying, and adds up its
rows. The order of consumers' work is the solver's; what it costs stands here.
"""

from __future__ import annotations

import math

from wsopt.errors import LoweringError
from wsopt.machine.cost import InstructionMix, unit_cycles
from wsopt.machine.types import Machine
from wsopt.tile.expand import PRIMITIVES
from wsopt.tile.pipes import PIPES
from wsopt.tile.program import Unit
from wsopt.tile.row_layout import ACCESS_BITS, RowLayout
from wsopt.tile.types import SLAB, Reduction, Region, Role, Structure, View

_WIDENING = InstructionMix({"logic": 1})
"""A 16-bit number in a register of its own, as f32: a shift, a mask or a permutation."""


def check_beside(region: Region) -> None:
    """Raise LoweringError for operands whose rows cannot be read from a slab, and for one value a row."""
    for output in region.row_outputs if region.beside else ():
        raise LoweringError(f"output {output.name}: one value a row beside a product is not stored yet")
    for tile in region.tiles:
        if tile.view.roles[-1] is not Role.STREAM:
            raise LoweringError(
                f"tensor {tile.view.tensor}: its rows are reduced beside the product, and do not lie along the "
                "contracted axis; declare it with that axis last, and transpose it before the call"
            )


def slab_layout(region: Region, s: Structure, machine: Machine) -> RowLayout:
    """How a slab's tile lies in a consumer's registers: the widest accesses, a row's neighbours in one warp."""
    vector = ACCESS_BITS // max(tile.view.dtype.bits for tile in region.tiles)
    along = min(machine.threads_per_warp, s.depth // vector)
    return RowLayout(vector, (machine.threads_per_warp // along, along), (s.consumer_warps, 1))


def views_read(region: Region) -> tuple[View, ...]:
    """The operands whose tiles are read, each once."""
    return tuple(dict.fromkeys(tile.view for tile in region.tiles))


def beside_cycles(region: Region, s: Structure, machine: Machine) -> tuple[int, tuple[tuple[Unit, int], ...]]:
    """Cycles that the work on one slab holds its consumer for, alone; and those that it holds each unit for."""
    elements = s.rows * s.depth
    views = views_read(region)
    mix = _WIDENING * float(len(views))
    starts = 0.0
    layout = slab_layout(region, s, machine)
    for item in region.beside:
        if isinstance(item, Reduction):
            mix = mix + InstructionMix({"max" if item.kind == "max" else "add": 1})
            starts += math.log2(layout.lanes[1]) * machine.latency.shuffle
            starts += s.rows * layout.lanes[1] * math.log2(layout.lanes[1]) / machine.scalar_alone["shuffle"]
        elif item.spans == SLAB:
            mix = mix + PRIMITIVES[item.primitive]
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
