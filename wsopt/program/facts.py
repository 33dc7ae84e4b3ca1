"""Facts of a tile program as plain records: the computation as a whole, its grid of tiles, and the
tensors that a block has in shared memory. Extents are in elements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from wsopt.graph.types import DType
from wsopt.program.counts import Copy
from wsopt.tensors.views import OUTER, Role, View


@dataclass(frozen=True, slots=True)
class Whole:
    """A kernel's computation, whatever its tiles. `dtype` is of the tensor cores' operands, or without products of
    what is read; `products` counts those of the loop.

    `flops` are of the products as if nothing were masked, `needed_flops` and `needed_bytes` of the elements that
    count, which are the share `kept` of the rows by the streamed axis. `compulsory_bytes` has every tensor once,
    `once_bytes` every one that does not stream through the loop of products.
    """

    name: str
    doc: str
    extents: tuple[tuple[Role, int], ...]
    dtype: DType
    products: int
    flops: int
    needed_flops: int
    needed_bytes: int
    compulsory_bytes: int
    once_bytes: int
    kept: float

    def extent(self, role: Role) -> int:
        """Elements along an axis; 1 for an axis that there is not."""
        return dict(self.extents).get(role, 1)


@dataclass(frozen=True, slots=True)
class TileGrid:
    """Tiles of `tile_rows` by `tile_columns` of `batch` matrices of `rows` by `columns`, along the accumulator's
    sides. Rasterization order: column by column within a `group` of tile rows.
    """

    batch: int
    rows: int
    columns: int
    tile_rows: int
    tile_columns: int
    group: int

    @property
    def row_tiles(self) -> int:
        """Tiles along the rows."""
        return math.ceil(self.rows / self.tile_rows)

    @property
    def column_tiles(self) -> int:
        """Tiles along the columns."""
        return math.ceil(self.columns / self.tile_columns)

    @property
    def tiles(self) -> int:
        """Tiles in all."""
        return self.batch * self.row_tiles * self.column_tiles

    def inside(self, tile: int) -> tuple[float, float]:
        """The shares of a tile's rows and columns that the tensors have, by its number in rasterization order."""
        tile %= self.row_tiles * self.column_tiles
        first = tile // (self.group * self.column_tiles) * self.group
        height = min(self.row_tiles - first, self.group)
        place = tile % (self.group * self.column_tiles)
        row, column = first + place % height, place // height
        return min(1.0, self.rows / self.tile_rows - row), min(1.0, self.columns / self.tile_columns - column)


@dataclass(frozen=True, slots=True)
class Member:
    """A tensor that a ring, or the block for its whole loop, holds tiles of: the `shape` of one copy, and how many
    `copies` there are in a slot. `name` is the tensor's, with a number where it streams in more than one way;
    `by_rows` says whether consumers have rows of their own of it.
    """

    view: View
    name: str
    shape: tuple[int, ...]
    copies: int
    by_rows: bool

    def box(self, shape: tuple[int, ...]) -> Copy:
        """Counts of a copy of this shape."""
        *rows, columns = shape
        width = self.view.dtype.bits // 8
        pitch = self.view.strides[-2] if rows else columns
        return Copy(math.prod(rows), columns * width, pitch * width)

    def extent(self, role: Role) -> int:
        """Elements of one copy along an axis; 1 for an axis that it does not have."""
        roles = (one for one in self.view.roles if one not in OUTER)
        return dict(zip(roles, self.shape, strict=True)).get(role, 1)

    @property
    def copy_bytes(self) -> int:
        """Bytes of one copy."""
        return math.prod(self.shape) * self.view.dtype.bits // 8

    @property
    def nbytes(self) -> int:
        """Bytes of a slot's copies."""
        return self.copy_bytes * self.copies
