"""Facts of a tile program as plain records: counts of its operations, the computation as a whole, its grid of tiles,
and the tensors that a block has in shared memory. Extents are in elements.

Counts are whatever the machine: bytes of copies, products, instructions by kind. `perf` prices them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from wsopt.graph.types import DType
from wsopt.machine.cost import InstructionMix
from wsopt.program.ids import Unit
from wsopt.tensors.views import OUTER, Role, View

# --- counts of operations -------------------------------------------------------------------------------


PLACES_AT_A_TIME = 8
"""Places of pieces that are copied apart, which a loading warp loads before it starts their copies: it has few
registers.
"""


@dataclass(frozen=True, slots=True)
class Copy:
    """A box of `rows` of `row_bytes`, `pitch_bytes` apart in memory. Of whole rows only `from_memory` bytes are
    copied, from device memory, to as many SMs at once as there are `tiles`; 0 for copies from L2. Pieces of rows take
    whole `lines` of L2. On the average `outside` of the rows lie beyond the tensor's end, and are filled with zeros.
    At places that are loaded first so many pieces are copied `apart`, each by an instruction of its own; 0 where one
    copies the box. Places that are loaded `ahead` of the wait for a slot let no copy wait; of
    several each thread has one. Of what is `paired` the other block of a pair is told.
    """

    rows: int
    row_bytes: int
    pitch_bytes: int
    from_memory: int = 0
    tiles: int = 0
    outside: float = 0.0
    apart: int = 0
    lines: bool = False
    ahead: bool = False
    paired: bool = False


@dataclass(frozen=True, slots=True)
class Signal:
    """A tile that consumers may begin: the loading warp tells them, and copies nothing."""


@dataclass(frozen=True, slots=True)
class Release:
    """A slot that is handed back. Where nothing else has a consumer's warps agree that it was read, they `meet`. By a
    commit the tensor core does it, when the products that read the slot have ended; of what is `paired` in the other
    block of a pair too.
    """

    meets: bool
    by_commit: bool = False
    paired: bool = False


@dataclass(frozen=True, slots=True)
class Store:
    """Tiles of so many `outputs`, `staged` bytes in buffers; so many `values` of each row, and elements of tiles that
    no copy takes, which threads store `by_address`, so many `at_once` where they lie side by side. Of all `copied`
    bytes go on to device memory; `tiles` as for copies. Outputs are stored in one of so many `passes` over a row;
    bytes are those of an iteration on the average. Of rows whose elements lie apart `piece` bytes, of several rows,
    are neighbours; 0 where rows lie whole. Elements are staged one by one `across` boxes as tiles are read (`Read`).
    Of the elements that threads store so many are `scattered`: each has a sector of memory to itself.
    """

    outputs: int
    staged: int
    copied: int
    tiles: int
    values: int = 0
    passes: int = 1
    by_address: int = 0
    at_once: int = 1
    piece: int = 0
    across: int = 0
    scattered: int = 0


@dataclass(frozen=True, slots=True)
class Product:
    """A product of `rows` by `columns`, `deep` elements, of a consumer's `warps`, which takes its left operand from
    shared memory or from `registers`. In a loop of products alone `sharers` run at once; 0 where arithmetic waits.
    It is issued in so many `stretches`: behind the first the slot of the K-block before is handed back. Behind it so
    many `factors` of its sums are read from the same slot. Of a `paired` one it is a block's half.
    """

    rows: int
    columns: int
    deep: int
    dtype: DType
    warps: int
    sharers: int = 0
    registers: bool = False
    stretches: int = 1
    factors: int = 0
    paired: bool = False
    sets: int = 1


@dataclass(frozen=True, slots=True)
class Promotion:
    """Partial sums that a consumer's `warps` add to their sums; `scaled` ones times a factor of each row."""

    elements: int
    warps: int
    scaled: bool = False


