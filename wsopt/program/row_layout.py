"""Register layouts of tiles of whole rows, and of K-blocks beside products.

A thread takes as many neighbours in memory as one access to shared memory moves, and a warp's threads lie along
them. Where those are of one row, the consumer's warps take rows of their own as long as there are rows; what is left
of them shares one. Where they are of different rows, as in a reduction along an outer axis, lanes and warps that rows
do not need share the columns.

Where some tensors of a tile lie one way and some the other, a thread's neighbours are of one row, and a warp's
threads lie down the rows: what lies along rows is read and written 16 bytes at a time, and the rest, across, an
element at a time, of which a warp has neighbours.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from wsopt.machine.types import Machine
from wsopt.tensors.orders import is_turned, lie_both_ways
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

    @property
    def collisions(self) -> int:
        """How many of a warp's threads are in one bank at most where they read one element each of a swizzled box
        that lies turned: those down the rows are neighbours there.
        """
        return max(1, self.lanes[1] * min(self.vector, SWIZZLED_ROWS) // SWIZZLED_ROWS)


def swizzle_of(row_bytes: int, rows: int, swizzles: Iterable[int] = SWIZZLES) -> int:
    """The widest swizzle of a box of so many rows, or 0 where none divides them or they are too few."""
    return 0 if rows < SWIZZLED_ROWS else next((size for size in swizzles if row_bytes % size == 0), 0)


def widest_bits(views: Iterable[View]) -> int:
    """Bits of memory that are read or written for an element of the widest among tensors: of pairs, those of both."""
    return max(view.dtype.bits * view.step for view in views)


def reduces_outer(views: Iterable[View]) -> bool:
    """Whether tiles lie in registers with neighbours of one column: where in memory all of them do."""
    tiles = [is_turned(view) for view in views if Role.COLUMN in view.roles]
    return any(tiles) and all(tiles)


def tile_layout(
    views: Sequence[View], rows: int, columns: int, warps: int, machine: Machine, *, together: bool = False
) -> RowLayout:
    """The layout of a tile of rows of these tensors, which are read and stored: by TMA, or all by threads. Where rows
    are reduced, a column's elements are `together` in one thread, as far as that leaves no warp without columns.
    """
    if lie_both_ways(views):
        return across_layout(views, rows, columns, warps, machine)
    outer, copied = reduces_outer(views), any(view.is_copied for view in views)
    access = ACCESS_BITS if copied or all(view.is_aligned or view.flat for view in views) else _APART_BITS
    bits = widest_bits(views)
    layout = (
        outer_layout(bits, rows, columns, warps, machine, access)
        if outer
        else row_layout(bits, rows, columns, warps, machine, access, together=together)
    )
    swizzled = outer and copied and all_swizzled(views, rows, columns)
    return replace(layout, across=swizzled and layout.lanes[1] >= SWIZZLED_ROWS)


def all_swizzled(views: Iterable[View], rows: int, columns: int) -> bool:
    """Whether all boxes that are copied are swizzled: of `rows` by `columns`, each in its own order."""
    copied = (view for view in views if view.is_copied)
    sides = ((view, (rows, columns) if is_turned(view) else (columns, rows)) for view in copied)
    return all(swizzle_of(along * view.dtype.bits // 8, apart) for view, (along, apart) in sides)


def across_layout(
    views: Collection[View], rows: int, columns: int, warps: int, machine: Machine
) -> RowLayout:
    """The layout of a tile whose tensors lie both ways: neighbours of a row a thread, and a warp down the rows, in
    banks of their own where a box is swizzled. Where threads store what lies along rows, a warp lies along them.
    """
    upright = [view for view in views if not is_turned(view)]
    if not all(view.is_copied for view in upright):
        access = ACCESS_BITS if all(view.is_aligned for view in views) else _APART_BITS
        return row_layout(widest_bits(upright), rows, columns, warps, machine, access)
    return _down_the_rows(max(1, min(ACCESS_BITS // widest_bits(upright), columns)), rows, warps, machine)


def _down_the_rows(vector: int, rows: int, warps: int, machine: Machine) -> RowLayout:
    """A layout with so many neighbours of a row a thread, and a warp's threads down the rows, if there are enough."""
    down = min(machine.threads_per_warp, rows)
    apart = min(warps, rows // down)
    lanes = down, machine.threads_per_warp // down
    return RowLayout(vector, lanes, (apart, warps // apart), across=True)


def turning_layout(
    views: Sequence[View], rows: int, columns: int, warps: int, machine: Machine
) -> RowLayout | None:
    """The layout in which threads read and store what lies turned, neighbours in memory side by side, where the
    tile's own has a warp along its rows: they exchange elements. None where nothing is exchanged.
    """
    if not (lie_both_ways(views) and any(is_turned(view) and not view.is_copied for view in views)):
        return None
    if tile_layout(views, rows, columns, warps, machine).across:
        return None
    return _down_the_rows(1, rows, warps, machine)


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
    bits: int,
    rows: int,
    columns: int,
    warps: int,
    machine: Machine,
    access: int = ACCESS_BITS,
    *,
    together: bool = False,
) -> RowLayout:
    """The layout of a tile of `rows` by `columns` over so many warps, whose widest elements have so many `bits`, and
    each of whose threads has `access` bits of neighbours.

    Of whole rows, or of a K-block, whose rows are as many as make each warp's its own; or warps lie along the rows as
    far as they have columns, so that columns are `together`.
    """
    vector = max(1, min(access // bits, columns))
    threads = machine.threads_per_warp
    along = min(threads, columns // vector)
    down = threads // along
    apart = min(warps, max(1, rows // down))
    if together:
        apart = min(apart, max(1, warps * along * vector // columns))
    return RowLayout(vector, (down, along), (apart, warps // apart))
