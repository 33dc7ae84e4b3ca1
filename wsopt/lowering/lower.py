"""Cutting a region to a structure: the tile program with its operations, dependences, rings and counts."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import replace

from wsopt.entries import extended
from wsopt.frontend.flat_rows import flat_region
from wsopt.frontend.needed import kept, needed_bytes, needed_flops
from wsopt.frontend.types import End, Region
from wsopt.graph.types import DType
from wsopt.lowering.cut import Cut
from wsopt.lowering.equal_shares import of_products, shares_of
from wsopt.lowering.held_vectors import held_vectors
from wsopt.lowering.loop import loop_of
from wsopt.lowering.phases import element_mix, lane_sums, lazy_rows
from wsopt.lowering.row_steps import behind_rows, fetched_again, kept_in_l2, part_registers, row_sums
from wsopt.lowering.rows_layout import rows_layout
from wsopt.lowering.spread import mean_share, shares
from wsopt.machine.cost import InstructionMix
from wsopt.machine.types import Machine
from wsopt.program.changed import changed
from wsopt.program.epilogue import Epilogue
from wsopt.program.facts import Shares, TileGrid, Whole
from wsopt.program.ids import ValueKind
from wsopt.program.program import Iteration, TileProgram, Work
from wsopt.program.ranges import Bounds, k_iteration_counts, longest_last, own_k_iterations
from wsopt.program.row_layout import turning_layout, widest_bits
from wsopt.program.tile_order import OVERHEAD_K_BLOCKS, deal, numbered, rasterization_order, tiles_together
from wsopt.program.types import Space, Structure, column_role, row_role
from wsopt.targets import Operands, Sums, target_of
from wsopt.tensors.orders import is_turned
from wsopt.tensors.statements import Item, Reduction, carries_over_rows, reduces_row
from wsopt.tensors.views import BATCHES, FULL, K_BLOCK, Role, Source

Cuttable = Region
"""What can be cut to structures. Only the front end and the lowering look inside."""


def version_of(region: Region, s: Structure) -> Region:
    """The region as a structure cuts it: rows in parts where a tile has some of their columns, read and stored by
    threads where several blocks share an SM, or stored alone, as pieces of a flat row, and with scales on partial
    sums, not on weights, where it asks for that.
    """
    read, region = s.resident, (flat_region(region) or region) if s.flat else region
    return region.of_structure(s.columns, read=read, stored=read or s.stored_by_threads).of_sums(
        s.scaled_sums
    )


@functools.lru_cache(maxsize=16)
def whole_of(region: Region) -> Whole:
    """Facts of a region as a whole, whatever its tiles."""
    streamed = region.streamed_sources
    once = [output.view for output in region.outputs]
    once += [source.view for source in region.sources if source not in streamed]
    elements = region.extent(Role.ROW) * region.extent(Role.STREAM)
    return Whole(
        name=region.name,
        doc=region.doc,
        extents=region.extents,
        dtype=region.operand_dtype,
        products=len(region.contractions),
        flops=region.flops,
        needed_flops=round(needed_flops(region) * mean_share(region)),
        needed_bytes=needed_bytes(region) - _spared_bytes(region),
        compulsory_bytes=region.compulsory_bytes,
        once_bytes=sum(view.nbytes for view in once),
        kept=kept(region).elements / elements,
    )


@functools.lru_cache(maxsize=16)
def _spared_bytes(region: Region) -> int:
    """Bytes of streamed tensors that loops are taken not to reach."""
    return round((1 - mean_share(region)) * sum(view.nbytes for view in region.streams))


def grid_of(region: Region, s: Structure) -> TileGrid:
    """The tiles of a region cut to a structure."""
    batch = math.prod(map(region.extent, BATCHES))
    rows, columns = region.extent(row_role(s.swap)), region.extent(column_role(s.swap))
    # One column of tiles is taken down its rows whatever the group.
    group = s.group if s.columns < columns else -(-rows // s.tile_rows)
    segments = region.extent(Role.SEGMENT) if region.offsets else 0
    return TileGrid(batch, rows, columns, s.tile_rows, s.columns, group, s.splits, segments, s.blocks)


@functools.lru_cache(maxsize=16)
def bounds_of(region: Region) -> Bounds:
    """Bounds on a region's streamed axis."""
    extents = region.extent(Role.ROW), region.extent(Role.STREAM)
    end = region.bounds[-1] if region.end is End.BOUND else None
    whole = math.lcm(*(view.page for view in region.streams if view.page))
    read = (*region.operands, *region.stationary_operands, *(source.view for source in region.sources))
    known = frozenset[Role]().union(*(view.known for view in read))
    return Bounds(
        region.bounds, *extents, end, region.end is End.MASKS, region.full_rows, whole, known & K_BLOCK
    )


