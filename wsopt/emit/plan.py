"""The plan of a kernel before its text: boxes of tensors, rings, vectors, names of values.

Everything is derived once, from a verified schedule and its tile program; nothing is chosen here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from wsopt.emit.addresses import ByAddress
from wsopt.emit.instructions import Slots
from wsopt.emit.names import DYNAMIC_WORDS, OVER_ROWS_WORDS, SEGMENT_WORDS, SPLIT_WORDS, Names
from wsopt.emit.prefetched import Prefetched
from wsopt.emit.rings import NamedBoxes, Ring, loaders
from wsopt.emit.staging import Staging, staging
from wsopt.emit.stamps import WORDS, Trace
from wsopt.emit.tensors import Box
from wsopt.perf.epilogue import Refill, k_blocks_ahead, refill
from wsopt.program.combination import Combination, combination_of
from wsopt.program.facts import Read
from wsopt.program.over_rows import carried
from wsopt.program.program import Iteration, TileProgram
from wsopt.program.ranges import k_iteration_counts, longest_last
from wsopt.program.types import Sharing, Structure, column_role, row_role
from wsopt.schedule.types import PartitionRole
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.tensors.views import BATCHES, BEFORE, Item, Output, Reduction, Role, Source, Statement, takes_row

STATIONARY = Slots("stationary", "STATIONARY_SETS")
"""The sets of tiles that a block holds through its loop."""


_THREAD_COLUMNS = 16
"""Elements of a row that a thread loads at a time, at most: 16 bytes of the narrowest type."""


@dataclass(frozen=True, slots=True)
class KernelPlan:
    """One kernel, ready to be written.

    Where it is `ranged` tiles differ in their K-blocks: bounds say which count, a table deals the tiles out, and
    those of later rows have more if they are the `longest_last`. Where it `loops_over_tiles` these are the iterations
    of its loop. Kernels that hold no rows whole cut tiles along `columns` too. `axes` are the graph's, `outer` a
    tile's batch indices. With `sums_apart` a warp of its own issues products, whose sums are in tensor memory; with
    `stores_apart` store warps start the stores.

    `loaders` are the rings of each loading warp in the order in which it fills them, that of the schedule.
    `stationary` are the boxes of the tile that a block holds for each consumer, one for each of its parts. Of the
    epilogue's sources `inputs` are full tiles, `vectors` are read by address: some `prefetched`, the `late` ones by
    each subtile. TMA writes `outputs`, threads `outputs_by_address`. `refill` is when a consumer copies a
    tile's inputs. With `inputs_by_loader` the loading warp does, before the copies of a tile's last `inputs_ahead`
    K-blocks.

    `items` are the statements that a consumer computes in its loop. The epilogue reads the sums of the products
    `summed`, and of the items the reductions `rows`.

    `counts` are the kernel's arguments that say how many tiles there are, and K-blocks in each; `sizes` those and
    extents, `order_table` the one that says which tiles a block takes. The epilogue reads the extent of the streamed
    axis if it `counts_stream`. `scalars` are the sources of the bounds' run-time scalars, each with its name in
    registers. Consumers with `own_k_blocks` look at some of their tile's alone.
    Where run-time `offsets` cut the rows (`segments.py`), threads store the tiles that are not all one segment's of
    `ragged` outputs, by name. With a `trace` the kernel has stamps (`stamps.py`).
    """

    verified: VerifiedSchedule
    program: TileProgram
    s: Structure
    names: Names
    ranged: bool
    longest_last: bool
    loops_over_tiles: bool
    columns: bool
    axes: tuple[Role, ...]
    outer: tuple[str, ...]
    ping_pong: bool
    sums_apart: bool
    stores_apart: bool
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
    inputs_by_loader: bool
    inputs_ahead: int
    items: tuple[Item, ...]
    summed: tuple[str, ...]
    rows: tuple[Reduction, ...]
    counts: tuple[str, ...]
    sizes: tuple[str, ...]
    order_table: tuple[str, ...]
    scalars: Mapping[str, str]
    counts_stream: bool
    own_k_blocks: bool
    trace: Trace | None
    offsets: ByAddress[Source] | None
    ragged: Mapping[str, ByAddress[Output]]

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
    def column_multiple(self) -> int:
        """Columns of which a call's tensors have a multiple, at most as many as a thread loads at a time: a launch
        checks that of rows that are folded, or that threads read so many elements at a time.
        """
        if self.s.occupancy:
            reads = (op.counts for op in self.program.ops if isinstance(op.counts, Read))
            return max((read.at_once for read in reads), default=1)
        folds = {box.fold for box in (*self.moved, *self.outputs.values()) if box.fold}
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
        """Whether whole rows are reduced, in the loop or after it, so that their length is a constant."""
        after = any(map(takes_row, self.program.after.items))
        return self.program.whole_rows or self.program.long_rows or after

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
        in_turns = self.loops_over_tiles and not self.s.occupancy
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
        """The name of a partition's function. Those of a role share one, but loading warps, whose rings differ."""
        apart = role is PartitionRole.LOADER and len(self.loaders) > 1
        return f"{role.value}{index}" if apart else role.value

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


