"""Why a region has no structure on a machine at all: what the target, the loop, or TMA cannot do, with remedies."""

from __future__ import annotations

import math
from collections.abc import Iterator

from wsopt.frontend import remedies
from wsopt.frontend.types import Region
from wsopt.lowering.promotion import promotes
from wsopt.lowering.resident import may_be_resident
from wsopt.machine.types import Machine
from wsopt.targets import LoopKind, Sums, target_of
from wsopt.tensors.orders import lie_both_ways
from wsopt.tensors.statements import Statement, carries_over_rows
from wsopt.tensors.views import BATCHES, FULL, K_BLOCK, TRANSPOSED_BITS, Role, View

DEPTHS = (32, 64, 128, 256)
"""K-blocks of a loop that computes values."""

_MOST_COUNTED = 1 << 26
"""Elements along axes that no input has: those of a table of 8,192 by 8,192, which take the interpreter a minute."""

PAGE_LEAST = 8
"""Elements of which a page has a multiple where a K-block has several: rows after which a swizzle repeats."""


def problems(region: Region, machine: Machine) -> Iterator[str]:
    """Why there is no structure, a sentence each; the first is told."""
    yield from _target_problems(region, machine)
    yield from _loop_problems(region, machine)
    yield from _page_problems(region)
    yield from _segment_problems(region)
    if not region.contractions:
        yield from _row_problems(region, machine)
    yield from _tile_problems(region, machine)
    if region.contractions:
        yield from _product_problems(region, machine)


def _tile_problems(region: Region, machine: Machine) -> Iterator[str]:
    """Tiles of outputs and inputs that TMA cannot copy."""
    # Outputs come first: a caller can lay out inputs in another way, and outputs are dense.
    for output in region.outputs:
        # The threads that compute an output can store it, whatever its rows begin with.
        by_threads = output.by_threads and not (region.contractions and region.whole_rows)
        if output.has_columns and not by_threads:
            yield from _copy_problems(output.view, machine, remedies.REDUCED_PITCH)
    full = (source.view for source in region.full_sources)
    streams = () if region.by_threads else region.streams
    for view in (*streams, *region.stationary_operands, *full):
        yield from _copy_problems(view, machine, remedies.INPUT_PITCH)


def _product_problems(region: Region, machine: Machine) -> Iterator[str]:
    """Operands that no tensor instruction reads, more columns than one takes, and extents that no input has."""
    yield from (
        f"tensor {view.tensor}: {view.dtype.value} operands have to be contiguous along the contracted axis, for the "
        "tensor core transposes 16-bit types only: declare it with that axis last, transpose it before the call, and "
        "change the matmul's attr"
        for view in region.operands
        if view.dtype.bits != TRANSPOSED_BITS and view.roles[-1] is not Role.STREAM
        if view not in region.widened
    )
    if region.chained and region.extent(Role.COLUMN) > machine.mma_columns_max:
        yield (
            f"graph {region.name}: the products' columns have {region.extent(Role.COLUMN)} elements, held whole; "
            f"one tensor instruction takes {machine.mma_columns_max}"
        )
    read = [*region.streams, *region.stationary_operands, *(source.view for source in region.sources)]
    for role in (Role.ROW, Role.COLUMN):
        if all(role not in view.roles for view in read):
            yield (
                f"graph {region.name}: no input has its {role}s, which are counted alone, and a call does not say "
                "how many there are: make what the product is added to an input"
            )
    if region.body and region.promote:
        yield f"graph {region.name}: f8 sums in f32 are not lowered inside such a loop"


