"""Products whose partial sums are added up in f32 registers as they grow (promoted), on a given target."""

from __future__ import annotations

from collections.abc import Iterable

from wsopt.frontend.types import Contraction, Region
from wsopt.machine.types import Machine
from wsopt.targets import target_of
from wsopt.tensors.views import View


def is_promoted(product: Contraction, region: Region, machine: Machine) -> bool:
    """Whether a product leaves partial sums that are added up: one that asks for it, unless its 8-bit operands are
    all why, and the target's tensor core sums those in f32 by itself. Where partial sums have factors, it does.
    """
    in_f32 = region.operand_dtype.bits == 8 and target_of(machine).sums_f8_in_f32
    return product.promote and (bool(product.factors) or not in_f32)


_MOST_SETS = 4
"""Sets of partial sums of a K-block at most: each takes registers, and two instructions for a row's factor."""


def may_be_cut(depth: int, each: int) -> bool:
    """Whether a K-block is cut to parts that share a factor each, a few of them and a power of two."""
    sets, rest = divmod(depth, each)
    return rest == 0 and sets <= _MOST_SETS and sets & (sets - 1) == 0


def sum_sets(views: Iterable[View], depth: int) -> int:
    """Sets of partial sums of a K-block whose factors are `views`: one for each part with factors of its own."""
    return max((depth // view.each for view in views), default=1) or 1


def promotes(region: Region, machine: Machine) -> bool:
    """Whether any product of the region does."""
    return any(is_promoted(one, region, machine) for one in region.contractions)
