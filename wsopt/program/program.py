"""Tile programs as frozen data: what one block does to its tiles, before anything is scheduled.

A program has the operations of its loop (`operations.py`), what stands around the loop, and the grid of tiles.
Extents are in elements, times in cycles of an SM. Who reads programs imports from here what they are made of, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from wsopt.program.conditions import FREE, Conditions
from wsopt.program.demand import Demand
from wsopt.program.epilogue import Epilogue, EpilogueCost
from wsopt.program.facts import Member, Promotion, Shares, TileGrid, Whole
from wsopt.program.ids import OpId, ValueId, ValueKind
from wsopt.program.ids import OpKind as OpKind
from wsopt.program.ids import Unit as Unit
from wsopt.program.known import known_of, of_loop
from wsopt.program.launch_grid import counts_columns
from wsopt.program.lazy import Lazy
from wsopt.program.limits import Lifted
from wsopt.program.operations import ARITHMETIC as ARITHMETIC
from wsopt.program.operations import Edge as Edge
from wsopt.program.operations import Live as Live
from wsopt.program.operations import RingPlan as RingPlan
from wsopt.program.operations import TileOp as TileOp
from wsopt.program.operations import Value as Value
from wsopt.program.ranges import Bounds
from wsopt.program.types import Structure
from wsopt.tensors.orders import row_tiles
from wsopt.tensors.statements import Item as Item
from wsopt.tensors.statements import takes_row
from wsopt.tensors.views import Role, Source, View

_UNBOUNDED, _UNPRICED = Bounds((), 1, 1), EpilogueCost(0, 0, 0, 0, 0, 0)
_LOOP = object()
_LATE = 0.25
"""Of what a block takes for its rows, by how much staggered ones begin later: three graphs whose rows take 15 to 18
us were fastest with 2 to 4 us, and nearly so with 1 to 6 (`docs/calibration/h200_staggered.json`).
"""
"""The key of what a program knows of its loop."""


class Iteration(StrEnum):
    """Work of one iteration of a loop: some K-blocks of a tile, or a whole tile."""

    K_BLOCKS = "K-blocks"
    TILE = "a tile"


@dataclass(frozen=True, slots=True)
class Work:
    """Work of the busiest block where tiles differ: its number of tiles, and their K-iterations in all."""

    tiles: int
    k_iterations: float


@dataclass(frozen=True)  # without slots: `changed` copies it
class TileProgram:
    """A block's operations with their costs, not yet scheduled. `region` is what it was cut from: only the front end
    and the lowering look inside.

    `tiles` are what blocks take, parts of tiles where sums are split; `k_iterations` those of each. `grain` is how
    many cycles one unit of the model's time is. `demand` and `last_demand` are what a K-block asks for
    in the steady state and in the tail wave, where rings of products have an effective II of their own; else None.
    `live` are the loop's tiles in registers beside the accumulators; `stationary` the tiles in shared memory that a
    block holds through its loop, `stationary_bytes` one set of them; `work` is the busiest block's where tiles may
    differ in length, else None; `shares` are there where blocks take equal ones. `lane_sums` are sums that stay apart
    in the threads until the loop is over; so do all reductions of rows that no SM holds, or none. Outside
    `bounds` an element of the streamed axis adds nothing; a statement of `unmasked` is the other value of its pair
    where they hold. `streamed` are the sources that the loop's items read from rings. `sum_sets` is how many sets of
    sums a block may keep. With `long_rows` tiles are
    parts of rows that no SM holds, which a block takes one after the other, and what follows them comes `after`. With
    `offsets` rows are cut into segments when the kernel runs, and a tile lies in one of them.
    `conditions` are what its schedule is asked to meet; of limits that are `lifted` the
    model does without, and no schedule is emitted. A `lazy` loop's rows may keep their maximum. Where blocks carry
    reductions over rows, each consumer's warps bring them together through `over_rows_bytes` of shared memory;
    a tile that threads read or store, and that lies turned, goes through `turning_bytes` of it. Of the vectors along
    the columns `held_vectors` stay in the consumers' registers from tile to tile.
    """

    region: Any
    whole: Whole
    structure: Structure
    grid: TileGrid
    iteration: Iteration
    k_iterations: int
    tiles: int
    values: tuple[Value, ...]
    ops: tuple[TileOp, ...]
    edges: tuple[Edge, ...]
    rings: tuple[RingPlan, ...]
    after: Epilogue
    accumulator_registers: int
    tile_l2_bytes: int
    dram_bytes: int
    epilogue: EpilogueCost = _UNPRICED
    grain: int = 1
    live: tuple[Live, ...] = ()
    stationary: tuple[Member, ...] = ()
    stationary_bytes: int = 0
    demand: Demand | None = None
    last_demand: Demand | None = None
    work: Work | None = None
    shares: Shares | None = None
    lane_sums: frozenset[str] = frozenset()
    bounds: Bounds = _UNBOUNDED
    unmasked: tuple[tuple[str, str], ...] = ()
    streamed: tuple[Source, ...] = ()
    sum_sets: tuple[int, ...] = (1,)
    conditions: Conditions = FREE
    lifted: Lifted = frozenset()
    long_rows: bool = False
    lazy: Lazy | None = None
    offsets: Source | None = None
    over_rows_bytes: int = 0
    turning_bytes: int = 0
    held_vectors: frozenset[str] = frozenset()
    _by_key: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def op(self, one: OpId) -> TileOp:
        """The operation with this id; KeyError if there is none."""
        found: TileOp = self._kept(one, lambda: {op.id: op for op in self.ops})
        return found

    def named(self, text: str) -> TileOp:
        """The operation whose id has this text, as schedules record it; KeyError if there is none."""
        found: TileOp = self._kept(text, lambda: {str(op.id): op for op in self.ops})
        return found

    def value(self, one: ValueId | None) -> Value:
        """The value with this id; KeyError if there is none."""
        found: Value = self._kept(one, lambda: {value.id: value for value in self.values})
        return found

    def _kept(self, key: Any, alike: Callable[[], Mapping[Any, Any]]) -> Any:
        """What is known by a key; it is kept, with all that are `alike`, as models and prices ask for each often."""
        if key not in self._by_key:
            self._by_key.update(alike())
        return self._by_key[key]

    @property
    def known(self) -> dict[Any, Any]:
        """What is known of it alone (`known.py`)."""
        return self._by_key

    @property
    def known_of_loop(self) -> dict[Any, Any]:
        """What is known of its loop, and so of all programs with the same one."""
        found: dict[Any, Any] | None = self._by_key.get(_LOOP)
        if found is None:
            s = self.structure
            loop = self.ops, self.edges, self.rings, self.values, s.consumers, s.copies
            found = self._by_key[_LOOP] = known_of(*loop, self.conditions, self.lifted)
        return found

    @property
    def loop(self) -> tuple[TileOp, ...]:
        """The operations of the loop, which are all that are scheduled."""
        return self.ops

    @of_loop
    def of(self, kind: OpKind) -> tuple[TileOp, ...]:
        """The operations of a kind."""
        return tuple(op for op in self.ops if op.kind is kind)

    @property
    @of_loop
    def by_consumer(self) -> Mapping[int, tuple[TileOp, ...]]:
        """The operations of each consumer."""
        consumers = dict.fromkeys(op.consumer for op in self.ops if op.consumer is not None)
        own = {one: tuple(op for op in self.ops if op.consumer == one) for one in consumers}
        return MappingProxyType(own)

    @property
    def items(self) -> tuple[Item, ...]:
        """What each consumer computes in the loop, each item once."""
        return tuple(dict.fromkeys(item for op in self.loop if op.consumer == 0 for item in op.items))

    @property
    def whole_rows(self) -> bool:
        """Whether an iteration is a tile that has whole rows, for the loop reduces them."""
        reduces = any(map(takes_row, self.items))
        return self.iteration is Iteration.TILE and reduces and not self.long_rows

    @property
    def all_columns(self) -> bool:
        """Whether a tile has all columns, and every call has as many, though the loop does not reduce them."""
        extent = self.whole.extent(Role.COLUMN)
        return self.iteration is Iteration.TILE and not counts_columns(self.row_tiles, extent, self.structure)

    @property
    def reads_twice(self) -> bool:
        """Whether rows that no SM holds are read in two passes: one that reduces them, and one that stores them."""
        return self.long_rows and any(output.has_columns for output in self.after.outputs)

    @property
    def row_parts(self) -> int:
        """Parts of a row that a block goes through, in all passes; of rows that are held whole one."""
        return self.grid.column_tiles * (1 + self.reads_twice) if self.long_rows else 1

    @property
    def late_iterations(self) -> float:
        """Iterations by which every other block begins later than its neighbours, if blocks are staggered."""
        return _LATE * self.row_parts if self.structure.staggered else 0.0

    @property
    def row_tiles(self) -> tuple[View, ...]:
        """The tensors whose tiles are iterations of a loop over them: what streams, or else what threads read, and
        what is stored of them.
        """
        beside = [one.view for one in self.after.vectors if one.is_tile]
        return row_tiles([one.view for one in self.streamed] or beside, self.after.outputs, beside)

    @property
    def summed(self) -> tuple[str, ...]:
        """The products whose sums a consumer has, by name."""
        own = (value.id for value in self.values if value.consumer == 0)
        return tuple(one.subject for one in own if one.kind is ValueKind.SUM)

    @property
    @of_loop
    def tensor_columns(self) -> int:
        """Columns of tensor memory that one set of its sums takes; 0 where sums are in registers."""
        return sum(value.tensor_columns for value in self.values)

    @property
    @of_loop
    def values_apart(self) -> bool:
        """Whether values of the loop go to and from products through tensor memory."""
        return any(value.id.kind is ValueKind.RESULT for value in self.values)

    @property
    def least_iterations(self) -> int:
        """Iterations of a tile, or of its shortest part: where sums are split parts differ by one at most. Of equal
        shares no part is shorter than its loop (`emit/shares.py`).
        """
        s = self.structure
        if s.splits == 1:
            return self.k_iterations
        return math.ceil(self.whole.extent(Role.STREAM) / (s.depth * s.copies)) // s.splits

    @property
    def passes(self) -> float:
        """Iterations of a tile in units of a whole one: a last K-block that ends early is a part of one."""
        s = self.structure
        return self.k_iterations - (1 - s.tail / s.depth if s.tail else 0.0)

    @property
    def copies_in_order(self) -> bool:
        """Whether the copies of a slot are scheduled in the order in which a kernel has them: of rows, and where some
        are so small that their order among the others is nothing to choose.
        """
        added = (op.counts for op in self.of(OpKind.ACCUMULATE))
        scaled = any(isinstance(counts, Promotion) and counts.scaled for counts in added)
        return self.iteration is Iteration.TILE or scaled

    @property
    @of_loop
    def adds_partials(self) -> bool:
        """Whether consumers add up partial sums, which products leave them."""
        return bool(self.of(OpKind.ACCUMULATE))

    @property
    @of_loop
    def computes(self) -> bool:
        """Whether consumers have arithmetic in the loop."""
        return any(not op.apart for op in self.of(OpKind.ELEMENTWISE))

    @property
    @of_loop
    def feeds_products(self) -> bool:
        """Whether products of the loop take values from registers, which arithmetic of the same iteration makes."""
        return any(value.kind is ValueKind.VALUE for op in self.of(OpKind.MMA) for value in op.inputs)

    @property
    @of_loop
    def computes_with_products(self) -> bool:
        """Whether arithmetic of the loop reads what a product of the same iteration has made."""
        pairs = {(OpKind.MMA, OpKind.ELEMENTWISE), (OpKind.MMA, OpKind.READ)}
        return any((edge.source.kind, edge.target.kind) in pairs for edge in self.edges if not edge.distance)

    @property
    def first_products(self) -> tuple[tuple[TileOp, TileOp], ...]:
        """Products that need no value of their K-block, or all where each needs one, and an operation that waits for
        the result: one that computes a value from it or, where a loop computes none from products, any.
        """
        own = [(self.op(edge.source), self.op(edge.target)) for edge in self.edges if not edge.distance]
        makes, reads = (OpKind.ELEMENTWISE, OpKind.WRITE), (OpKind.ELEMENTWISE, OpKind.READ)
        later = {target.id for source, target in own if source.kind in makes}
        every = [pair for pair in own if pair[0].kind is OpKind.MMA]
        found = [pair for pair in every if pair[0].id not in later] or every
        return tuple(pair for pair in found if pair[1].kind in reads) or tuple(found)
