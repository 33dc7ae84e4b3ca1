"""What the space did not hold for a graph: limits of the emitter, choices that nothing enumerates, SMs and work that
its tiles leave idle.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from wsopt.lowering.occupancy import may_have_several
from wsopt.lowering.product_structures import writes_pairs
from wsopt.machine.types import Machine
from wsopt.program.facts import Product
from wsopt.program.ids import OpKind, ValueKind
from wsopt.program.limit_records import RECORDS
from wsopt.program.limits import Limit
from wsopt.program.program import Iteration, TileProgram
from wsopt.program.ranges import narrowing, own_k_iterations
from wsopt.program.types import column_role, row_role
from wsopt.schedule.outside import Absent, Outside, Padded
from wsopt.tensors.statements import Item, Reduction, Statement
from wsopt.tensors.views import Role


def outside_of(program: TileProgram, machine: Machine, limits: Mapping[Limit, int]) -> Outside:
    """What was outside the space of a search that took a schedule of `program`; each of its `limits` left so many
    structures out, or schedules of them.
    """
    padded, padding = _padded(program)
    return Outside(
        limits=tuple((one.limit.value, limits[one.limit]) for one in RECORDS if limits.get(one.limit)),
        absent=tuple(_absent(program, machine)),
        # Tiles of unequal length do not come in waves.
        idle_sms=0 if narrowing(program.bounds) or program.structure.shares else _idle_sms(program, machine),
        idle=_idle(program, machine),
        padded=padded,
        padding=padding,
    )


def _absent(program: TileProgram, machine: Machine) -> list[Absent]:
    """Choices that no structure has and that this graph could be given: to split a streamed axis longer than one
    K-block, to have a kernel for each of several products or for what follows one, to share copies in a cluster, to
    give the next tile to the block that is free first, and to have several blocks on an SM.
    """
    loop = program.iteration is Iteration.K_BLOCKS
    behind = any(not _rounds(item) for item in program.after.items)
    places = program.structure.places(machine.sm_count)
    several = program.whole.products > 1 or behind
    holds = (
        (Absent.SPLIT, loop and unsplit(program)),
        (Absent.KERNELS, loop and several),
        (
            Absent.CLUSTERS,
            loop and program.tiles > 1 and not (writes_pairs(machine) and program.work is None),
        ),
        (Absent.DYNAMIC, loop and program.tiles > places and not program.structure.shares),
        (Absent.BLOCKS, loop and not may_have_several(program.region, machine)),
    )
    return [absent for absent, there in holds if there]


def unsplit(program: TileProgram) -> bool:
    """Whether no structure splits the streamed axis over blocks, long as it is."""
    own = (item for op in program.ops for item in op.items)
    alone = program.work is None and not any(isinstance(item, Reduction) for item in own)
    alone = alone or program.structure.parted
    return program.whole.extent(Role.STREAM) > program.structure.depth and not alone


def _rounds(item: Item) -> bool:
    """Whether an item of the epilogue gives an output its type, and nothing else."""
    return isinstance(item, Statement) and item.primitive.startswith("round_")


def _idle_sms(program: TileProgram, machine: Machine) -> int:
    """SMs that have no tile in the last wave: each has a first block before any has a second."""
    places = program.structure.places(machine.sm_count)
    last = program.tiles % places or places
    return max(0, machine.sm_count - last)


def _idle(program: TileProgram, machine: Machine) -> float:
    """Share of the time of the SMs' blocks in which they have no tile and the busiest has, counted in iterations."""
    if program.shares is not None:  # a share has an iteration more than another at most
        return 0.0
    places = program.structure.places(machine.sm_count)
    if program.work is None:
        return 1 - program.tiles / (math.ceil(program.tiles / places) * places)
    own = own_k_iterations(program.bounds, program.structure)
    each = math.fsum(own) / len(own)
    return max(0.0, 1 - program.tiles * each / (places * program.work.k_iterations))


def _padded(program: TileProgram) -> tuple[tuple[Padded, ...], float]:
    """Axes along which products compute more than the tensors have, and the share of all their work that this is;
    K-blocks that a mask leaves out count as computed.
    """
    made = [(op, op.counts) for op in program.of(OpKind.MMA) if isinstance(op.counts, Product)]
    if not made:
        return (), 0.0
    s, grid, whole = program.structure, program.grid, program.whole
    passes = (
        math.ceil(whole.extent(Role.STREAM) / s.depth) / s.copies if program.bounds.every else program.passes
    )
    axes = [
        Padded(row_role(s.swap).value, grid.rows, grid.row_tiles * grid.tile_rows),
        Padded(column_role(s.swap).value, grid.columns, grid.column_tiles * grid.tile_columns),
        Padded(Role.STREAM.value, whole.extent(Role.STREAM), round(passes * s.copies * s.depth * s.splits)),
    ]
    inner = [one.deep for op, one in made if op.output and op.output.kind is ValueKind.VALUE]
    axes += [Padded(Role.INNER.value, whole.extent(Role.INNER), deep) for deep in inner[:1]]
    done = 2 * program.tiles * passes * sum(one.rows * one.columns * one.deep for _, one in made)
    return tuple(axis for axis in axes if axis.computed > axis.extent), max(0.0, 1 - whole.flops / done)
