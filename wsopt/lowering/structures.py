"""The legal structures of a region on a machine: every way to cut it that the hardware and TMA allow.

Budgets (shared memory, registers, ring depth) are not looked at here; they belong to the model. What is left
out here could not be written at all, whatever the budgets.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from wsopt.errors import LoweringError
from wsopt.frontend.types import Region
from wsopt.lowering.exponentials import exp2_eighths
from wsopt.lowering.legal import MIN_SUBTILE_COLUMNS, has_aligned_slots, is_legal, subtile_counts, warp_counts
from wsopt.lowering.occupancy import several_blocks
from wsopt.lowering.parted import with_parts
from wsopt.lowering.phases import lazy_rows
from wsopt.lowering.product_structures import product_structures
from wsopt.lowering.refused import DEPTHS, problems
from wsopt.lowering.resident import resident_structures
from wsopt.lowering.row_structures import flat_structures, row_structures
from wsopt.machine.types import Machine
from wsopt.program.changed import changed
from wsopt.program.limits import Lifted, Limit
from wsopt.program.types import Sharing, Structure
from wsopt.targets import Operands, Sums, target_of
from wsopt.tensors.parts import summed
from wsopt.tensors.views import K_BLOCK, Role, pow2


def structures(region: Region, machine: Machine, lifted: Lifted = frozenset()) -> Iterator[Structure]:
    """Every legal structure, in a fixed order; more where limits of the emitter are `lifted`.

    Raises LoweringError where no structure can be: strides that TMA does not take, f8 operands that would
    need a transposition.
    """
    problem = next(problems(region, machine), None)
    if problem is not None:
        raise LoweringError(problem)
    if region.chained:
        yield from _k_block_structures(region, machine, lifted)
    elif region.contractions:
        yield from product_structures(region, machine, lifted)
        yield from _with_scaled_sums(region, machine, lifted)
    else:
        yield from row_structures(region, machine)
        if region.in_parts:
            yield from row_structures(region.in_parts, machine)
        yield from flat_structures(region, machine)
        yield from resident_structures(region, machine)


def _with_scaled_sums(region: Region, machine: Machine, lifted: Lifted) -> Iterator[Structure]:
    """Structures in which scales of groups multiply partial sums.

    emitter.v1: consumers take their own weights apart.
    """
    if region.scaled_sums is None:
        return
    for s in product_structures(region.scaled_sums, machine, lifted):
        if not s.transforms:
            yield changed(s, scaled_sums=True)


def _whole_columns(region: Region, machine: Machine) -> Iterator[int]:
    """Columns of a loop that computes values, which are held whole: a power of two, or, where sums are in registers,
    fewer in parts.
    """
    least = summed(region.extent(Role.COLUMN), MIN_SUBTILE_COLUMNS)
    parts = target_of(machine).sums is Sums.REGISTERS
    yield from dict.fromkeys((pow2(least), *((least,) if parts else ())))


def _operands(region: Region, machine: Machine) -> tuple[Operands, ...]:
    """Memory through which products may take values of the loop: the scores' columns, where there is one tile of
    scores and one value is computed from them.

    emitter.v1: not shared memory, where no consumer stages one.
    """
    scores = sum(one.spans == K_BLOCK for one in region.contractions)
    fed = {one.left for one in region.contractions if isinstance(one.left, str)}
    each = target_of(machine).operands
    return tuple(one for one in each if one is not Operands.SCORES or (scores, len(fed)) == (1, 1))


def _k_block_structures(region: Region, machine: Machine, lifted: Lifted) -> Iterator[Structure]:
    """Structures of a loop that computes values. Every slot of a streamed vector begins where TMA may write.

    emitter.v1: consumers of such a loop are cooperative; blocks have one tile where values go through tensor memory.
    """
    target = target_of(machine)
    sharings = tuple(Sharing) if Limit.COOPERATIVE_VALUES in lifted else (Sharing.COOPERATIVE,)
    both = target.sums is Sums.REGISTERS or Limit.ONE_TILE_A_BLOCK in lifted
    persistences = (True, False) if both else (False,)
    ways = tuple(
        itertools.product(
            _operands(region, machine), _corrections(region, machine), _transforms(region, machine)
        )
    )
    for columns in _whole_columns(region, machine):
        shares = exp2_eighths(region, columns, machine)
        for rows, depth, consumers, warps, sharing, persistent, cut, eighths, way in itertools.product(
            target.consumer_rows, DEPTHS, target.consumers, warp_counts(machine), sharings, persistences,
            subtile_counts(columns), shares, ways,
        ):  # fmt: skip
            operands, corrections, transforms = way
            s = Structure(
                rows, columns, depth, consumers, warps, sharing, persistent, swap=False, subtiles=cut, group=1,
                exp2_eighths=eighths, operands=operands, corrections=corrections,
                transforms=transforms,
            )  # fmt: skip
            if (
                is_legal(region, machine, s)
                and has_aligned_slots(region, rows, depth)
                and not s.spares(region.extent(Role.ROW))
            ):
                for one in (s, *several_blocks(region, s, machine)):
                    yield from with_parts(region, one, machine)
                if not both and lazy_rows(region) is not None:
                    yield changed(s, lazy=True)


def _transforms(region: Region, machine: Machine) -> tuple[int, ...]:
    """Warpgroups that widen operands for consumers.

    emitter.v1: one widens all of them, or each of several one.
    """
    if not region.widened:
        return (0,)
    return tuple(dict.fromkeys((*target_of(machine).transforms, len(region.widened))))


def _corrections(region: Region, machine: Machine) -> tuple[int, ...]:
    """Warpgroups that may rescale sums for consumers, where sums are rescaled."""
    rescaled = any(one.rescale for one in region.contractions)
    return target_of(machine).corrections if rescaled else (0,)