def _epilogue(region: Region, loop: Cut, grid: TileGrid) -> Epilogue:
    """The epilogue; empty where the loop stores tiles itself."""
    sums = (v for v in loop.values if (v.space, v.id.kind, v.consumer) == (Space.TENSOR, ValueKind.SUM, 0))
    once = _epilogue_of.__wrapped__ if extended() else _epilogue_of
    return once(region, sum(value.nbytes for value in sums), grid.segments / grid.row_tiles)


@functools.lru_cache(maxsize=64)
def _epilogue_of(region: Region, sum_bytes: int, ragged: float) -> Epilogue:
    items, mix = _behind_the_loop(region)
    sources = tuple(x for x in region.sources if x not in (*region.streamed_sources, *region.row_sources))
    late = any(source.spans != FULL and source.name not in region.choosing for source in region.sources)
    return Epilogue(
        items=items,
        sources=sources,
        outputs=region.outputs,
        prefetched=bool(region.contractions) and not region.chained,
        mix=mix,
        late=region.chained and late,
        sum_bytes=sum_bytes,
        ragged=ragged,
    )


def _behind_the_loop(region: Region) -> tuple[tuple[Item, ...], InstructionMix]:
    """The items that are computed behind a tile's loop, and their instructions an element where they are of tiles."""
    if region.running:
        return tuple(behind_rows(region)), InstructionMix()
    if not region.contractions:  # tiles are computed and stored in the loop
        return region.ending, InstructionMix()
    converted = InstructionMix({"convert": 0.5 * len(region.full_sources)})
    return region.statements, element_mix(region.statements, FULL) + converted


def _work(region: Region, s: Structure, machine: Machine, tiles: int) -> tuple[Work, Shares | None]:
    """The work of the SM that gets the most, found once for all structures that cut rows and K-blocks alike."""
    plain = replace(
        s, group=1, subtiles=1, exp2_eighths=0, operands=Operands.REGISTERS, corrections=0, lazy=False
    )
    once = _work_of.__wrapped__ if extended() else _work_of
    return once(region, plain, machine, tiles)


