"""Which products of a region have their sums added up in f32 registers as they grow, on a machine's target."""

from __future__ import annotations

from wsopt.frontend.types import Contraction, Region
from wsopt.machine.types import Machine
from wsopt.targets import target_of


def is_promoted(product: Contraction, region: Region, machine: Machine) -> bool:
    """Whether a product leaves partial sums that are added up: one that asks for it, unless its 8-bit operands are
    all why, and the target's tensor core sums those in f32 by itself. Where partial sums have factors, it does.
    """
    in_f32 = region.operand_dtype.bits == 8 and target_of(machine).sums_f8_in_f32
    return product.promote and (bool(product.factors) or not in_f32)


def promotes(region: Region, machine: Machine) -> bool:
    """Whether any product of the region does."""
    return any(is_promoted(one, region, machine) for one in region.contractions)