@dataclass(frozen=True, slots=True)
class Rescale:
    """Sums that are multiplied by a factor of each row; of those that lie `apart` from registers so many bytes are
    read and written. Where rows may keep their maximum it is done in the share `moved` of the K-blocks, once the
    rows have agreed.
    """

    elements: int
    apart: int = 0
    moved: float = 1.0


@dataclass(frozen=True, slots=True)
class Moved:
    """A tile between tensor memory and registers: so many bytes, read or `written`."""

    nbytes: int
    written: bool = False


@dataclass(frozen=True, slots=True)
class Read:
    """A tile of whole rows that comes into registers of so many `warps`; `widened` elements of 16 bits become f32.
    Its place is found from its number by `divisions` of whole numbers. It comes from shared memory, or where threads
    load so many elements `by_address`, so many `at_once` where they lie side by side, `from_memory` bytes from device
    memory; `tiles` as for copies. Of tensors that lie turned so many elements are read one by one `across` their
    boxes, each as often as threads of a warp collide in a bank; `piece` as for stores, of what threads load. Of so
    many `placed` elements it is found whether they are the row's.
    """

    nbytes: int
    widened: int
    divisions: int
    warps: int
    by_address: int = 0
    from_memory: int = 0
    tiles: int = 0
    at_once: int = 1
    across: int = 0
    piece: int = 0
    placed: int = 0


@dataclass(frozen=True, slots=True)
class RowReduction:
    """A maximum or a sum of each row, which `lanes` threads of a warp share, and `warps` warps. What stays `apart` in
    the threads is not exchanged; else it is once in so many iterations, a `share` of them. Each of `threads` has
    `rows` that it exchanges.
    """

    kind: str
    lanes: int = 4
    warps: int = 1
    apart: bool = False
    share: float = 1.0
    rows: int = 2
    threads: int = 128


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """A run of instructions, whose only order is that of its reductions and of its longest chain.

    `mix` is of each of `elements`; the chain has `statements`, of them `special` functions. `waits` for tiles of a
    ring are told; `tiles` are the bits of those that are read as accumulators lie, `vectors` elements of 16 bits that
    threads load besides. `columns` are vectors along the columns that come from L2 then, and so many more `trips`
    there are waited for. Where each scheduler has a `lone` warp of a consumer, none of its others computes
    meanwhile.
    """

    mix: InstructionMix
    elements: int
    statements: int
    special: int
    reductions: tuple[RowReduction, ...]
    waits: int = 0
    tiles: tuple[int, ...] = ()
    vectors: float = 0.0
    columns: int = 0
    trips: int = 0
    lone: bool = False


@dataclass(frozen=True, slots=True)
class Beside:
    """Arithmetic on `rows` of a K-block, `nbytes` of shared memory, that the tensor core is reading too; its
    `statements` have the reductions in.
    """

    work: Arithmetic
    nbytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class Cost:
    """Cycles of an operation: `issue` of its thread, `busy` of its `unit`, `latency` until its result is there, and
    those of further units; `instructions` of the tensor core, a warpgroup. Every count has its cost on a machine; an
    operation of an added kind may give it at once.
    """

    issue: int
    latency: int
    unit: Unit | None = None
    busy: int = 0
    pipes: tuple[tuple[Unit, int], ...] = ()
    instructions: int = 0


@dataclass(frozen=True, slots=True)
class Transform:
    """Arithmetic on a consumer's rows of a K-block by another role, which reads so many bytes of shared memory and
    leaves so many there for products.
    """

    work: Arithmetic
    read: int
    written: int


Counts = (
    Copy
    | Signal
    | Release
    | Store
    | Product
    | Promotion
    | Rescale
    | Moved
    | Read
    | Arithmetic
    | Beside
    | Transform
    | Cost
)

