"""The structures of loops of products whose operands come from memory, or are computed as they come."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from wsopt.frontend.types import Region
from wsopt.lowering.legal import (
    MIN_PART_COLUMNS,
    MIN_SUBTILE_COLUMNS,
    has_aligned_slots,
    is_legal,
    same_order,
    subtile_counts,
    warp_counts,
)
from wsopt.lowering.occupancy import several_blocks
from wsopt.lowering.parted import with_parts
from wsopt.lowering.product_steps import releases_early
from wsopt.lowering.promotion import is_promoted, may_be_cut
from wsopt.machine.types import Machine
from wsopt.program.changed import changed
from wsopt.program.limits import Lifted, Limit
from wsopt.program.types import Sharing, Structure, column_role, row_role
from wsopt.requirements import triton_release
from wsopt.targets import Sums, target_of
from wsopt.tensors.parts import parts, summed
from wsopt.tensors.views import BATCHES, Packing, Role, pow2

_GROUPS = (1, 2, 4, 8, 16)
_SUMMED_COLUMNS = 192
"""Columns of a product's tile that are a sum of powers of two, 128 + 64, and taken wherever 128 are too few."""
_SUMMED_OF_FEW, _FEW_WAVES = (96, 160), 2
"""Others, 64 + 32 and 128 + 32, where an output is fewer tiles of 128 x 128 than so many waves, for there it counts
how many tiles there are: a product of 4096 x 576 x 2048 takes 18.9 us with 96 and 19.8 with 160 columns, and with 192
it takes 23.4 (`docs/calibration/h200_settled.json`).
"""


def product_structures(region: Region, machine: Machine, lifted: Lifted) -> Iterator[Structure]:
    """Structures of a loop of products whose operands come from memory, or are computed as they come.

    Operands may change sides where the graph has few rows. With two tensor instructions' rows or more the graph's
    rows fill the tensor core, and exchanging the sides only transposes the stores; with fewer, its columns (by
    eights) fit them and the rows waste less. What reduces an operand's rows takes them as the tensor core's.
    """
    apart = region.beside or region.body or region.factor_sources
    few = region.extent(Role.ROW) < 2 * machine.mma_rows and not (apart or region.offsets)
    depths = _depths(region)
    variants = _Variants.of(region, machine, depths, lifted)
    for swap in (False, True) if few and target_of(machine).swaps else (False,):
        for first in _first_structures(region, machine, depths, lifted, swap=swap):
            yield from (one for one in variants.of_first(first) if _in_segments(region, one, lifted))


