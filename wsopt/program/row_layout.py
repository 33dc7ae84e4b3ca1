"""Register layouts of tiles of whole rows, and of K-blocks beside products.

A thread takes as many neighbours of a row as one access to shared memory moves, a warp's threads lie along the
row, and the consumer's warps take rows of their own as long as there are rows; what is left of them shares one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from wsopt.machine.types import Machine
from wsopt.tensors.views import View

ACCESS_BITS = 128
"""Bits that a thread's widest access to shared memory moves."""


@dataclass(frozen=True, slots=True)
class RowLayout:
    """A tile's elements over threads: `vector` neighbours a thread; (rows, columns) of a warp and of the warps."""

    vector: int
    lanes: tuple[int, int]
    warps: tuple[int, int]

    @property
    def columns(self) -> int:
        """Neighbours of a row that all threads of the consumer along it take at a time."""
        return self.vector * self.lanes[1] * self.warps[1]

    @property
    def rows(self) -> int:
        """Rows that the consumer takes at a time."""
        return self.lanes[0] * self.warps[0]

    def text(self) -> str:
        """The layout as Gluon writes it."""
        return f"gl.BlockedLayout([1, {self.vector}], {list(self.lanes)}, {list(self.warps)}, [1, 0])"


def widest_bits(views: Iterable[View]) -> int:
    """Bits of the widest element among tensors."""
    return max(view.dtype.bits for view in views)


def row_layout(bits: int, rows: int, columns: int, warps: int, machine: Machine) -> RowLayout:
    """The layout of a tile of `rows` by `columns` over so many warps, whose widest elements have so many `bits`.

    Of whole rows, or of a K-block, whose rows are as many as make each warp's its own.
    """
    vector = min(ACCESS_BITS // bits, columns)
    threads = machine.threads_per_warp
    along = min(threads, columns // vector)
    down = threads // along
    apart = min(warps, max(1, rows // down))
    return RowLayout(vector, (down, along), (apart, warps // apart))
