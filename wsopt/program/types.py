"""Structures: everything about a kernel that is fixed before its schedule is solved, as frozen data.

A region cut to a structure is a tile program (`program/program.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from wsopt.targets import Operands
from wsopt.tensors.views import Role, pow2


def row_role(swap: bool) -> Role:
    """The graph axis that the accumulator's rows stand for."""
    return Role.COLUMN if swap else Role.ROW


def column_role(swap: bool) -> Role:
    """The graph axis that the accumulator's columns stand for."""
    return Role.ROW if swap else Role.COLUMN


class Space(StrEnum):
    """Memory that a tile is in."""

    SHARED = "shared"
    REGISTERS = "registers"
    TENSOR = "tensor memory"


_WORDS = {Operands.COLUMNS: "columns of their own", Operands.SCORES: "their scores' columns"}


class Sharing(StrEnum):
    """Division of work among consumers: rows of one tile (cooperative), or whole tiles in turns (ping-pong)."""

    COOPERATIVE = "cooperative"
    PING_PONG = "ping_pong"


@dataclass(frozen=True, order=True)  # without slots: `changed` copies it
class Structure:
    """Everything fixed before the schedule is solved. Extents are in elements.

    `rows` and `columns` are of the accumulator of one consumer; with `swap` the graph's columns are the
    accumulator's rows (the right operand feeds the rows of the tensor core). `subtiles` cuts the
    accumulator's columns for the epilogue (into epilogue subtiles); `group` is the rasterization order: tiles are
    taken column by column within so many tile rows, then within the next ones.
    `depth` is one where no axis streams but the rows.
    `copies` is how many K-blocks, and slots of the ring, one iteration takes: a promoted product has a set of
    partial sums for each, so that one is added up while the next is being computed. `tail` is how many
    elements of the last K-block products take, where the streamed axis ends early in it; 0 for all. `transforms` is
    how many warpgroups compute operands for the consumers' products, which take them from shared memory; 0 where
    consumers compute their own, in registers. `exp2_eighths` is how many of a thread's every
    eight elements of a K-block take exp2 by a polynomial on the FMA pipe; the others take it on the MUFU pipe.
    With `early_release` a loop of products alone only begins a product before it hands back the slot of the one
    before, and issues the rest behind that; without, products are issued whole. `splits` is over how many blocks the
    streamed axis of a tile is split: each has partial sums of its own part, and the last to arrive adds them up.
    A loop that computes values between products hands them to products through `operands`; so many `corrections` are
    warpgroups that rescale the sums of all consumers, which hand them the factors. With `shares` each
    block takes an equal share of the K-blocks of all tiles, one tile's behind another's, wherever tiles begin and
    end: of a tile at an end of its share it has a part. `paired` blocks are two of a cluster that work on one tile:
    each has `rows` rows of every consumer's, and shared memory for half of the other operand, which the products of
    both read. With `lazy` sums that lie apart are rescaled where a row's maximum has grown by more than a little.
    Of rows that no SM holds, and that are read in two passes, so many parts are `retained`: they stay in the ring
    from the first pass to the second, which begins with them; so many more stay `in_registers`, and it ends with
    those. Tiles that copies bring may be `stored_by_threads`, without a buffer that a copy reads. With `dynamic` the
    tiles of persistent blocks are taken at run time, each by the block that is free first; without, a block takes
    every so-manieth. With `scaled_sums` scales of groups multiply each group's partial sums; without, every weight
    before its product. With `atomics` L2 adds the partial sums of a tile's parts up as they come, and the last block
    to arrive reads one sum, whose bits depend on their order; without, each part has a place of its own. With an
    `occupancy` an SM has so many blocks at a time, of one consumer each; with 0 a block has an SM to itself. Those
    that are not persistent are `resident`: of one tile each, which their threads read and store by address. Rows that
    begin between two places that TMA takes are pieces of one `flat` row to copies, and to threads that read 16 bytes
    at a time; without, threads read them element by element. Where threads read rows in parts, they may do so
    `ahead`: a part while they compute with the one before. `staggered` are blocks of which every other one begins
    later, so that its passes over rows come between its neighbours'.
    """

    rows: int
    columns: int
    depth: int
    consumers: int
    consumer_warps: int
    sharing: Sharing
    persistent: bool
    swap: bool
    subtiles: int
    group: int
    copies: int = 1
    tail: int = 0
    transforms: int = 0
    exp2_eighths: int = 0
    early_release: bool = True
    splits: int = 1
    shares: bool = False
    operands: Operands = Operands.REGISTERS
    corrections: int = 0
    paired: bool = False
    lazy: bool = False
    retained: int = 0
    in_registers: int = 0
    stored_by_threads: bool = False
    dynamic: bool = False
    scaled_sums: bool = False
    occupancy: int = 0
    atomics: bool = False
    flat: bool = False
    ahead: bool = False
    staggered: bool = False

    @property
    def blocks(self) -> int:
        """Blocks that work on one tile, or on one part of it, together."""
        return 2 if self.paired else 1

    @property
    def blocks_an_sm(self) -> int:
        """Blocks that an SM has at a time."""
        return max(1, self.occupancy)

    @property
    def resident(self) -> bool:
        """Whether an SM has several blocks of one tile each, whose threads read and store it by address."""
        return self.occupancy > 0 and not self.persistent

    def places(self, sms: int) -> int:
        """Blocks that so many SMs have at a time."""
        return sms * self.blocks_an_sm

    @property
    def loops_an_sm(self) -> int:
        """Loops of blocks that contend for an SM's units. Resident blocks have none, and are priced together."""
        return self.blocks_an_sm if self.persistent else 1

    @property
    def parted(self) -> bool:
        """Whether several blocks may have a part of one tile each."""
        return self.splits > 1 or self.shares

    @property
    def at_once(self) -> int:
        """Consumers in the loop at a time, whose rows one slot holds; in ping-pong it is one."""
        return self.consumers if self.sharing is Sharing.COOPERATIVE else 1

    @property
    def tile_rows(self) -> int:
        """Rows of the tile that the consumers of a block work on together, or of both blocks of a pair."""
        return self.rows * self.at_once * self.blocks

    @property
    def stationary_sets(self) -> int:
        """Sets of the tiles that a loop holds: with persistent blocks the next tile's come while it runs."""
        return 2 if self.persistent else 1

    @property
    def vector_columns(self) -> int:
        """Elements of a vector along the columns that is loaded for a tile: a power of two, masked at the end."""
        return pow2(self.columns)

    @property
    def subtile_columns(self) -> int:
        """Columns of one epilogue subtile."""
        return self.columns // self.subtiles

    def spares(self, rows: int) -> bool:
        """Whether a tile's last consumer would have none of so many rows."""
        return self.consumers > 1 and self.tile_rows - self.rows >= rows

    def describe(self) -> str:
        """One line for people."""
        how = "cooperative" if self.sharing is Sharing.COOPERATIVE else "ping-pong"
        depth = f"x{self.depth}" if self.depth > 1 else ""
        told = (
            (self.dynamic, "tiles taken at run time"),
            (self.occupancy, f"{self.occupancy} blocks an SM"),
            (self.transforms, f"{self.transforms} transform warpgroup(s)"),
            (self.corrections, f"{self.corrections} correction warpgroup(s)"),
            (self.exp2_eighths, f"{self.exp2_eighths}/8 of exp2 by a polynomial"),
            (self.operands in _WORDS, f"operands in {_WORDS.get(self.operands)}"),
            (not self.early_release, "products issued whole"),
            (self.splits > 1, f"sums split {self.splits} ways"),
            (self.atomics, "added by atomics"),
            (self.shares, "equal shares of all K-blocks"),
            (self.paired, "pairs of blocks"),
            (self.lazy, "lazy rescaling"),
            (self.scaled_sums, "scaled partial sums"),
            (self.retained, f"{self.retained} parts of rows retained"),
            (self.in_registers, f"{self.in_registers} in registers"),
            (self.stored_by_threads, "stored by threads"),
            (self.flat, f"{'read' if self.resident else 'copied'} from one flat row"),
            (self.ahead, "read ahead"),
            (self.staggered, "every other block begins later"),
            (self.copies > 1, f"{self.copies} K-blocks an iteration"),
            (self.tail, f"the last K-block's first {self.tail}"),
            (self.swap, "operands swapped"),
        )
        return (
            f"{self.tile_rows}x{self.columns}{depth}, {self.consumers} {how} consumer(s) of "
            f"{self.consumer_warps} warps, {self.subtiles} epilogue subtile(s), groups of {self.group}, "
            f"{'persistent' if self.persistent else 'one tile a block'}"
            + "".join(f", {words}" for there, words in told if there)
        )