def _target_problems(region: Region, machine: Machine) -> Iterator[str]:
    """What the machine's target has no implementation of yet."""
    target = target_of(machine)
    registers = target.sums is Sums.REGISTERS
    reduces = bool(region.contractions) and (region.beside or region.whole_rows)
    values, rows = LoopKind.VALUES in target.loops, LoopKind.ROWS in target.loops
    apart = target.transforms or registers
    needs = {
        "a loop that computes values between products": (region.chained, values),
        "products of operands that the loop computes": (region.body and not region.chained, apart),
        "operands of 8 bits, which a loop that computes values widens": (region.widened, target.transforms),
        "rows that stream without products": (not region.contractions, rows),
        "reductions of an operand's or of an output's rows": (reduces, target.reduces),
        "sums that are promoted to f32 registers as they grow": (promotes(region, machine), target.promotes),
        "rows that offsets cut into groups": (region.offsets is not None, registers),
    }
    yield from (
        f"graph {region.name}: kernels for {target.title} ({target.architecture}) are written for products with "
        f"arithmetic around them and for rows so far, and this graph has {what}; compile it for a Hopper card, such "
        "as --machine h200"
        for what, (needed, given) in needs.items()
        if needed and not given
    )


def _loop_problems(region: Region, machine: Machine) -> Iterator[str]:
    """What a loop that computes values, reductions beside products, and rows that are reduced cannot have yet."""
    apart = (x for x in region.sources if x.spans not in (K_BLOCK, FULL) and len(x.spans) > 1)
    for source in apart if region.body else ():
        axes = " and ".join(sorted(source.spans))
        yield f"tensor {source.view.tensor}: tiles along {axes} are not lowered in a loop"
    if region.bounds and not region.chained:
        yield (
            f"graph {region.name}: an operand of the product is computed by what is not finite where its tensors are "
            "zero, as they are beyond the end of the contracted axis; compute it before, and make it an input"
        )
    counted = (i for i in region.body if isinstance(i, Statement) and i.primitive == f"iota_{Role.STREAM}")
    if not region.chained and any(counted):
        yield (
            f"graph {region.name}: an operand of the product is computed of places along the contracted axis, which "
            "such a loop does not count; compute it before, and make it an input"
        )
    if region.chained and len(region.stationary_operands) > 1:
        names = ", ".join(view.tensor for view in region.stationary_operands) or "none"
        yield f"graph {region.name}: a loop that computes values holds one tensor, here {names}"
    yield from (
        f"tensor {tile.view.tensor}: its rows are reduced beside the product, and do not lie along the "
        "contracted axis; declare it with that axis last, and transpose it before the call"
        for tile in region.tiles
        if tile.view.roles[-1] is not Role.STREAM
    )
    reduced, extent = region.whole_rows and region.contractions, region.extent(Role.COLUMN)
    if reduced and extent > machine.mma_columns_max:
        yield (
            f"graph {region.name}: rows of {extent} elements of a product are reduced, and a tile has at most "
            f"{machine.mma_columns_max} columns; reduce them in a kernel of their own"
        )


def fits_pages(view: View, depth: int) -> bool:
    """Whether a K-block has whole pages, or a page has whole K-blocks. One of several pages begins in its slot where
    the swizzle does, and has its elements as rows there.
    """
    whole = max(depth, view.page) % min(depth, view.page) == 0
    return whole and (
        depth <= view.page or (view.page % PAGE_LEAST == 0 and view.roles[-1] is not Role.STREAM)
    )


def _page_problems(region: Region) -> Iterator[str]:
    """Pages of a streamed tensor of which no K-block has whole ones or is a whole part."""
    for view in (view for view in region.streams if view.page):
        if not any(fits_pages(view, depth) for depth in DEPTHS):
            rows = f"a power of two from {PAGE_LEAST} on, or " if view.roles[-1] is not Role.STREAM else ""
            yield (
                f"tensor {view.tensor}: it lies in pages of {view.page} elements of the streamed axis, of which a "
                f"K-block has no whole number and is no whole part; take pages of {rows}a multiple of {DEPTHS[0]}"
            )


def _segment_problems(region: Region) -> Iterator[str]:
    """Rows that offsets cut which are more than one axis in memory."""
    outer = [role for role in BATCHES if region.extent(role) > 1]
    if region.offsets and outer:
        yield (
            f"graph {region.name}: offsets cut rows of several axes that do not lie together in every tensor; "
            "declare every tensor with all rows as one axis"
        )