def plan_of(verified: VerifiedSchedule, trace: Trace | None = None) -> KernelPlan:
    """The plan of a verified schedule's kernel; with a `trace`, of one with stamps."""
    program, buffers = verified.program, verified.schedule.buffers
    taken = (WORDS if trace else frozenset()) | (SPLIT_WORDS if program.structure.parted else frozenset())
    taken |= OVER_ROWS_WORDS if carried(program) else frozenset()
    taken |= DYNAMIC_WORDS if program.structure.dynamic else frozenset()
    taken |= SEGMENT_WORDS if program.offsets else frozenset()
    names = Names(subtiles=True, taken=set(taken))
    s, after, axes = program.structure, program.after, tuple(role for role, _ in program.whole.extents)
    ranged, by_tile = program.work is not None, program.iteration is Iteration.TILE
    columns = not (ranged or program.whole_rows or program.long_rows)
    boxes = NamedBoxes(verified, names)
    subtile = {row_role(s.swap): s.rows, column_role(s.swap): s.subtile_columns}
    stationary = tuple(box for member in program.stationary for box in boxes.held("stationary", member))
    rings = boxes.rings()
    vectors = {x.name: ByAddress(x, names(f"read:{x.name}", x.view.tensor)) for x in after.vectors}
    inputs = {x.name: boxes.box(f"read:{x.name}", x.view.tensor, x.view, subtile) for x in after.full}
    outputs = {
        o.name: boxes.box("written", o.name.replace(".", "_"), o.view, subtile) for o in after.tile_outputs
    }
    outputs_by_address = tuple(
        ByAddress(o, names(f"written:{o.name}", o.name.replace(".", "_")))
        for o in after.outputs
        if not (o.is_tile or o.over_rows)
    )
    items = program.items
    read = frozenset(name for item in after.items for name in item.reads)
    wanted = read | {output.value for output in after.outputs}
    cut = program.offsets
    offsets = None if cut is None else ByAddress(cut, names("read:offsets", cut.view.tensor))
    counts = _counts(axes, ranged=ranged, columns=columns, k_blocks=not by_tile)
    counts = (*counts, *(_parts(s) if ranged else ()))
    sizes = [*counts, "row_extent", *(["column_extent"] if columns or not by_tile else [])]
    counts_stream = any(isinstance(i, Statement) and i.primitive == "extent_stream" for i in after.items)
    return KernelPlan(
        verified=verified, program=program, s=s, names=names, ranged=ranged,
        longest_last=ranged and longest_last(k_iteration_counts(program.bounds, s)),
        loops_over_tiles=by_tile, columns=columns,
        axes=axes,
        outer=tuple(str(role) for role in BATCHES if role in axes or (ranged and role is Role.BATCH)),
        ping_pong=s.sharing is Sharing.PING_PONG, sums_apart=bool(program.tensor_columns),
        stores_apart=buffers.store_warp, stationary=stationary, rings=rings,
        loaders=tuple(loaders(verified, rings)), inputs=inputs, vectors=vectors,
        prefetched={
            name: Prefetched(v, row_role(s.swap) in v.of.spans, column_role(s.swap) in v.of.spans)
            for name, v in vectors.items() if after.prefetched
        },
        late={} if after.prefetched else {name: v for name, v in vectors.items() if name in read},
        outputs=outputs, outputs_by_address=outputs_by_address, staged=staging(program, buffers, inputs, outputs),
        refill=Refill(0, 0) if s.parted else refill(program, verified.machine, buffers),
        inputs_by_loader=buffers.inputs_by_loader,
        inputs_ahead=_inputs_ahead(verified), items=items,
        summed=program.summed,
        rows=tuple(i for i in items if isinstance(i, Reduction) and i.name in wanted), counts=counts,
        counts_stream=counts_stream,
        own_k_blocks=bool(program.bounds.every) and s.consumers > 1 and not program.values_apart,
        sizes=(*sizes, *(["stream_extent"] if ranged or counts_stream else [])),
        order_table=("order_ptr",) if ranged and s.persistent and not s.parted else (), trace=trace,
        scalars={
            name: loop_name(names, vectors[name].of) for bound in program.bounds.every for name in bound.scalars
        },
        offsets=offsets,
        ragged={o.name: ByAddress(o, outputs[o.name].name) for o in after.tile_outputs} if offsets else {},
    )  # fmt: skip


def loop_name(names: Names, source: Source) -> str:
    """The identifier of what a loop reads of a tensor, in registers."""
    view = source.view
    return names(
        f"loop:{view.tensor}:{view.roles}:{view.cutouts}:{view.chosen}:{view.offset}", f"{view.tensor}_value"
    )


def _inputs_ahead(verified: VerifiedSchedule) -> int:
    """K-blocks of a tile that the loading warp copies behind the epilogue's inputs; 0 where it copies no inputs."""
    schedule, program = verified.schedule, verified.program
    if not schedule.buffers.inputs_by_loader:
        return 0
    slots = min(schedule.depth(plan.name) for plan in program.rings if plan.copied)
    return k_blocks_ahead(program, verified.machine, schedule.ii, slots)


def _parts(s: Structure) -> tuple[str, ...]:
    """What says how many parts, or tiles, a loop that computes values is cut into for blocks."""
    return ("tiles",) if s.shares else ("parts",) if s.splits > 1 else ()


def _counts(axes: tuple[Role, ...], *, ranged: bool, columns: bool, k_blocks: bool) -> tuple[str, ...]:
    """The names of what is counted: batches, tiles along rows and `columns`, `k_blocks` where all have as many."""
    asked = {
        "groups": Role.GROUP in axes,
        "heads": Role.HEAD in axes,
        "batches": not ranged and Role.BATCH in axes,
        "row_tiles": Role.SEGMENT not in axes,
        "segments": Role.SEGMENT in axes,
        "column_tiles": columns,
        "k_iterations": columns and k_blocks,
    }
    return tuple(name for name, wanted in asked.items() if wanted)