@functools.lru_cache(maxsize=256)
def _work_of(region: Region, s: Structure, machine: Machine, tiles: int) -> tuple[Work, Shares | None]:
    """Tiles and K-iterations of the SM that gets the most: the launcher's order for persistent blocks, which knows no
    run-time scalars, else the order of tile numbers; parts of tiles go to every block in turn, or are equal shares.

    A tile's K-iterations are its consumers' on the average: who is done goes on, and leaves the units to others.
    """
    bounds, varied = bounds_of(region), shares(region)
    by_row = list(k_iteration_counts(bounds, s))
    from_last = longest_last(by_row)
    counts = numbered(by_row, from_last)
    # One warp issues the products of all consumers, which look at all K-blocks of their tile.
    registers = target_of(machine).sums is Sums.REGISTERS
    own = numbered(list(own_k_iterations(bounds, s)), from_last) if registers else counts

    @functools.cache
    def of_part(share: float, row: int, number: int) -> float:
        k_blocks = round(counts[row] * share)
        part = (number + 1) * k_blocks // s.splits - number * k_blocks // s.splits
        return part * own[row] / counts[row] if counts[row] else 0.0

    def k_iterations(part: int) -> float:
        outer, row = divmod(part // s.splits, len(counts))
        return of_part(varied[outer % len(varied)], row, part % s.splits)

    if s.shares:
        found = shares_of([k_iterations(tile) for tile in range(tiles)], machine.sm_count)
        return Work(found.tiles, float(found.k_iterations)), found
    dealt = _dealt(s, machine, counts, tiles, k_iterations)
    works = (Work(len(taken), math.fsum(map(k_iterations, taken))) for taken in map(list, dealt))
    return max(works, key=lambda work: work.k_iterations + OVERHEAD_K_BLOCKS * work.tiles), None


def _dealt(
    s: Structure, machine: Machine, counts: list[int], tiles: int, k_iterations: Callable[[int], float]
) -> Iterable[Iterable[int]]:
    """The numbers of the tiles, or of the parts of tiles, that each block takes; `counts` are K-blocks by row of
    tiles.
    """
    parts = tiles * s.splits
    blocks = min(s.places(machine.sm_count), parts)
    if s.splits > 1:
        return (range(block, parts, blocks) for block in range(blocks))
    together = tiles_together(counts, tiles, blocks) if s.persistent else 0
    known = counts if s.persistent else [math.ceil(k_iterations(tile)) for tile in range(tiles)]
    return deal(known, rasterization_order(counts, tiles, together), blocks)


def _registers(region: Region, s: Structure, machine: Machine, loop: Cut) -> int:
    """Registers a thread that sums take through the loop: accumulators, partial sums, and values of rows.

    Of sums in tensor memory a consumer has one epilogue subtile at a time in registers.
    """
    kinds = (ValueKind.SUM, ValueKind.PARTIAL)
    tiles = sum(value.sets for value in loop.values if value.id.kind in kinds and value.consumer == 0)
    columns = s.columns if target_of(machine).sums is Sums.REGISTERS else s.subtile_columns
    threads = s.consumer_warps * machine.threads_per_warp
    if region.body:
        groups = s.consumer_warps // machine.warps_per_warpgroup
        # A thread has two rows of every tensor instruction's; a row's value is there in four threads. Of what comes
        # from tensor memory it has one.
        each = 2 if target_of(machine).sums is Sums.REGISTERS else 1
        rows = _row_values(region, loop) * each * math.ceil(s.rows / machine.mma_rows / groups)
    else:
        reduced = (*region.running, *region.statements)
        reductions = sum(map(reduces_row, reduced)) if not tiles else 0
        rows = reductions * _rows_of_a_thread(region, s, machine)
        rows += s.in_registers * part_registers(region, s, machine)
        rows += _carried_registers(region, s, machine)
    # Where others rescale sums a consumer has none in its loop.
    return (0 if s.corrections else tiles * s.rows * columns // threads) + rows


def _rows_of_a_thread(region: Region, s: Structure, machine: Machine) -> int:
    """Rows of a tile of rows of which each thread has elements: all of them where columns lie together."""
    if carries_over_rows(region.statements):
        return s.rows // rows_layout(region, s, machine).rows
    return max(1, s.rows // s.consumer_warps)


def _carried_registers(region: Region, s: Structure, machine: Machine) -> int:
    """Registers a thread of the reductions over rows that a consumer carries: those of one row of its tile where it
    has all rows of its columns, else those of the tile.
    """
    carried = sum(isinstance(item, Reduction) and item.over_rows for item in region.statements)
    if not carried:
        return 0
    rows = 1 if _rows_of_a_thread(region, s, machine) == s.rows else s.rows
    return carried * rows * s.columns // (s.consumer_warps * machine.threads_per_warp)


def _row_values(region: Region, loop: Cut) -> int:
    """Row values that a loop carries, or one of its steps leaves to another."""
    makers = {item.name: op.id for op in loop.ops for item in op.items if op.consumer == 0}
    carried = {i.name for i in region.body if isinstance(i, Reduction)}
    for op in (op for op in loop.ops if op.consumer == 0):
        read = {name for item in op.items for name in item.reads}
        read |= {value.subject for value in op.inputs if value.kind is ValueKind.VALUE}
        carried |= {name for name in read if makers.get(name, op.id) != op.id}
    found = (item for item in region.body if item.name in carried)
    return sum(isinstance(item, Reduction) or item.spans == frozenset({Role.ROW}) for item in found)


def unpriced(region: Region, s: Structure, machine: Machine) -> TileProgram:
    """A region cut to a structure that `machine` can hold; what its operations take is counted, not priced."""
    region = version_of(region, s)
    once = _ungrouped.__wrapped__ if extended() else _ungrouped  # what extensions add is no part of its key
    ungrouped = once(region, changed(s, group=1), machine)
    return changed(ungrouped, structure=s, grid=grid_of(region, s))


@functools.lru_cache(maxsize=2048)
def _ungrouped(region: Region, s: Structure, machine: Machine) -> TileProgram:
    """The unpriced program in the first rasterization order. Another order changes nothing but the grid."""
    grid = grid_of(region, s)
    shared_loop = loop_of(region, s, machine, grid.tiles)
    loop, held = shared_loop.cut, shared_loop.held
    after, whole = _epilogue(region, loop, grid), whole_of(region)
    bounds = bounds_of(region)
    by_row = k_iteration_counts(bounds, s) if bounds.every else ()
    k_blocks = math.ceil(max(by_row) / s.splits) if by_row else _part_k_blocks(region, s)
    work, shared = _work(region, s, machine, grid.tiles) if region.chained else (None, None)
    if s.shares and not region.chained:
        shared = of_products(grid.tiles, math.ceil(k_blocks / s.copies), machine.sm_count)
    return TileProgram(
        region=region,
        whole=whole,
        structure=s,
        grid=grid,
        iteration=Iteration.K_BLOCKS if region.contractions else Iteration.TILE,
        k_iterations=math.ceil(k_blocks / s.copies),
        tiles=grid.work_tiles * region.passes,
        values=loop.values,
        ops=loop.ops,
        edges=loop.edges,
        rings=loop.rings,
        after=after,
        accumulator_registers=_registers(region, s, machine, loop),
        tile_l2_bytes=_l2_bytes(region, bounds, s, loop),
        dram_bytes=whole.compulsory_bytes - _spared_bytes(region) + _bytes_again(region, s, machine),
        live=loop.live,
        stationary=held,
        stationary_bytes=sum(member.copy_bytes for member in held) * s.consumers,
        work=work,
        shares=shared,
        lane_sums=row_sums(region, s) if region.running else lane_sums(region.body, s, machine),
        bounds=bounds,
        unmasked=region.unmasked,
        streamed=(*region.row_sources, *_read_by_items(region), *region.tiles),
        sum_sets=_sum_sets(region, s, machine, loop),
        long_rows=bool(region.running),
        lazy=lazy_rows(region) if s.lazy else None,
        offsets=region.offsets,
        over_rows_bytes=_over_rows_bytes(region, s, machine),
        turning_bytes=_turning_bytes(region, s, machine),
        held_vectors=held_vectors(region, s, machine),
    )


def _sum_sets(region: Region, s: Structure, machine: Machine, loop: Cut) -> tuple[int, ...]:
    """How many sets of a tile's sums tensor memory may hold: a second one is for the next tile."""
    columns = sum(value.tensor_columns for value in loop.values)
    several = columns and s.persistent and not region.chained
    choices = target_of(machine).sum_sets if several else (1,)
    return tuple(count for count in choices if count == 1 or count * columns <= machine.tensor_memory_columns)


def _over_rows_bytes(region: Region, s: Structure, machine: Machine) -> int:
    """Bytes through which a consumer's warps that hold different rows bring their sums over rows together: one f32 of
    each column and warp, as Triton 3.6 takes them; 3.9 takes less.
    """
    if not carries_over_rows(region.statements):
        return 0
    apart = rows_layout(region, s, machine).warps[0]
    return apart * s.columns * DType.F32.bits // 8 if apart > 1 else 0


def _turning_bytes(region: Region, s: Structure, machine: Machine) -> int:
    """Bytes through which a consumer's threads exchange a tile that they read or store in another order."""
    tiles = () if region.contractions else region.row_tiles
    if turning_layout(tiles, s.rows, s.columns, s.consumer_warps, machine) is None:
        return 0
    crossing = (view for view in tiles if is_turned(view) and not view.is_copied)
    return s.rows * s.columns * widest_bits(crossing) // 8


@functools.lru_cache(maxsize=16)
def _read_by_items(region: Region) -> tuple[Source, ...]:
    """The sources that arithmetic of the loop reads K-block by K-block: not the factors of partial sums."""
    return tuple(source for source in region.streamed_sources if source not in region.factor_sources)


def _bytes_again(region: Region, s: Structure, machine: Machine) -> int:
    """Bytes of rows that are read twice, and not in L2 any more the second time."""
    again = fetched_again(region, s)
    return round(again * (1 - kept_in_l2(region, s, machine)) * sum(view.nbytes for view in region.operands))


def _part_k_blocks(region: Region, s: Structure) -> int:
    """K-blocks that a block takes of a tile whose K-blocks do not differ: the most of all parts where sums are split.

    A part has whole iterations.
    """
    iterations = math.ceil(region.extent(Role.STREAM) / (s.depth * s.copies))
    if s.splits == 1:
        return math.ceil(region.extent(Role.STREAM) / s.depth)
    return math.ceil(iterations / s.splits) * s.copies


def _l2_bytes(region: Region, bounds: Bounds, s: Structure, loop: Cut) -> int:
    """Bytes of operands that a tile, or a part of one, reads through L2: TMA reads nothing beyond the streamed axis's
    end.
    """
    if not region.contractions:
        return 0
    slot = sum(ring.slot_bytes for ring in loop.rings if ring.copied)
    if region.chained:
        counts = k_iteration_counts(bounds, s)
        return slot * round(mean_share(region) * sum(counts) / len(counts) / s.splits)
    k_blocks = math.ceil(region.extent(Role.STREAM) / (s.depth * s.copies)) * s.copies
    return math.ceil((k_blocks - 1 + s.tail / s.depth if s.tail else k_blocks) * slot / s.splits)
