"""Register layouts of tiles of whole rows, and of K-blocks beside products.

A thread takes as many neighbours in memory as one access to shared memory moves, and a warp's threads lie along
them. Where those are of one row, the consumer's warps take rows of their own as long as there are rows; what is left
of them shares one. Where they are of different rows, as in a reduction along an outer axis, lanes and warps that rows
do not need share the columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from wsopt.machine.types import Machine
from wsopt.tensors.views import Role, View

SWIZZLES = (128, 64, 32)
"""Bytes of a row of a box within which 16 of them change places, from row to row."""
SWIZZLED_ROWS = 8
"""Rows after which a swizzle repeats: Triton lays out no less with one."""

ACCESS_BITS = 128
"""Bits that a thread's widest access to shared memory moves."""
_APART_BITS = 16
"""Bits of neighbours in device memory that a thread has where rows begin anywhere: each element is an access of its
own, and those of a warp lie next to each other.
"""


@dataclass(frozen=True, slots=True)
class RowLayout:
    """A tile's elements over threads: `vector` neighbours a thread; (rows, columns) of a warp and of the warps. The
    neighbours are of one row, or in an `outer` reduction of one column. The first threads of a warp lie along those
    neighbours, or `across` them, so that those whose accesses go together are in banks of their own: swizzled, the
    same bytes of eight columns are.
    """

    vector: int
    lanes: tuple[int, int]
    warps: tuple[int, int]
    outer: bool = False
    across: bool = False

    @property
    def columns(self) -> int:
        """Columns that the consumer takes at a time."""
        return (1 if self.outer else self.vector) * self.lanes[1] * self.warps[1]

    @property
    def rows(self) -> int:
        """Rows that the consumer takes at a time."""
        return (self.vector if self.outer else 1) * self.lanes[0] * self.warps[0]

    def text(self) -> str:
        """The layout as Gluon writes it."""
        own = [self.vector, 1] if self.outer else [1, self.vector]
        order = [0, 1] if self.outer is not self.across else [1, 0]
        return f"gl.BlockedLayout({own}, {list(self.lanes)}, {list(self.warps)}, {order})"

    def turned(self) -> RowLayout:
        """The layout of the transposed tile, of which each thread has the same elements."""
        return RowLayout(self.vector, self.lanes[::-1], self.warps[::-1], not self.outer)


def swizzle_of(row_bytes: int, rows: int, swizzles: Iterable[int] = SWIZZLES) -> int:
    """The widest swizzle of a box of so many rows, or 0 where none divides them or they are too few."""
    return 0 if rows < SWIZZLED_ROWS else next((size for size in swizzles if row_bytes % size == 0), 0)


def widest_bits(views: Iterable[View]) -> int:
    """Bits of the widest element among tensors."""
    return max(view.dtype.bits for view in views)


def reduces_outer(views: Iterable[View]) -> bool:
    """Whether in memory the elements of a row lie apart, and those of a column next to each other."""
    return any(view.roles[-1] is Role.ROW for view in views if Role.COLUMN in view.roles)


def tile_layout(views: Sequence[View], rows: int, columns: int, warps: int, machine: Machine) -> RowLayout:
    """The layout of a tile of rows of these tensors, which are read and stored: by TMA, or all by threads."""
    outer, copied = reduces_outer(views), any(view.is_copied for view in views)
    access = ACCESS_BITS if copied or all(view.is_aligned for view in views) else _APART_BITS
    make = outer_layout if outer else row_layout
    layout = make(widest_bits(views), rows, columns, warps, machine, access)
    swizzled = outer and copied and all_swizzled(views, rows, columns)
    return replace(layout, across=swizzled and layout.lanes[1] >= SWIZZLED_ROWS)


def all_swizzled(views: Iterable[View], rows: int, columns: int) -> bool:
    """Whether all boxes that are copied are swizzled: of `rows` by `columns`, whose rows are neighbours in memory."""
    copied = (view for view in views if view.is_copied)
    return all(swizzle_of(rows * view.dtype.bits // 8, columns) for view in copied)


def outer_layout(
    bits: int, rows: int, columns: int, warps: int, machine: Machine, access: int = ACCESS_BITS
) -> RowLayout:
    """The layout of a tile of `rows` by `columns` over so many warps, whose rows are neighbours in memory, and each
    of whose threads has `access` bits of them.
    """
    vector = max(1, min(access // bits, rows))
    apart = min(warps, rows // vector)
    down = min(machine.threads_per_warp, rows // (vector * apart))
    return RowLayout(vector, (down, machine.threads_per_warp // down), (apart, warps // apart), outer=True)


def row_layout(
    bits: int, rows: int, columns: int, warps: int, machine: Machine, access: int = ACCESS_BITS
) -> RowLayout:
    """The layout of a tile of `rows` by `columns` over so many warps, whose widest elements have so many `bits`, and
    each of whose threads has `access` bits of neighbours.

    Of whole rows, or of a K-block, whose rows are as many as make each warp's its own.
    """
    vector = max(1, min(access // bits, columns))
    threads = machine.threads_per_warp
    along = min(threads, columns // vector)
    down = threads // along
    apart = min(warps, max(1, rows // down))
    return RowLayout(vector, (down, along), (apart, warps // apart))