def _depths(region: Region) -> tuple[int, ...]:
    """Elements of the streamed axis in a K-block: 64 or 128 bytes of a row, or twice the swizzle of 128 bytes; packed
    elements have short rows.
    """
    row = 128 * 8 // region.operand_dtype.bits
    packed = any(source.view.packing is Packing.FRAGMENTS for source in region.streamed_sources)
    return (row // 2, row, 2 * row, *((4 * row,) if packed else ()))


def _first_structures(
    region: Region, machine: Machine, depths: Sequence[int], lifted: Lifted, *, swap: bool
) -> Iterator[Structure]:
    """The first of all legal structures with the same tiles, consumers and subtiles: in the first order of tiles."""
    target, warps = target_of(machine), warp_counts(machine)
    sharings = (Sharing.COOPERATIVE, Sharing.PING_PONG) if target.ping_pong else (Sharing.COOPERATIVE,)
    # Weights that the loop computes are the rows: of few columns one instruction has all.
    own = max(machine.mma_columns_step, min(16, pow2(region.extent(Role.COLUMN))))
    least = machine.mma_columns_step if swap else own if region.body else 64
    sizes = [*_columns(region.extent(column_role(swap)), least, machine, few=_few_tiles(region, machine))]
    cuts = {size: subtile_counts(size) for size in sizes}
    counts = sorted({count for cut in cuts.values() for count in cut})
    tiles = _tiles(region, machine, sizes, depths, lifted)
    for rows, columns, depth, consumers, each, sharing, persistent, subtiles in itertools.product(
        target.consumer_rows, sizes, depths, target.consumers, warps, sharings,
        (True, False) if target.single else (True,), counts,
    ):  # fmt: skip
        if subtiles not in cuts[columns] or (rows, columns, depth) not in tiles:
            continue
        s = Structure(rows, columns, depth, consumers, each, sharing, persistent, swap, subtiles, _GROUPS[0])
        if is_legal(region, machine, s):
            yield s


@dataclass(frozen=True, slots=True)
class _Variants:
    """What structures with the same tiles, consumers and subtiles may differ in, besides the order of tiles.

    `copies` are K-blocks of an iteration, `tails` the tail for each depth and number of them, `transforms` warpgroups
    that compute operands; `early_release` says when slots may be handed back.
    """

    region: Region
    machine: Machine
    copies: tuple[int, ...]
    tails: Mapping[tuple[int, int], int]
    transforms: tuple[int, ...]
    early_release: tuple[bool, ...]

    @classmethod
    def of(cls, region: Region, machine: Machine, depths: Sequence[int], lifted: Lifted) -> _Variants:
        """The variants of a region's structures, with these depths of a K-block."""
        copies = _copies(region, machine, lifted)
        early = (True, False) if releases_early(region, machine) and not region.body else (True,)
        tails = _tails(region, machine, depths, copies)
        return cls(region, machine, copies, tails, _transforms(region, machine, lifted), early)

    def of_first(self, first: Structure) -> Iterator[Structure]:
        """The structures that differ from a first one in this and in the order of tiles, each with those in which
        an SM has several blocks, or several blocks have parts of its tiles.
        """
        placed = {
            asked: _placed(self.region, changed(first, copies=asked[0], transforms=asked[1]), self.machine)
            for asked in itertools.product(self.copies, self.transforms)
        }
        paired = _paired(self.region, first, self.machine)
        for group, k_blocks, transforms, early in itertools.product(
            _GROUPS, self.copies, self.transforms, self.early_release
        ):
            s = changed(
                first, group=group, copies=k_blocks, tail=self.tails[first.depth, k_blocks], transforms=transforms,
                early_release=early,
            )  # fmt: skip
            if same_order(self.region, s):
                continue
            for one in placed[k_blocks, transforms]:
                tail = 0 if one.parted else s.tail
                yield changed(s, tail=tail, splits=one.splits, shares=one.shares, occupancy=one.occupancy,
                              atomics=one.atomics)  # fmt: skip
            if paired and not same_order(self.region, two := changed(s, tail=0, paired=True)):
                yield two


def _copies(region: Region, machine: Machine, lifted: Lifted) -> tuple[int, ...]:
    """K-blocks of an iteration: two, each with partial sums of its own, only where products are promoted.

    emitter.v1: then all are. Another product's sums would be begun by one K-block and added to by the other, and
    nothing keeps their order. Nor are rows reduced that lie in two accumulators.
    """
    promoted = [is_promoted(one, region, machine) for one in region.contractions]
    several = any(promoted) and not region.body and (all(promoted) or Limit.ALL_PROMOTED in lifted)
    return (1, 2) if several else (1,)


def _placed(region: Region, s: Structure, machine: Machine) -> list[Structure]:
    """A structure with each number of blocks an SM, and each way to give several blocks parts of its tiles, whatever
    the order of tiles.
    """
    alike = (s, *several_blocks(region, s, machine))
    return [placed for one in alike for placed in with_parts(region, one, machine)]


def _in_segments(region: Region, s: Structure, lifted: Lifted) -> bool:
    """Whether blocks can find their tiles where run-time offsets cut the rows, if these do.

    emitter.v1: persistent blocks of whole tiles.
    """
    return region.offsets is None or Limit.SEGMENTS in lifted or (s.persistent and not s.parted)


def writes_pairs(machine: Machine) -> bool:
    """Whether a card has products of two blocks, and the Triton that is here, or else the newest, writes them."""
    since, has = target_of(machine).paired_since, triton_release()
    return since is not None and (has is None or has >= since)


def _paired(region: Region, s: Structure, machine: Machine) -> bool:
    """Whether two blocks may work on one tile, with products of both: where their Triton can write it, and the other
    one has rows.

    emitter.v1: in persistent loops of products alone, whose epilogues store by TMA, where operands keep their sides
    and no run-time offsets cut the rows.
    """
    if not writes_pairs(machine):
        return False
    plain = not (region.beside or region.body or region.factor_sources or region.offsets)
    plain = plain and s.persistent and not s.swap
    by_tma = all(output.is_tile for output in region.outputs)
    return plain and by_tma and region.extent(row_role(s.swap)) > s.tile_rows


def _tiles(
    region: Region, machine: Machine, columns: Iterable[int], depths: Iterable[int], lifted: Lifted
) -> frozenset[tuple[int, int, int]]:
    """Rows, columns and depth of the tiles whose slots and factors are as a kernel needs them."""
    every = itertools.product(target_of(machine).consumer_rows, columns, depths)
    return frozenset(
        (rows, own, depth)
        for rows, own, depth in every
        if _has_factors(region, own, depth, lifted) and has_aligned_slots(region, rows, depth)
    )


def _has_factors(region: Region, columns: int, depth: int, lifted: Lifted) -> bool:
    """Whether the sums of a K-block have one factor a row for each tensor of factors: a block has whole K-blocks. Of
    an operand in registers a K-block may have several blocks, and sums for each. emitter.v1: a block has whole tiles
    of columns as well.
    """
    views = [source.view for source in region.factor_sources]
    whole = Limit.ONE_FACTOR in lifted
    tiles = all(whole or one.column_each == 1 or one.column_each % columns == 0 for one in views)
    whole_k_blocks = (one.each % depth == 0 for one in views)
    return tiles and (
        all(whole_k_blocks) or (bool(region.body) and all(may_be_cut(depth, one.each) for one in views))
    )


def _transforms(region: Region, machine: Machine, lifted: Lifted) -> tuple[int, ...]:
    """Warpgroups that compute operands for consumers.

    emitter.v1: from tensors that stream alone, which they find in shared memory.
    """
    known = {one.name for one in (*region.streamed_sources, *region.body)}
    own = all(name in known for item in region.body for name in item.reads)
    own = own or Limit.STREAMED_TRANSFORM in lifted
    return (0, *target_of(machine).transforms) if region.body and own else (0,)


def _few_tiles(region: Region, machine: Machine) -> bool:
    """Whether an output, of products alone, has few tiles of 128 x 128."""
    elements = math.prod(map(region.extent, (*BATCHES, Role.ROW, Role.COLUMN)))
    return not region.body and elements < _FEW_WAVES * machine.sm_count * 128**2


def _columns(extent: int, least: int, machine: Machine, *, few: bool) -> Iterator[int]:
    """Columns of a product's tile, of so many in all: powers of two from the `least` up to what one instruction
    takes, no more than the extent needs; last, where sums are in registers, sums of powers of two: 192 = 128 + 64,
    and the least ones that hold all columns, 96 = 64 + 32 or 80 = 64 + 16, whose last part is an epilogue subtile or
    more of them.

    Others have a part of which an instruction takes nearly as long as one of twice its columns: with them only a
    `few` tiles are cut.
    """
    sizes = [least << n for n in range((machine.mma_columns_max // least).bit_length())]
    yield from (size for size in sizes if size == least or size < 2 * extent)
    if target_of(machine).sums is Sums.REGISTERS:
        wanted = {_SUMMED_COLUMNS} if extent > parts(_SUMMED_COLUMNS)[0].length else set()
        holding = {summed(extent, last) for last in (MIN_PART_COLUMNS, MIN_SUBTILE_COLUMNS)}
        wanted |= {whole for whole in holding if sizes[0] < whole < sizes[-1] and whole not in sizes}
        if few:
            wanted.update(size for size in _SUMMED_OF_FEW if least < size < extent)
        yield from sorted(wanted)


def _tails(
    region: Region, machine: Machine, depths: Iterable[int], copies: Iterable[int]
) -> dict[tuple[int, int], int]:
    """The tails of K-blocks of each depth, with so many in an iteration."""
    return {asked: _tail(region, machine, *asked) for asked in itertools.product(depths, copies)}


def _tail(region: Region, machine: Machine, depth: int, copies: int) -> int:
    """Elements of the last K-block that products have to take: a power of two, and what one instruction sums.

    0 where that is the whole K-block, or where the last K-block may lie beyond the end altogether.
    """
    rest = region.extent(Role.STREAM) % depth
    size = max(machine.mma_depth(region.operand_dtype.bits), pow2(rest))
    return (
        size if rest and copies == 1 and not region.body and target_of(machine).tails and size < depth else 0
    )
