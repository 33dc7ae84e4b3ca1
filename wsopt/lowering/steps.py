"""A region as the rings and steps of a consumer's iteration: products, values between products, or whole rows."""

from __future__ import annotations

from wsopt.frontend.types import Region
from wsopt.lowering.cut import KINDS
from wsopt.lowering.maker import Steps
from wsopt.lowering.product_steps import Products
from wsopt.lowering.row_steps import Rows
from wsopt.lowering.value_steps import Values
from wsopt.machine.types import Machine
from wsopt.program.types import Structure


def steps_of(region: Region, s: Structure, machine: Machine, tiles: int) -> Steps:
    """The loop of a region cut to a structure, whose grid has so many `tiles`; kinds that were added are among the
    steps.
    """
    if s.transforms and not region.chained:
        rings, steps, held = Products(region, s, machine, tiles).computed_apart()
    elif region.body:
        rings, steps, held = Values(region, s, machine, tiles).values()
    elif region.contractions:
        rings, steps, held = Products(region, s, machine, tiles).products()
    else:
        rings, steps, held = Rows(region, s, machine, tiles).rows()
    for entry in KINDS.values():
        steps = tuple(entry.insert(steps, region, s, machine))
    return rings, steps, held
