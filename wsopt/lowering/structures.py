"""The legal structures of a region on a machine: every way to cut it that the hardware and TMA allow.

Budgets (shared memory, registers, ring depth) are not looked at here; they belong to the model. What is left
out here could not be written at all, whatever the budgets.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.frontend.types import Region
from wsopt.lowering.row_structures import check_rows, check_whole_rows, row_structures
from wsopt.machine.types import Machine
from wsopt.program.types import Sharing, Structure, column_role, row_role
from wsopt.targets import Target, target_of
from wsopt.targets.target import LoopKind
from wsopt.tensors.views import FULL, K_BLOCK, Role, View, pow2

_GROUPS = (1, 2, 4, 8, 16)
_SUBTILES = (1, 2, 4)
_MIN_SUBTILE_COLUMNS = 32
"""A narrower epilogue subtile has stores of less than 64 bytes a row, half of what TMA moves at full rate."""


_SLOT_BYTES = 128
"""What a copy's place in shared memory is a multiple of (CUDA programming guide, tensor copies)."""


def holds_rows(region: Region, s: Structure) -> bool:
    """Whether a structure's tiles have whole rows, in one subtile, where the region reduces them."""
    whole = s.columns >= region.extent(Role.COLUMN) and s.subtiles == 1 and not s.swap
    return whole or not region.whole_rows


def check_tma(region: Region, machine: Machine) -> None:
    """Raise LoweringError for a tensor that TMA cannot move: alignment, order of strides, extents."""
    # Outputs come first: a caller can lay out inputs in another way, and outputs are dense.
    for output in (output for output in region.outputs if output.is_tile):
        _check_view(
            output.view, machine, remedies.REDUCED_PITCH if region.whole_rows else remedies.OUTPUT_PITCH
        )
    for view in (
        *region.streams,
        *region.stationary_operands,
        *(source.view for source in region.full_sources),
    ):
        _check_view(view, machine, remedies.INPUT_PITCH)


