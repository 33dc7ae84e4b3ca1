"""Shares of a K-block's exponentials that structures may take by a polynomial, off the pipe of exp2."""

from __future__ import annotations

import itertools
import math

from wsopt.frontend.types import Contraction, Region
from wsopt.lowering.maker import inner_extent
from wsopt.lowering.phases import body_levels, is_scores, k_block_mix
from wsopt.machine.cost import alu_cycles, unit_cycles
from wsopt.machine.types import Machine
from wsopt.targets import target_of


def exp2_eighths(region: Region, columns: int, machine: Machine) -> tuple[int, ...]:
    """Shares of exp2 by the polynomial that may pay, for products of so many columns. Each is reached from the one
    before, where exp2's pipe is the busiest unit of a K-block, products and issue slots considered, by leaving the
    phases less to do.
    """
    body = region.body
    items = [item for item in body if not isinstance(item, Contraction)]
    levels = body_levels(body)
    phases = [
        [item for item in items if levels[item.name] == number] for number in sorted({*levels.values()})
    ]
    deep = [
        inner_extent(region, machine) if is_scores(c) else columns for c in body if isinstance(c, Contraction)
    ]
    products = sum(deep) / machine.tensor_rate(region.operand_dtype.value)

    def pays(less: int, more: int) -> bool:
        before, after = (
            math.fsum(alu_cycles(machine, k_block_mix(own, body, eighths), 1) for own in phases)
            for eighths in (less, more)
        )
        units = unit_cycles(machine, k_block_mix(items, body, less), 1)
        own = units.get(machine.scalar_unit["exp2"], 0.0)
        return own >= max(products, *units.values()) and after < before

    shares = target_of(machine).exp2_eighths
    useful = itertools.takewhile(lambda pair: pays(*pair), itertools.pairwise(shares))
    return (0, *(more for _, more in useful))
