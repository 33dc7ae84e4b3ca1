"""The plan of a kernel before its text: boxes of tensors, rings, vectors, names of values.

A plan is derived once (`plan_of.py`), from a verified schedule and its tile program, and all that is written of the
kernel reads it. Nothing is chosen here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from wsopt.emit.addresses import ByAddress
from wsopt.emit.instructions import Slots
from wsopt.emit.names import Names
from wsopt.emit.prefetched import Prefetched
from wsopt.emit.rings import Ring
from wsopt.emit.staging import Staging
from wsopt.emit.stamps import Trace
from wsopt.emit.tensors import Box
from wsopt.perf.ahead import slots_ahead
from wsopt.perf.epilogue import Refill
from wsopt.program.combination import Combination, combination_of
from wsopt.program.facts import Read, Store
from wsopt.program.over_rows import carried
from wsopt.program.program import Iteration, TileProgram
from wsopt.program.ranges import LiveLoops, live_loops
from wsopt.program.types import Sharing, Structure, column_role, row_role
from wsopt.schedule.types import PartitionRole
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.tensors.halves import other_half
from wsopt.tensors.statements import BEFORE, Item, Reduction, takes_row
from wsopt.tensors.views import BATCHES, Output, Role, Source, View

STATIONARY = Slots("stationary", "STATIONARY_SETS")
"""The sets of tiles that a block holds through its loop."""

_THREAD_COLUMNS = 16
"""Elements of a row that a thread loads at a time, at most: 16 bytes of the narrowest type."""


@dataclass(frozen=True, slots=True)
class KernelPlan:
    """One kernel, ready to be written.

    Tiles of later rows have more K-blocks than those before them if they are the `longest_last`. Kernels that hold no
    rows whole cut tiles along `columns` too. `axes` are the graph's, `outer` a tile's batch indices, `launch_axes`
    those of the launch's grid, x first, where it has one for each of the tiles' axes; else there are none.

    `loaders` are the rings of each loading warp in the order in which it fills them, that of the schedule.
    `stationary` are the boxes of the tile that a block holds for each consumer, one for each of its parts. Of the
    epilogue's sources `inputs` are full tiles, `vectors` are read by address: some `prefetched`, the `late` ones by
    each subtile. TMA writes `outputs`, threads `outputs_by_address`. `refill` is when a consumer copies a
    tile's inputs. Where the loading warp does, it copies them before a tile's last `inputs_ahead` K-blocks. The
    epilogue reads the reductions `rows` of the loop.

    `counts` say how many tiles there are, and K-blocks in each; `sizes` are the kernel's arguments: those, if tiles
    lie along one axis of the launch, and extents; `order_table` is the one that says which tiles a block takes. The
    epilogue reads the extent of the streamed axis if it `counts_stream`. `scalars` are the sources of the bounds'
    run-time scalars, each with its name in registers. Where run-time `offsets` cut the rows (`segments.py`), threads
    store the tiles that are not all one segment's of `ragged` outputs, by name. With a `trace` the kernel has stamps
    (`stamps.py`).
    """

    verified: VerifiedSchedule
    names: Names
    longest_last: bool
    columns: bool
    axes: tuple[Role, ...]
    outer: tuple[str, ...]
    launch_axes: tuple[Role, ...]
    stationary: tuple[Box, ...]
    rings: tuple[Ring, ...]
    loaders: tuple[tuple[Ring, ...], ...]
    inputs: Mapping[str, Box]
    vectors: Mapping[str, ByAddress[Source]]
    prefetched: Mapping[str, Prefetched]
    late: Mapping[str, ByAddress[Source]]
    outputs: Mapping[str, Box]
    outputs_by_address: tuple[ByAddress[Output], ...]
    staged: Staging
    refill: Refill
    inputs_ahead: int
    rows: tuple[Reduction, ...]
    counts: tuple[str, ...]
    sizes: tuple[str, ...]
    order_table: tuple[str, ...]
    scalars: Mapping[str, str]
    counts_stream: bool
    trace: Trace | None
    offsets: ByAddress[Source] | None
    ragged: Mapping[str, ByAddress[Output]]

    @property
    def program(self) -> TileProgram:
        """The tile program that the schedule is of."""
        return self.verified.program

    @property
    def s(self) -> Structure:
        """Its structure."""
        return self.program.structure

    @property
    def ranged(self) -> bool:
        """Whether tiles differ in their K-blocks: bounds say which count, and a table deals the tiles out."""
        return self.program.work is not None

    @property
    def loops_over_tiles(self) -> bool:
        """Whether an iteration of the loop is a whole tile."""
        return self.program.iteration is Iteration.TILE

    @property
    def ping_pong(self) -> bool:
        """Whether consumers take whole tiles in turns."""
        return self.s.sharing is Sharing.PING_PONG

    @property
    def sums_apart(self) -> bool:
        """Whether a warp of its own issues the products, whose sums are in tensor memory."""
        return self.program.tensor_columns > 0

    @property
    def stores_apart(self) -> bool:
        """Whether store warps start the stores."""
        return self.verified.schedule.buffers.store_warp

    @property
    def inputs_by_loader(self) -> bool:
        """Whether the loading warp copies the full tiles that the epilogue reads, and not the consumer."""
        return self.verified.schedule.buffers.inputs_by_loader

    @property
    def own_k_blocks(self) -> bool:
        """Whether consumers look at some of their tile's K-blocks alone."""
        return bool(self.program.bounds.every) and self.s.consumers > 1 and not self.values_apart

    @property
    def live(self) -> LiveLoops:
        """Which loops over a tile's K-blocks can run."""
        return live_loops(self.program.bounds, self.s, own=not self.values_apart)

    @property
    def items(self) -> tuple[Item, ...]:
        """The statements that a consumer computes in its loop."""
        return self.program.items

    @property
    def summed(self) -> tuple[str, ...]:
        """The products whose sums the epilogue reads."""
        return self.program.summed

    @property
    def segment_arguments(self) -> tuple[str, ...]:
        """What the segment of a tile is found from, where offsets cut the rows."""
        return () if self.offsets is None else (*self.offsets.arguments, "segments", "row_extent")

    @property
    def row_end(self) -> str:
        """The end of the rows that a tile may store."""
        return "row_extent" if self.offsets is None else "end_row"

    def tile_row(self, first: str = "first_row") -> str:
        """The first row of a tile; of a segment's that begins at `first`."""
        return "row_tile * TILE_ROWS" if self.offsets is None else f"{first} + row_tile * TILE_ROWS"

    @property
    def computes(self) -> bool:
        """Whether a loop's values lie as tensor instructions leave sums, and take operands from registers."""
        return not self.values_apart and (self.ranged or self.program.feeds_products)

    @property
    def values_apart(self) -> bool:
        """Whether the loop's values go to and from products through tensor memory."""
        return self.program.values_apart

    @property
    def in_loop(self) -> bool:
        """Whether consumers go through the loop: not where a warp of its own issues all that there is in one."""
        return not self.sums_apart or self.program.computes

    @property
    def split(self) -> bool:
        """Whether a tile's K-blocks are shared by several blocks, and what a block takes is a part of a tile."""
        return self.s.parted

    @property
    def carried(self) -> tuple[Reduction, ...]:
        """The reductions over all rows that a consumer carries from tile to tile."""
        return carried(self.program)

    @property
    def owes_ends(self) -> bool:
        """Whether consumers end tiles when they have left all of their parts."""
        return self.split and self.ranged

    @property
    def combination(self) -> Combination | None:
        """How the parts of a tile come together where its loop computes values."""
        return combination_of(self.program) if self.split else None

    @property
    def consumer_registers(self) -> int:
        """Registers of each of a consumer's threads."""
        partitions = self.verified.schedule.partitions
        return min(one.registers for one in partitions if one.role is PartitionRole.CONSUMER)

    @property
    def k_blocks(self) -> str:
        """The number of a consumer's K-blocks in what a block takes, as the text says it."""
        return "k_blocks" if self.split else "k_iterations"

    @property
    def constants(self) -> tuple[str, ...]:
        """The inputs that are read before the kernel before has ended."""
        own = (ring for index, rings in enumerate(self.loaders) if self.fills_ahead(index) for ring in rings)
        return tuple(dict.fromkeys(b.view.tensor for r in own for b in r.boxes if b.view.constant))

    @property
    def constants_ahead(self) -> int | None:
        """Slots whose constants are copied before the kernel before has ended; None if those of a whole ring are."""
        program, machine, schedule = self.verified.program, self.verified.machine, self.verified.schedule
        filled = (rings for index, rings in enumerate(self.loaders) if self.fills_ahead(index))
        depth = min((schedule.depth(ring.plan.name) for rings in filled for ring in rings), default=0)
        if not depth:
            return None
        slots = slots_ahead(program, machine, schedule.prediction, depth)
        return slots if slots < depth else None

    def fills_ahead(self, index: int) -> bool:
        """Whether a loading warp copies constants before the kernel before has ended: in loops of products that count
        their slots on. A kernel with stamps does not, for its records are of whole tiles; nor one whose tiles lie
        where offsets say that are read behind that end; nor one of constants alone, of whose copies none would wait
        before consumers store what the kernel before may still read.
        """
        rings = self.loaders[index]
        by_block = self.columns and not self.loops_over_tiles
        plain = by_block and not self.recorded and all(ring.counter.kept for ring in rings)
        plain = plain and self.offsets is None
        every = [box.view.constant for own in self.loaders for ring in own for box in ring.boxes]
        return plain and not all(every) and any(box.view.constant for ring in rings for box in ring.boxes)

    @property
    def recorded(self) -> bool:
        """Whether the kernel keeps records when it runs."""
        return self.trace is not None and self.trace.run

    @property
    def moved(self) -> tuple[Box, ...]:
        """The tensors that TMA brings for the loop: those that stay, then the streamed ones."""
        copied = (ring for ring in self.rings if ring.plan.copied)
        return (*self.stationary, *(box for ring in copied for box in ring.boxes))

    @property
    def in_order(self) -> bool:
        """Whether tiles are taken row by row, as they lie: none shares an operand with another."""
        return self.loops_over_tiles and self.s.group == 1

    @property
    def by_threads(self) -> bool:
        """Whether threads store the tiles of rows in runs, and read them so where an SM has several blocks."""
        return self.s.resident or self.s.stored_by_threads or bool(self.halves)

    @property
    def halves(self) -> frozenset[View]:
        """The outputs that are halves of a tensor's pairs, which threads store together."""
        outputs = self.program.after.outputs
        return frozenset(one.view for one in outputs if other_half(one, outputs))

    @property
    def column_multiple(self) -> int:
        """Columns of which a call's tensors have a multiple, at most as many as a thread loads at a time: a launch
        checks that of rows that are folded, or that threads read so many elements at a time.
        """
        if self.by_threads:
            # Where tiles are turned what is stored lies along the rows, and what is read need not.
            stored = bool(self.program.turning_bytes) or self.s.stored_by_threads or bool(self.halves)
            told = (Read, Store) if stored else (Read,)
            moved = (op.counts for op in self.program.ops if isinstance(op.counts, told))
            return max((one.at_once for one in moved), default=1)
        folds = {box.folded_columns for box in (*self.moved, *self.outputs.values()) if box.fold}
        return math.gcd(_THREAD_COLUMNS, *folds) if folds else 1

    @property
    def chosen(self) -> dict[str, str]:
        """The sources that choose places of what the loop copies, each with the name of a place."""
        views = (box.view for box in self.moved)
        names = dict.fromkeys(view.chosen.source for view in views if view.chosen is not None)
        return {
            name: self.names(f"place:{name}", f"{self.vectors[name].of.view.tensor}_place") for name in names
        }

    @property
    def read_vectors(self) -> list[ByAddress[Source]]:
        """The vectors and scalars that a consumer reads: not those that only choose what the loading warp copies."""
        items = (*self.items, *self.program.after.items)
        read = {name for item in items for name in item.reads}.union(self.late, self.prefetched, self.scalars)
        return [one for name, one in self.vectors.items() if name in read or name not in self.chosen]

    @property
    def computed(self) -> tuple[Box, ...]:
        """What a role leaves in rings for products."""
        return tuple(box for ring in self.rings if not ring.plan.copied for box in ring.boxes)

    @property
    def handed_back(self) -> tuple[Box, ...]:
        """The inputs whose buffers the consumer hands back to the loading warp, behind its reads: not those in which
        it stages outputs, of which a store warp tells.
        """
        brought = self.inputs.values() if self.inputs_by_loader and self.s.persistent else ()
        return tuple(box for box in brought if box not in self.staged.lent.values())

    @property
    def loop_layout(self) -> str:
        """Register layout of the tiles that a loop computes with."""
        return "ROWS_LAYOUT" if self.loops_over_tiles else "K_BLOCK_LAYOUT"

    @property
    def reduces_rows(self) -> bool:
        """Whether whole rows are reduced, in the loop or after it, or all calls have as many columns, so that a row's
        length is a constant.
        """
        after = any(map(takes_row, self.program.after.items))
        return self.program.whole_rows or self.program.long_rows or self.program.all_columns or after

    @property
    def reads_twice(self) -> bool:
        """Whether rows that no SM holds are read in two passes: one that reduces them, and one that stores them."""
        return self.program.reads_twice

    @property
    def sums(self) -> tuple[str, ...]:
        """The accumulators that the epilogue reads, in the order of its arguments."""
        return tuple(map(self.value, self.summed))

    @property
    def counts_slots(self) -> bool:
        """Whether slots are counted on, not divided out of the numbers of K-blocks."""
        return any(ring.counter.kept for ring in self.rings)

    @property
    def counts_steps(self) -> bool:
        """Whether a consumer needs the number of its K-block, and not its slots alone: for places along the streamed
        axis, for tiles in turns, for staging by turns.
        """
        in_turns = self.loops_over_tiles and not self.s.resident
        return self.ranged or self.ping_pong or in_turns or self.trace is not None

    @property
    def stored(self) -> list[str]:
        """Arguments for a consumer's stores: addresses of row outputs, and descriptors where it starts the copies."""
        boxes = () if self.stores_apart else self.outputs.values()
        return [
            *(a for row in (*self.outputs_by_address, *self.ragged.values()) for a in row.arguments),
            *(box.descriptor for box in boxes),
        ]

    @property
    def extent_names(self) -> dict[Role, str]:
        """The launcher's names of the axes' extents."""
        own = {row_role(self.s.swap): "row_extent", column_role(self.s.swap): "column_extent"}
        return own | {
            Role.STREAM: "stream_extent",
            Role.INNER: "inner_extent",
            Role.BATCH: "batches",
            Role.HEAD: "heads",
            Role.GROUP: "groups",
            Role.SEGMENT: "segments",
        }

    def function_name(self, role: PartitionRole, index: int = 0) -> str:
        """The name of a partition's function. Those of a role share one, but loading warps and transform warpgroups,
        whose rings differ.
        """
        several = {PartitionRole.LOADER: len(self.loaders), PartitionRole.TRANSFORM: self.s.transforms}
        return f"{role.value}{index}" if several.get(role, 1) > 1 else role.value

    def value(self, name: str, age: int = 0) -> str:
        """The identifier of a value of the loop; of what it was `age` iterations before."""
        plain = name.replace("$", "_").replace(BEFORE, "_past")
        if age == 0:
            return self.names(f"value:{name}", plain)
        return self.names(f"value:{name}-{age}", f"{plain}_old{'er' * (age - 1)}")

    def place(self, row: str, column: str) -> dict[Role, str]:
        """Expressions of a tile's place, by axis of the graph."""
        own = {row_role(self.s.swap): row, column_role(self.s.swap): column}
        outer = {role: str(role) for role in (*BATCHES, Role.SEGMENT)}
        return {**own, **outer, Role.STREAM: "k_block * TILE_DEPTH", Role.INNER: "0"}

    def first_places(self) -> list[str]:
        """Lines with the first row and column of a consumer's tile."""
        row = self.tile_row() + ("" if self.s.at_once == 1 else " + index * CONSUMER_ROWS")
        return [f"row = {row}", *(["column = column_tile * TILE_COLUMNS"] if self.columns else [])]

    def column(self, subtile: str | int) -> str:
        """The first column of a subtile."""
        terms = (["column"] if self.columns else []) + ([f"{subtile} * SUBTILE_COLUMNS"] if subtile else [])
        return " + ".join(terms) or "0"

    def stationary_place(self, consumer: str) -> str:
        """Expression of a consumer's stationary tile in this visit's set."""
        return f"(visit % STATIONARY_SETS) * CONSUMERS + {consumer}" if self.s.persistent else consumer
