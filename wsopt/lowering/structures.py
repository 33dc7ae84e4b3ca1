"""The legal structures of a region on a machine: every way to cut it that the hardware and TMA allow.

Budgets (shared memory, registers, ring depth) are not looked at here; they belong to the model. What is left
out here could not be written at all, whatever the budgets.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace

from wsopt.errors import LoweringError
from wsopt.frontend.types import Contraction, Region
from wsopt.lowering.exponentials import exp2_eighths
from wsopt.lowering.lower import grid_of
from wsopt.lowering.phases import lazy_rows
from wsopt.lowering.product_steps import releases_early
from wsopt.lowering.promotion import is_promoted, promotes
from wsopt.lowering.refused import DEPTHS, fits_pages, problems
from wsopt.lowering.row_structures import row_structures
from wsopt.lowering.spread import mean_share
from wsopt.machine.types import Machine
from wsopt.program.combination import Combination, combination
from wsopt.program.limits import Lifted, Limit
from wsopt.program.types import Sharing, Structure, column_role, row_role
from wsopt.requirements import triton_release
from wsopt.targets import LoopKind, Operands, Sums, target_of
from wsopt.tensors.parts import parts, summed
from wsopt.tensors.views import FRAGMENT, FULL, K_BLOCK, SLOT_BYTES, Packing, Role, pow2

_GROUPS = (1, 2, 4, 8, 16)
_SUBTILES = (1, 2, 4)
_SUMMED_COLUMNS = (128, 64)
"""Parts of the one sum of powers of two among the columns of a product's tile."""
_MIN_SUBTILE_COLUMNS = 32
"""A narrower epilogue subtile has stores of less than 64 bytes a row, half of what TMA moves at full rate."""
_SPLITS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Ways to split sums, beside that which gives every SM one part where there are parts enough for one each."""
_FEW_WAVES, _LONG_LOOP, _PART_ITERATIONS, _SPLIT_GAINS = 2, 16, 2, 0.9
"""Sums are split where tiles are fewer than so many waves, and have so many iterations at least: a shorter loop takes
no longer than the trips of its parts. A part has so many iterations at least, and leaves the busiest SM this share at
most of what fewer parts would.
"""
_SHARED_WAVES = 8
"""Shares are for tiles of fewer waves. Of more the last one leaves little idle, and where each block counts the
K-blocks of all tiles that takes longer.
"""


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
        yield from _product_structures(region, machine, lifted)
    else:
        yield from row_structures(region, machine)


def _warps(machine: Machine) -> tuple[int, ...]:
    """Warps that a consumer may have."""
    return tuple(count * machine.warps_per_warpgroup for count in target_of(machine).warpgroups)


def _is_legal(region: Region, machine: Machine, s: Structure) -> bool:
    """Whether a structure is one of its region's. emitter.v1: rows of values in tensor memory are one warpgroup's."""
    one_group, least = s.consumer_warps == machine.warps_per_warpgroup, machine.mma_rows
    whole = s.columns >= region.extent(Role.COLUMN) and s.subtiles == 1 and not s.swap
    return not (
        (not one_group and (s.rows < 2 * least or s.consumers > 1))
        or (s.subtiles > 1 and s.subtile_columns < _MIN_SUBTILE_COLUMNS)
        or (s.sharing is Sharing.PING_PONG and (s.consumers == 1 or not s.persistent))
        or (s.depth > 128 and promotes(region, machine))
        or max(s.rows, s.columns, s.depth) > machine.tma_box_extent_max
        or (region.whole_rows and not whole)
        or (s.rows >= 2 * region.extent(row_role(s.swap)) and s.rows > least)
        or _same_order(region, s)
    )


def _same_order(region: Region, s: Structure) -> bool:
    """Whether a group of half as many tile rows takes the tiles in the same order: it has all of them already, or
    there is one column of tiles.
    """
    rows, columns = (region.extent(role(s.swap)) for role in (row_role, column_role))
    rows = -(-rows // region.extent(Role.SEGMENT))
    return s.group > 1 and (s.group * s.tile_rows >= 2 * rows or s.columns >= columns)


def _whole_columns(region: Region, machine: Machine) -> Iterator[int]:
    """Columns of a loop that computes values, which are held whole: a power of two, or, where sums are in registers,
    fewer in parts.
    """
    least = summed(region.extent(Role.COLUMN), _MIN_SUBTILE_COLUMNS)
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


def _subtiles(columns: int) -> tuple[int, ...]:
    """Epilogue subtiles that so many columns may be cut to.

    emitter.v1: subtiles are equally wide, and one of columns in parts lies in one part.
    """
    *rest, last = parts(columns)
    if not rest:
        return _SUBTILES
    widths = (last.length >> times for times in range((last.length // _MIN_SUBTILE_COLUMNS).bit_length()))
    return tuple(columns // width for width in widths)


def _k_block_structures(region: Region, machine: Machine, lifted: Lifted) -> Iterator[Structure]:
    """Structures of a loop that computes values. Every slot of a streamed vector begins where TMA may write.

    emitter.v1: consumers of such a loop are cooperative; blocks have one tile where values go through tensor memory.
    """
    target = target_of(machine)
    sharings = tuple(Sharing) if Limit.COOPERATIVE_VALUES in lifted else (Sharing.COOPERATIVE,)
    both = target.sums is Sums.REGISTERS or Limit.ONE_TILE_A_BLOCK in lifted
    persistences = (True, False) if both else (False,)
    ways = tuple(itertools.product(_operands(region, machine), _corrections(region, machine)))
    for columns in _whole_columns(region, machine):
        shares = exp2_eighths(region, columns, machine)
        for rows, depth, consumers, warps, sharing, persistent, cut, eighths, way in itertools.product(
            target.consumer_rows, DEPTHS, target.consumers, _warps(machine), sharings, persistences,
            _subtiles(columns), shares, ways,
        ):  # fmt: skip
            operands, corrections = way
            s = Structure(
                rows, columns, depth, consumers, warps, sharing, persistent, swap=False, subtiles=cut, group=1,
                exp2_eighths=eighths, operands=operands, corrections=corrections,
            )  # fmt: skip
            if (
                _is_legal(region, machine, s)
                and _aligned(region, rows, depth)
                and not s.spares(region.extent(Role.ROW))
            ):
                yield s
                yield from (replace(s, splits=splits) for splits in _splits(region, s, machine))
                if _shares(region, s, machine):
                    yield replace(s, shares=True)
                if not both and lazy_rows(region) is not None:
                    yield replace(s, lazy=True)


def _corrections(region: Region, machine: Machine) -> tuple[int, ...]:
    """Warpgroups that may rescale sums for consumers, where sums are rescaled."""
    rescaled = any(one.rescale for one in region.contractions)
    return target_of(machine).corrections if rescaled else (0,)


def _aligned(region: Region, rows: int, depth: int) -> bool:
    """Whether every slot of a streamed vector, and of a tile of scales, begins where TMA may write, and a K-block has
    whole groups, or a group whole K-blocks; of what is packed it has whole fragments, and of what lies in pages whole
    ones or a part of one.
    """
    if not all(fits_pages(view, depth) for view in region.streams if view.page):
        return False
    for view, spans in ((source.view, source.spans) for source in region.streamed_sources):
        if spans != K_BLOCK and depth * view.dtype.bits // 8 % SLOT_BYTES:
            return False
        if depth % view.each and view.each % depth:
            return False
        if view.each > 1 and rows * view.of(Role.STREAM, depth) * view.dtype.bits // 8 % SLOT_BYTES:
            return False
        if view.packing is Packing.FRAGMENTS and depth % FRAGMENT[view.dtype]:
            return False
    return True


def _has_factors(region: Region, columns: int, depth: int, lifted: Lifted) -> bool:
    """Whether the sums of a K-block have one factor a row for each tensor of factors: a block has whole K-blocks.
    emitter.v1: it has whole tiles of columns as well.
    """
    views = [source.view for source in region.factor_sources]
    whole = Limit.ONE_FACTOR in lifted
    tiles = all(whole or one.column_each == 1 or one.column_each % columns == 0 for one in views)
    return tiles and all(one.each % depth == 0 for one in views)


def _transforms(region: Region, machine: Machine, lifted: Lifted) -> tuple[int, ...]:
    """Warpgroups that compute operands for consumers.

    emitter.v1: from tensors that stream alone, which they find in shared memory.
    """
    known = {one.name for one in (*region.streamed_sources, *region.body)}
    own = all(name in known for item in region.body for name in item.reads)
    own = own or Limit.STREAMED_TRANSFORM in lifted
    return (0, *target_of(machine).transforms) if region.body and own else (0,)


def _product_structures(region: Region, machine: Machine, lifted: Lifted) -> Iterator[Structure]:
    """Structures of a loop of products whose operands come from memory, or are computed as they come.

    Operands may change sides where the graph has few rows. With two tensor instructions' rows or more the graph's
    rows fill the tensor core, and exchanging the sides only transposes the stores; with fewer, its columns (by
    eights) fit them and the rows waste less. What reduces an operand's rows takes them as the tensor core's.

    An iteration has two K-blocks, each with partial sums of its own, only where products are promoted. emitter.v1:
    then all are. Another product's sums would be begun by one K-block and added to by the other, and nothing keeps
    their order. Nor are rows reduced that lie in two accumulators.
    """
    target, warps = target_of(machine), _warps(machine)
    apart = region.beside or region.body or region.factor_sources
    few = region.extent(Role.ROW) < 2 * machine.mma_rows and not (apart or region.offsets)
    row = 128 * 8 // region.operand_dtype.bits
    packed = any(source.view.packing is Packing.FRAGMENTS for source in region.streamed_sources)
    # 64 or 128 bytes of a row, or twice the swizzle of 128 bytes; packed elements have short rows.
    depths = (row // 2, row, 2 * row, *((4 * row,) if packed else ()))
    sharings = (Sharing.COOPERATIVE, Sharing.PING_PONG) if target.ping_pong else (Sharing.COOPERATIVE,)
    early_release = (True, False) if releases_early(region, machine) and not region.body else (True,)
    promoted = [is_promoted(one, region, machine) for one in region.contractions]
    copies = (1, 2) if any(promoted) and (all(promoted) or Limit.ALL_PROMOTED in lifted) else (1,)
    least = 16 if region.body else 64, machine.mma_columns_step
    transforms, tails = _transforms(region, machine, lifted), _tails(region, machine, depths, copies)
    for swap in (False, True) if few and target.swaps else (False,):
        sizes = [*_columns(region.extent(column_role(swap)), least[swap], machine)]
        cuts = {size: _subtiles(size) for size in sizes}
        counts = sorted({count for cut in cuts.values() for count in cut})
        tiles = _tiles(region, machine, sizes, depths, lifted)
        for rows, columns, depth, consumers, own, sharing, persistent, subtiles in itertools.product(
            target.consumer_rows, sizes, depths, target.consumers, warps, sharings,
            (True, False) if target.single else (True,), counts,
        ):  # fmt: skip
            if subtiles not in cuts[columns] or (rows, columns, depth) not in tiles:
                continue
            first = Structure(
                rows, columns, depth, consumers, own, sharing, persistent, swap, subtiles, _GROUPS[0]
            )
            if not _is_legal(region, machine, first):
                continue
            parted = {number: _parted(region, replace(first, copies=number), machine) for number in copies}
            paired = _paired(region, first, machine)
            for group, k_blocks, apart_by, early in itertools.product(
                _GROUPS, copies, transforms, early_release
            ):
                s = Structure(
                    rows, columns, depth, consumers, own, sharing, persistent, swap, subtiles, group, k_blocks,
                    tails[depth, k_blocks], apart_by, early_release=early,
                )  # fmt: skip
                if not _same_order(region, s):
                    parts = [replace(s, tail=0, splits=n, shares=shares) for n, shares in parted[k_blocks]]
                    if paired and not _same_order(region, replace(s, paired=True)):
                        parts.append(replace(s, tail=0, paired=True))
                    yield from (one for one in (s, *parts) if _in_segments(region, one, lifted))


def _parted(region: Region, s: Structure, machine: Machine) -> list[tuple[int, bool]]:
    """The ways to give parts of a tile to several blocks: numbers of parts of its sums, and equal shares, whatever
    the order of tiles.
    """
    splits = [(splits, False) for splits in _splits(region, s, machine)]
    return [*splits, (1, True)] if _shares(region, s, machine) else splits


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
        if _has_factors(region, own, depth, lifted) and _aligned(region, rows, depth)
    )


def _splits(region: Region, s: Structure, machine: Machine) -> Iterator[int]:
    """Parts that the sums of a tile may be split into, each for a block of its own: numbers that leave the busiest SM
    less of a tile than any smaller one, and each part a few K-blocks.
    """
    if not _parts_come_together(region, s, machine):
        return
    tiles, sms = grid_of(region, s).tiles, machine.sm_count
    if tiles >= _FEW_WAVES * sms:
        return
    iterations, least = -(-region.extent(Role.STREAM) // (s.depth * s.copies)), _busiest_share(tiles, sms, 1)
    most = iterations // _PART_ITERATIONS if iterations >= _LONG_LOOP else 1
    for splits in sorted(n for n in {*_SPLITS, sms // tiles} if 1 < n <= most):
        share = _busiest_share(tiles, sms, splits)
        if share <= _SPLIT_GAINS * least:
            least = share
            yield splits


def _parts_come_together(region: Region, s: Structure, machine: Machine) -> bool:
    """Whether a tile's results can be made of what several blocks leave of their parts.

    emitter.v1: by persistent blocks, without rows that are reduced beside products. Where values are computed, sums
    are in registers, what rescales those of one part rescales those of all, and epilogues read no full tiles.
    """
    in_registers = target_of(machine).sums is Sums.REGISTERS
    if not s.persistent or region.beside or (region.chained and not in_registers):
        return False
    apart = s.sharing is Sharing.PING_PONG or region.full_sources
    return not region.chained or not (apart or _together(region) is None)


def _shares(region: Region, s: Structure, machine: Machine) -> bool:
    """Whether blocks may take equal shares of the K-blocks of all tiles: where these are few and the last wave leaves
    a tenth of the time to idle SMs, and where how long they are is known when the kernel runs alone.

    Not where the graph is deterministic: where a row's sums are cut, and so its bits, depends on how many tiles there
    are. emitter.v1: by cooperative consumers, in loops of kinds that a card has been seen to run.
    """
    kind = LoopKind.VALUES if region.body else LoopKind.PRODUCTS
    never = s.sharing is Sharing.PING_PONG or kind not in target_of(machine).shared
    if region.deterministic or never or not _parts_come_together(region, s, machine):
        return False
    iterations = -(-region.extent(Role.STREAM) // (s.depth * s.copies))
    tiles, sms = grid_of(region, s).tiles, machine.sm_count
    if iterations < _LONG_LOOP or tiles >= _SHARED_WAVES * sms:
        return False
    varied, few = mean_share(region) < 1, tiles < _FEW_WAVES * sms
    return varied or (few if region.chained else tiles / sms <= _SPLIT_GAINS * _busiest_share(tiles, sms, 1))


@functools.lru_cache(maxsize=16)
def _together(region: Region) -> Combination | None:
    """How the results of a loop's parts come together, where it computes values."""
    sums = {one.name: one.rescale for one in region.contractions if one.spans == FULL}
    return combination((item for item in region.body if not isinstance(item, Contraction)), sums)


def _busiest_share(tiles: int, sms: int, splits: int) -> float:
    """Tiles' worth of iterations that the busiest SM takes, split so many ways."""
    return -(-tiles * splits // sms) / splits


def _columns(extent: int, least: int, machine: Machine) -> Iterator[int]:
    """Columns of a product's tile, of so many in all: powers of two from the `least` up to what one instruction
    takes, no more than the extent needs; last, where sums are in registers, 192 = 128 + 64.

    Other sums have a part of which an instruction takes as long as one of twice its columns.
    """
    sizes = (least << n for n in range((machine.mma_columns_max // least).bit_length()))
    yield from (size for size in sizes if size == least or size < 2 * extent)
    if target_of(machine).sums is Sums.REGISTERS and extent > _SUMMED_COLUMNS[0]:
        yield sum(_SUMMED_COLUMNS)


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
