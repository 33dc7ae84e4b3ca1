"""Constants that are laid out anew before the first launch, as threads load their operands, or as TMA copies rows.

Quantized elements lie in a row in the order in which a product's operand lies in registers, so that a thread loads 16
bytes at a time and takes them apart without an exchange. Scales of groups are turned, so that those of a tile's rows
lie side by side.
"""

from __future__ import annotations

import math
from dataclasses import replace

from wsopt.errors import LoweringError
from wsopt.frontend.types import Region
from wsopt.graph.types import DType
from wsopt.tensors.views import FRAGMENT, K_BLOCK, LINE_BITS, TMA_BITS, Packing, Role, Source, View


def pack_constants(region: Region) -> Region:
    """The region with packings of what its loop computes operands from, and of matrices with whose rows TMA could not
    begin. Raises LoweringError for what only a packing makes readable, and has none.
    """
    sources = tuple(replace(source, view=_laid_out(region, source)) for source in region.sources)
    products = tuple(
        replace(
            one,
            left=_in_lines(region, one.left) if isinstance(one.left, View) else one.left,
            right=_in_lines(region, one.right),
        )
        for one in region.contractions
    )
    return replace(region, sources=sources, contractions=products)


def _laid_out(region: Region, source: Source) -> View:
    """A source as its kernel reads it: what the loop computes with, and factors of partial sums, may be packed."""
    if region.body and source in region.streamed_sources:
        if source.view.each > 1 and source not in region.factor_sources:
            _check_groups(source.view)
        return _packed(region, source)
    if source.view.dtype is DType.I4:
        raise LoweringError(
            f"input {source.view.tensor} is i4; elements of four bits are lowered as a product's operand alone, from "
            "which its loop takes them apart: declare it as i8"
        )
    if source not in region.factor_sources:
        return _padded(region, source.view)
    view = _packed(region, source) if Role.ROW in source.view.roles else _spread(region, source.view)
    return view if view.packing else _padded(region, view)


def _check_groups(view: View) -> None:
    """Raise LoweringError for elements of groups that are no matrix with a row for each of the operand's: a loop that
    computes an operand spreads each of them over neighbours of one row.
    """
    many = f"input {view.tensor} has an element for every {view.each} of the contracted axis"
    if Role.ROW not in view.roles:
        raise LoweringError(
            f"{many} that all rows of a tile share, and a loop that computes an operand scales each row by itself: "
            f'give every row an element of its own (dequantize with "group": {view.each}), or dequantize before, and '
            "make the result an input"
        )
    if len(view.roles) > 2:
        raise LoweringError(
            f"{many}, for matrices that follow each other, and a loop computes its operand with those of one: "
            "dequantize before, and make the result an input, or compile the product of one matrix, and call it for "
            "each"
        )


def _padded(region: Region, view: View) -> View:
    """A constant matrix with room behind its rows, if TMA cannot begin with each of them as they lie."""
    if view.is_pitched or not _may_be_padded(region, view):
        return view
    return _with_room(view, TMA_BITS, Packing.PADDED)


def _in_lines(region: Region, view: View) -> View:
    """A constant matrix each of whose rows begins with a line: of others every piece that is copied takes two."""
    if not _may_be_padded(region, view) or view.extents[1] * view.dtype.bits % LINE_BITS == 0:
        return view
    return _with_room(view, LINE_BITS, Packing.LINES)


def _may_be_padded(region: Region, view: View) -> bool:
    """Whether a view is of a whole constant matrix that lies densely, and is read once."""
    dense = len(view.roles) == view.rank == 2 and view.strides == (view.extents[1], 1) and not view.cutouts
    return dense and view.constant and _uses(region, view.tensor) == 1


def _with_room(view: View, bits: int, packing: Packing) -> View:
    """A matrix whose rows lie the least multiple of so many bits apart that has room for each."""
    return replace(view, strides=(whole_length(view.extents[1], view.dtype, bits), 1), packing=packing)


def whole_length(length: int, dtype: DType, bits: int = TMA_BITS) -> int:
    """The least number of elements of a type that is no less than a length and fills a multiple of so many bits."""
    step = math.lcm(bits, dtype.bits) // dtype.bits
    return -(-length // step) * step


def _packed(region: Region, source: Source) -> View:
    view = source.view
    if source.spans != K_BLOCK or len(view.roles) > 2:
        return _unpacked(view)
    alone = _uses(region, view.tensor) == 1
    if view.each > 1 and view.roles[-1] is Role.STREAM:
        if not (view.constant and alone):
            raise LoweringError(
                f"input {view.tensor} has an element for every {view.each} of the contracted axis, and these follow "
                'each other in memory; say that it is "constant", which lets it be laid out anew before the first '
                "launch, or lay it out with the contracted axis first, and transpose it in the graph"
            )
        return _turned(view)
    if view.dtype in FRAGMENT and view.constant and alone and _in_fragments(view):
        return replace(view, packing=Packing.FRAGMENTS)
    return _unpacked(view)


def _in_fragments(view: View) -> bool:
    """Whether the streamed axis lies in rows, and they begin and end with fragments; slices of them do as well."""
    ends = [view.extents[-1], *(view.cutouts[-1] or () if view.cutouts else ())]
    return view.roles[-1] is Role.STREAM and not any(end % FRAGMENT[view.dtype] for end in ends)


def _unpacked(view: View) -> View:
    if view.dtype is DType.I4:
        raise LoweringError(
            f"input {view.tensor} is i4; not lowered there: elements of four bits are packed for a product before "
            'the first launch, so it has to be "constant", of two dimensions, contiguous along the contracted axis, '
            f"and that a multiple of {FRAGMENT[DType.I4]}"
        )
    return view


def _spread(region: Region, view: View) -> View:
    """A matrix of factors each of which a whole tile shares: a copy begins with any of them."""
    if not (view.constant and view.rank == 2 and not view.parts and _uses(region, view.tensor) == 1):
        raise LoweringError(
            f"input {view.tensor} has an element for every {view.column_each} by {view.each} of an operand, and a "
            'copy begins at 16 bytes; say that it is "constant", of two dimensions, which lets it be laid out anew '
            "before the first launch, or give every row of that operand an element of its own"
        )
    pitch = view.extents[-1] * TMA_BITS // view.dtype.bits
    return replace(view, strides=(pitch, 1)[-len(view.roles) :], packing=Packing.SPREAD)


def _uses(region: Region, tensor: str) -> int:
    """How often a tensor is read, each in a way of its own."""
    views = {source.view for source in region.sources}
    for product in region.contractions:
        views |= {side for side in (product.left, product.right) if isinstance(side, View)}
    return sum(view.tensor == tensor for view in views)


def _turned(view: View) -> View:
    """A matrix with its columns one behind the other: whole ones, of which a slice has a part."""
    first, second = view.extents
    cutout = view.cutouts[0] if view.cutouts else None
    return replace(
        view,
        roles=view.roles[::-1],
        extents=(second, first),
        strides=(cutout[1] if cutout else first, 1),
        origin=view.origin[::-1],
        parts=view.parts[::-1],
        cutouts=view.cutouts[::-1],
        packing=Packing.TURNED,
    )