# --- the computation, its grid and its tensors ----------------------------------------------------------


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
    sides. Rasterization order: column by column within a `group` of tile rows. Each tile's sums are split `splits`
    ways along the streamed axis: all tiles' first parts come first, then their second ones.
    So many `blocks` work on each together.

    Run-time offsets may cut the rows into `segments`, which tiles do not cross. How long those are nobody knows
    before the kernel runs: they are counted as equally long ones, each with half a tile more than its rows take.
    """

    batch: int
    rows: int
    columns: int
    tile_rows: int
    tile_columns: int
    group: int
    splits: int = 1
    segments: int = 0
    blocks: int = 1

    @property
    def row_tiles(self) -> int:
        """Tiles along the rows."""
        if self.segments:
            return math.ceil(self.segments * max(1.0, self.rows / self.segments / self.tile_rows + 0.5))
        return math.ceil(self.rows / self.tile_rows)

    @property
    def alike_row_tiles(self) -> int:
        """Tiles along the rows that read the same columns: all, or those of a segment."""
        return math.ceil(self.row_tiles / max(1, self.segments))

    @property
    def column_tiles(self) -> int:
        """Tiles along the columns."""
        return math.ceil(self.columns / self.tile_columns)

    @property
    def tiles(self) -> int:
        """Tiles in all."""
        return self.batch * self.row_tiles * self.column_tiles

    @property
    def work_tiles(self) -> int:
        """What blocks take, in all: tiles, or parts of tiles; of a tile that several work on, each has its own."""
        return self.tiles * self.splits * self.blocks

    def inside(self, tile: int) -> tuple[float, float]:
        """The shares of a tile's rows and columns that the tensors have, by its number in rasterization order among
        what blocks take.
        """
        if self.segments:  # rows of another segment are read where a tile's own end
            return 1.0, min(1.0, self.columns / (self.column_tiles * self.tile_columns))
        tile = tile // self.blocks % (self.row_tiles * self.column_tiles)
        first = tile // (self.group * self.column_tiles) * self.group
        height = min(self.row_tiles - first, self.group)
        place = tile % (self.group * self.column_tiles)
        row, column = first + place % height, place // height
        return min(1.0, self.rows / self.tile_rows - row), min(1.0, self.columns / self.tile_columns - column)


@dataclass(frozen=True, slots=True)
class Shares:
    """Equal shares of all iterations: those of the longest one, and the `tiles` that its block has some of. Of all
    blocks together so many `parts` are left for others to add up, `most` of one tile; the share `cut` of a block's
    iterations are of tiles that are cut, not of those that all blocks have one each of.
    """

    tiles: int
    k_iterations: int
    parts: int
    most: int
    cut: float = 1.0


@dataclass(frozen=True, slots=True)
class Member:
    """A tensor that a ring, or the block for its whole loop, holds tiles of: the `shape` of one copy, and how many
    `copies` there are in a slot. `name` is the tensor's, with a number where it streams in more than one way;
    `by_rows` says whether consumers have rows of their own of it. One that is read `by_threads` from device memory
    takes no bytes: a slot says when its tile may be read.
    """

    view: View
    name: str
    shape: tuple[int, ...]
    copies: int
    by_rows: bool
    by_threads: bool = False

    def box(self, shape: tuple[int, ...]) -> Copy:
        """Counts of a copy of this shape."""
        *rows, columns = shape
        bits, view = self.view.dtype.bits, self.view
        pitch = view.strides[-2] if rows else columns
        apart = 0 if view.chosen is None else math.prod(rows) if view.rows_chosen else 1
        if view.page:
            apart = max(1, self.extent(Role.STREAM) // view.page)
        ahead = Role.PAGE in view.roles
        return Copy(math.prod(rows), columns * bits // 8, pitch * bits // 8, apart=apart, ahead=ahead)

    def extent(self, role: Role) -> int:
        """Elements of one copy along an axis; 1 for an axis that it does not have."""
        roles = (one for one in self.view.roles if one not in OUTER)
        return dict(zip(roles, self.shape, strict=True)).get(role, 1)

    @property
    def copy_bytes(self) -> int:
        """Bytes of one copy."""
        return 0 if self.by_threads else math.prod(self.shape) * self.view.dtype.bits // 8

    @property
    def nbytes(self) -> int:
        """Bytes of a slot's copies."""
        return self.copy_bytes * self.copies
