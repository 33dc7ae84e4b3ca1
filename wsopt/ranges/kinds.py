"""Kinds of kernels that compute the same bits of a row: they add it up in one order, however many rows there are."""

from __future__ import annotations

from collections.abc import Hashable

from wsopt.program.program import Iteration, TileProgram
from wsopt.tensors.statements import takes_row


def kind_of(program: TileProgram) -> Hashable:
    """Equal for kernels that give a row the same bits: sums over the streamed axis in the same parts and order, by
    the same instructions; and where values of a row are reduced in registers, with the same layout.
    """
    s = program.structure
    sums = (s.splits, s.shares, s.swap, s.depth, s.copies, s.tail, s.transforms, s.exp2_eighths)
    reduces = any(map(takes_row, program.after.items))
    if program.iteration is Iteration.K_BLOCKS and not program.computes and not reduces:
        return sums
    return (*sums, s.rows, s.columns, s.consumer_warps, s.subtiles)