def _row_problems(region: Region, machine: Machine) -> Iterator[str]:
    """Rows that do not lie as the loads and stores of rows need them."""
    reduces = bool(region.whole_rows or region.running)
    held = "are reduced" if reduces else "are stored"
    stored = (output.view for output in region.tile_outputs)
    tensors = [*(source.view for source in region.tile_sources), *stored]
    tiles = (source.view for source in region.sources if source.spans == FULL)
    for view in (view for view in tiles if view.chosen is not None):
        if lie_both_ways(region.row_tiles):
            yield (
                f"tensor {view.tensor}: its rows are read at places that an index names, beside tensors that lie "
                "turned to each other; compute it before, and make it an input"
            )
    if not region.tile_sources and not may_be_resident(region):
        yield (
            f"graph {region.name}: no input has the rows and columns that {held}, and a kernel streams one that has; "
            f"{remedies.WHOLE_TILE}"
        )
    if region.running and not (region.tile_sources or any(output.has_columns for output in region.outputs)):
        yield (
            f"graph {region.name}: rows that no SM holds are computed of vectors alone, and nothing but their "
            f"reductions is stored; {remedies.WHOLE_TILE}"
        )
    yield from _counted_problems(region)
    carried = carries_over_rows(region.statements)
    if not (region.running or carried):
        return
    yield from (
        f"tensor {view.tensor}: axis {view.origin[-1][-1]} has its elements next to each other, another one in "
        f"{tensors[0].tensor}; rows that no SM holds, and sums over rows, are of tensors that lie one way: "
        f"{remedies.ONE_ORDER}"
        for view in tensors
        if view.roles[-1] is not tensors[0].roles[-1] or view.roles[-1] not in (Role.ROW, Role.COLUMN)
    )


def _counted_problems(region: Region) -> Iterator[str]:
    """Axes along which the graph counts, which no input has, and which are too long: a kernel has their extents in
    it, and is simulated with as many elements.
    """
    if not region.sources:
        yield f"graph {region.name}: it computes of indices alone, and reads no input; compute it once, outside"
    read = {role for source in region.sources for role in source.view.roles}
    alone = math.prod(extent for role, extent in region.extents if role not in read)
    if alone > _MOST_COUNTED:
        yield (
            f"graph {region.name}: its outputs have {alone} elements along axes that no input has, and a kernel is "
            f"checked with all of them, {_MOST_COUNTED} at most: make what it counts along one of them an input, a "
            "vector of its numbers"
        )


def _copy_problems(view: View, machine: Machine, remedy: str) -> Iterator[str]:
    """Why TMA cannot move a tensor: order of strides, alignment."""
    where, alignment = f"tensor {view.tensor}", machine.tma_alignment_bytes
    if view.strides[-1] != view.step:
        yield f"{where}: no axis has its elements next to each other; TMA needs a stride of 1: {remedies.DENSE}"
    begin = view.first.get(view.roles[-1], 0)
    if begin * view.dtype.bits // 8 % alignment:
        yield (
            f"{where}: a part of its last axis begins at element {begin}; TMA begins at multiples of {alignment} "
            f"bytes: {remedies.FIRST_ELEMENT.format(alignment * 8 // view.dtype.bits)}"
        )
    for extent, stride, origin in zip(view.extents, view.strides[:-1], view.origin, strict=False):
        nbytes = stride * view.dtype.bits // 8
        if extent == 1 and stride:
            continue  # the launcher gives it a stride; with more at run time it checks theirs
        if stride == 0 or nbytes % alignment:
            told = remedy.format(alignment * 8 // view.dtype.bits) if stride else remedies.DENSE
            yield (
                f"{where}: axis {origin[0]} (extent {extent}) has a stride of {nbytes} bytes; TMA needs a "
                f"positive multiple of {alignment} bytes: {told}"
            )