def _check_view(view: View, machine: Machine, remedy: str) -> None:
    where = f"tensor {view.tensor}"
    if view.strides[-1] != 1:
        raise LoweringError(
            f"{where}: no axis has its elements next to each other; TMA needs a stride of 1: {remedies.DENSE}"
        )
    for extent, stride, origin in zip(view.extents, view.strides[:-1], view.origin, strict=False):
        nbytes = stride * view.dtype.bits // 8
        if stride == 0 or nbytes % machine.tma_alignment_bytes:
            told = (
                remedy.format(machine.tma_alignment_bytes * 8 // view.dtype.bits)
                if stride
                else remedies.DENSE
            )
            raise LoweringError(
                f"{where}: axis {origin[0]} (extent {extent}) has a stride of {nbytes} bytes; TMA needs a "
                f"positive multiple of {machine.tma_alignment_bytes} bytes: {told}"
            )


def check_loop(region: Region) -> None:
    """Raise LoweringError for what a loop that computes values cannot have yet, by name."""
    for source in region.sources:
        if region.body and source.spans not in (K_BLOCK, FULL) and len(source.spans) > 1:
            axes = " and ".join(sorted(source.spans))
            raise LoweringError(f"tensor {source.view.tensor}: tiles along {axes} are not lowered in a loop")
    if region.body and len(region.stationary_operands) != 1:
        names = ", ".join(view.tensor for view in region.stationary_operands) or "none"
        raise LoweringError(
            f"graph {region.name}: a loop that computes values holds one tensor, here {names}"
        )


def check_operands(region: Region) -> None:
    """Raise LoweringError for f8 operands that do not lie along the streamed axis."""
    for view in region.operands:
        if view.dtype.bits != 16 and view.roles[-1] is not Role.STREAM:
            raise LoweringError(
                f"tensor {view.tensor}: {view.dtype.value} operands have to be contiguous along the "
                "contracted axis, for the tensor core transposes 16-bit types only: declare it with that axis last, "
                "transpose it before the call, and change the matmul's attr"
            )


def _check_beside(region: Region) -> None:
    """Raise LoweringError for operands whose rows cannot be read from a K-block, and for one value a row."""
    for output in (o for o in region.outputs if region.beside and not o.is_tile):
        raise LoweringError(f"output {output.name}: one value a row beside a product is not stored yet")
    for tile in region.tiles:
        if tile.view.roles[-1] is not Role.STREAM:
            raise LoweringError(
                f"tensor {tile.view.tensor}: its rows are reduced beside the product, and do not lie along the "
                "contracted axis; declare it with that axis last, and transpose it before the call"
            )


def check_target(region: Region, machine: Machine) -> None:
    """Raise LoweringError for what the machine's target has no implementation of yet."""
    target = target_of(machine)
    values, rows = LoopKind.VALUES in target.loops, LoopKind.ROWS in target.loops
    needs = {
        "a loop that computes values between products": (region.body, values),
        "rows that stream without products": (not region.contractions, rows),
        "reductions of an operand's or of an output's rows": (
            region.beside or region.whole_rows,
            target.reduces,
        ),
        "f8 sums that are promoted to f32 as they grow": (region.promote, target.promotes),
    }
    found = next((what for what, (needed, given) in needs.items() if needed and not given), None)
    if found is not None:
        raise LoweringError(
            f"graph {region.name}: kernels for {target.title} ({target.architecture}) are written for products with "
            f"arithmetic behind them so far, and this graph has {found}; compile it for a Hopper card, such as "
            "--machine h200"
        )


def _whole_slots(region: Region, depth: int) -> bool:
    """Whether every slot of a streamed vector begins where TMA may write."""
    vectors = (s.view for s in region.streamed_sources if s.spans != K_BLOCK)
    return all(depth * view.dtype.bits // 8 % _SLOT_BYTES == 0 for view in vectors)


def _column_extents(region: Region, machine: Machine, swap: bool) -> tuple[int, ...]:
    """Powers of two up to what one instruction takes, and no more than the extent needs."""
    extent, least = region.extent(column_role(swap)), 16 if swap else 64
    sizes = [least << n for n in range((machine.mma_columns_max // least).bit_length())]
    return tuple(size for size in sizes if size == least or size < 2 * extent)


def _depths(region: Region) -> tuple[int, ...]:
    """K-blocks of the streamed axis: 64 or 128 bytes of a row, or twice the swizzle of 128 bytes."""
    row = 128 * 8 // region.operand_dtype.bits
    return (row // 2, row, 2 * row)


def _swaps(region: Region, machine: Machine) -> tuple[bool, ...]:
    """Whether the operands may change sides.

    With two tensor instructions' rows or more the graph's rows fill the tensor core, and exchanging the
    sides only transposes the stores; with fewer, its columns (by eights) fit them and the rows waste less.
    What reduces an operand's rows takes them as the tensor core's.
    """
    few = region.extent(Role.ROW) < 2 * machine.mma_rows and not region.beside
    return (False, True) if few and target_of(machine).swaps else (False,)


def _copies(region: Region) -> tuple[int, ...]:
    """K-blocks of an iteration, each with partial sums of its own: two only where products are promoted.

    emitter.v1: then all are. Another product's sums would be begun by one K-block and added to by the other, and
    nothing keeps their order.
    """
    return (1, 2) if region.promote and all(c.promote for c in region.contractions) else (1,)


def _tail(region: Region, machine: Machine, depth: int, copies: int) -> int:
    """Elements of the last K-block that products have to take: a power of two, and what one instruction sums.

    0 where that is the whole K-block, or where the last K-block may lie beyond the end altogether.
    """
    rest = region.extent(Role.STREAM) % depth
    if rest == 0 or copies > 1 or not target_of(machine).tails:
        return 0
    size = machine.mma_k_bytes * 8 // region.operand_dtype.bits
    while size < rest:
        size *= 2
    return size if size < depth else 0


def _sharings(consumers: int, target: Target) -> tuple[Sharing, ...]:
    return (
        (Sharing.COOPERATIVE, Sharing.PING_PONG)
        if consumers > 1 and target.ping_pong
        else (Sharing.COOPERATIVE,)
    )


def _warps(target: Target, machine: Machine) -> tuple[int, ...]:
    """Warps that a consumer may have."""
    return tuple(count * machine.warps_per_warpgroup for count in target.warpgroups)


def _is_legal(region: Region, machine: Machine, s: Structure) -> bool:
    if s.consumer_warps != machine.warps_per_warpgroup and (s.rows < 2 * machine.mma_rows or s.consumers > 1):
        return False
    if s.subtiles > 1 and s.subtile_columns < _MIN_SUBTILE_COLUMNS:
        return False
    if not s.persistent and s.sharing is Sharing.PING_PONG:
        return False
    if region.promote and s.depth > 128:
        return False
    boxes = (s.rows, s.columns, s.depth)
    if max(boxes) > machine.tma_box_extent_max:
        return False
    if not holds_rows(region, s):
        return False
    oversized = s.rows >= 2 * region.extent(row_role(s.swap)) and s.rows > machine.mma_rows
    return not oversized


def _k_block_structures(region: Region, machine: Machine) -> Iterator[Structure]:
    """Structures of a loop that computes values: the column axis is held whole.

    emitter.v1: consumers of such a loop are cooperative.
    """
    columns = max(_MIN_SUBTILE_COLUMNS, pow2(region.extent(Role.COLUMN)))
    if columns > machine.mma_columns_max:
        raise LoweringError(
            f"graph {region.name}: the products' columns have {region.extent(Role.COLUMN)} elements, held whole; "
            f"one tensor instruction takes {machine.mma_columns_max}"
        )
    if region.promote:
        raise LoweringError(f"graph {region.name}: f8 sums in f32 are not lowered inside such a loop")
    target = target_of(machine)
    for rows, depth, consumers, warps in itertools.product(
        target.consumer_rows, (32, 64, 128, 256), target.consumers, _warps(target, machine)
    ):
        for persistent, subtiles in itertools.product((True, False), _SUBTILES):
            found = Structure(
                rows, columns, depth, consumers, warps, Sharing.COOPERATIVE, persistent, swap=False,
                subtiles=subtiles, group=1,
            )  # fmt: skip
            spare = found.tile_rows - rows >= region.extent(Role.ROW) and consumers > 1
            if _is_legal(region, machine, found) and _whole_slots(region, depth) and not spare:
                yield found


def structures(region: Region, machine: Machine) -> Iterator[Structure]:
    """Every legal structure, in a fixed order.

    Raises LoweringError where no structure can be: strides that TMA does not take, f8 operands that would
    need a transposition.
    """
    target = target_of(machine)
    check_target(region, machine)
    check_loop(region)
    _check_beside(region)
    check_whole_rows(region, machine)
    if not region.contractions:
        check_rows(region)
    check_tma(region, machine)
    if region.contractions:
        check_operands(region)
    if region.body:
        yield from _k_block_structures(region, machine)
        return
    if not region.contractions:
        yield from row_structures(region, machine)
        return
    for swap in _swaps(region, machine):
        for rows, columns, depth, consumers, warps in itertools.product(
            target.consumer_rows,
            _column_extents(region, machine, swap),
            _depths(region),
            target.consumers,
            _warps(target, machine),
        ):
            for sharing, persistent, subtiles, group, copies in itertools.product(
                _sharings(consumers, target),
                (True, False) if target.single else (True,),
                _SUBTILES,
                _GROUPS,
                _copies(region),
            ):
                tail = _tail(region, machine, depth, copies)
                found = Structure(
                    rows, columns, depth, consumers, warps, sharing, persistent, swap, subtiles, group, copies,
                    tail,
                )  # fmt: skip
                if _is_legal(region, machine, found):
                    yield found
