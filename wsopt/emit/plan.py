"""The plan of a kernel before its text: boxes of tensors, channels, vectors, names of values.

Everything is derived from a verified schedule and its tile program; nothing is chosen here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from wsopt.emit.addresses import ByAddress
from wsopt.emit.channels import Barrier, Buffer, Channel, box_buffer
from wsopt.emit.names import Names
from wsopt.emit.prefetched import Prefetched
from wsopt.emit.staging import Staging, staged_by_tile, staging
from wsopt.emit.stamps import Trace
from wsopt.emit.tensors import GLUON, Box, make_box, row_box
from wsopt.graph.types import DType
from wsopt.perf.epilogue import Refill, refill
from wsopt.program.facts import Member
from wsopt.program.ids import OpId, ValueKind
from wsopt.program.program import Iteration, RingPlan, TileProgram
from wsopt.program.ranges import k_iteration_counts, longest_last
from wsopt.program.types import Sharing, Space, Structure, column_role, row_role
from wsopt.schedule.types import PartitionRole
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.tensors.statements import BEFORE, Item, Reduction, Statement
from wsopt.tensors.views import Output, Role, Source, View

_CONSUMER = frozenset({PartitionRole.CONSUMER})
_SUMS = frozenset({PartitionRole.MMA_WARP, PartitionRole.CONSUMER})
_STORES = frozenset({PartitionRole.CONSUMER, PartitionRole.STORE_WARP})


@dataclass(frozen=True, slots=True)
class Ring:
    """A ring of slots: one box or more of each of its tensors a slot, `per_slot` by tensor; the names of its barriers
    and constants.
    """

    name: str
    depth: str
    nbytes: str
    plan: RingPlan
    boxes: tuple[tuple[Box, int], ...]

    def loads_of(self, member: Member) -> list[OpId]:
        """The loads of one of its tensors, for the first K-block of an iteration."""
        return [one for one in self.plan.loads if one.subject == member.name and not one.k_block]

    @property
    def slot_bytes(self) -> int:
        """Bytes that arrive at a slot's barrier."""
        return sum(box.nbytes * per_slot for box, per_slot in self.boxes)


@dataclass(slots=True)
class KernelPlan:
    """One kernel, ready to be written."""

    verified: VerifiedSchedule
    names: Names = field(default_factory=lambda: Names(subtiles=True))
    trace: Trace | None = None

    # --- facts ------------------------------------------------------------------------------------------

    @property
    def program(self) -> TileProgram:
        """The tile program that the schedule was checked against."""
        return self.verified.program

    @property
    def s(self) -> Structure:
        """The structure."""
        return self.program.structure

    @property
    def ranged(self) -> bool:
        """Whether tiles differ in their K-blocks: bounds say which count, and a table deals the tiles out."""
        return self.program.work is not None

    @property
    def loops_over_tiles(self) -> bool:
        """Whether tiles are the iterations of the loop."""
        return self.program.iteration is Iteration.TILE

    @property
    def loop_layout(self) -> str:
        """Register layout of the tiles that a loop computes with."""
        return "ROWS_LAYOUT" if self.loops_over_tiles else "K_BLOCK_LAYOUT"

    @property
    def prefetches(self) -> bool:
        """Whether consumers load what an epilogue reads by address while products are under way."""
        return not (self.ranged or self.loops_over_tiles)

    @property
    def ping_pong(self) -> bool:
        """Whether the consumers work in ping-pong."""
        return self.s.sharing is Sharing.PING_PONG

    @property
    def sums_apart(self) -> bool:
        """Whether a warp of its own issues products, whose sums are in tensor memory."""
        return bool(self.program.tensor_columns)

    @property
    def stores_apart(self) -> bool:
        """Whether store warps start the stores."""
        return self.verified.schedule.buffers.store_warp

    def has(self, role: Role) -> bool:
        """Whether the tiles have this axis."""
        return any(one is role for one, _ in self.program.whole.extents)

    @property
    def outer(self) -> tuple[str, ...]:
        """The indices of a tile along its batch axes."""
        group = ("group",) if self.has(Role.GROUP) else ()
        return (("batch",) if self.has(Role.BATCH) or self.ranged else ()) + group

    @property
    def longest_last(self) -> bool:
        """Whether tiles of later rows have more K-blocks."""
        return self.ranged and longest_last(k_iteration_counts(self.program.bounds, self.s))

    @property
    def has_masks(self) -> bool:
        """Whether there are K-blocks in which not every element counts."""
        return bool(self.program.bounds.every)

    @property
    def counts_stream(self) -> bool:
        """Whether the epilogue reads the extent of the streamed axis."""
        return any(
            isinstance(i, Statement) and i.primitive == "extent_stream" for i in self.program.after.items
        )

    @property
    def reduces_rows(self) -> bool:
        """Whether whole rows are reduced, in the loop or after it, so that their length is a constant."""
        return self.loops_over_tiles or any(isinstance(item, Reduction) for item in self.program.after.items)

    @property
    def refill(self) -> Refill:
        """When a tile's inputs are copied."""
        return refill(self.program, self.verified.machine, self.verified.schedule.buffers)

    # --- tensors that TMA moves -------------------------------------------------------------------------

    def _box(self, kind: str, wish: str, view: View, extents: Mapping[Role, int]) -> Box:
        """The box of a tensor that takes so many elements along its axes; one name for each way it is used."""
        name = self.names(f"{kind}:{wish}", wish)
        if self.loops_over_tiles:
            return row_box(name, view, extents, self.verified.machine.tma_box_extent_max)
        return make_box(name, view, extents)

    def _held(self, kind: str, member: Member) -> Box:
        """The box of a tensor that a ring or the block holds."""
        extents = {role: member.extent(role) for role in member.view.roles}
        return self._box(kind, member.name, member.view, extents)

    def _subtile(self, kind: str, wish: str, view: View) -> Box:
        """The box of a tensor for a subtile of the epilogue."""
        s = self.s
        extents = {row_role(s.swap): s.rows, column_role(s.swap): s.subtile_columns}
        return self._box(kind, wish, view, extents)

    def rings(self) -> tuple[Ring, ...]:
        """The rings, each of tensors that are loaded, read and handed back together."""
        return tuple(map(self._ring, self.program.rings))

    def _ring(self, plan: RingPlan) -> Ring:
        boxes = tuple((self._held("streamed", member), member.copies) for member in plan.members)
        if len(self.program.rings) == 1:
            return Ring("ring", "RING_DEPTH", "RING_BYTES", plan, boxes)
        ((box, copies),) = boxes
        return Ring(f"{box.name}_ring", f"{box.name}_DEPTH", str(box.nbytes * copies), plan, boxes)

    def stationary_operands(self) -> tuple[Box, ...]:
        """The tiles that a block holds through its loop, one for each consumer."""
        return tuple(self._held("stationary", member) for member in self.program.stationary)

    def inputs(self) -> dict[str, Box]:
        """Full tiles that the epilogue reads, by source."""
        return {
            source.name: self._subtile(f"read:{source.name}", source.view.tensor, source.view)
            for source in self.program.after.full
        }

    def outputs(self) -> dict[str, Box]:
        """Output tensors, by name."""
        return {o.name: self._subtile("written", o.name, o.view) for o in self.program.after.tile_outputs}

    def moved(self) -> tuple[Box, ...]:
        """The tensors that TMA brings for the loop: those that stay, then the streamed ones."""
        return (*self.stationary_operands(), *(box for ring in self.rings() for box, _ in ring.boxes))

    # --- tensors that are read and written by address ---------------------------------------------------

    def vectors(self) -> dict[str, ByAddress[Source]]:
        """Sources that are rows, columns or scalars, by source, with their stride arguments."""
        found = {}
        for source in self.program.after.vectors:
            name = self.names(f"read:{source.name}", source.view.tensor)
            found[source.name] = ByAddress(source, name)
        return found

    def prefetched(self) -> dict[str, Prefetched]:
        """Vectors and scalars that a consumer loads before its epilogue."""
        return {name: Prefetched(v, self.s) for name, v in self.vectors().items()} if self.prefetches else {}

    def read_by(self, items: tuple[Item, ...]) -> set[str]:
        """The sources that these items read."""
        names = {name for item in items for name in item.reads}
        program = self.program
        sources = (*program.after.vectors, *program.after.full, *program.streamed)
        return names & {source.name for source in sources}

    def row_outputs(self) -> tuple[ByAddress[Output], ...]:
        """Outputs of one value a row, with their stride arguments."""
        found = []
        for output in (one for one in self.program.after.outputs if not one.is_tile):
            name = self.names(f"written:{output.name}", output.name)
            found.append(ByAddress(output, name))
        return tuple(found)

    # --- channels ---------------------------------------------------------------------------------------

    def channels(self) -> tuple[Channel, ...]:
        """All channels of the block."""
        return (*self._loaded(), *self._turns(), *self._sums(), *self._own())

    def _loaded(self) -> Iterator[Channel]:
        """Channels that the loading warp fills: stationary tiles, which persistent blocks hand back, and rings."""
        s = self.s
        reader = PartitionRole.MMA_WARP if self.sums_apart else PartitionRole.CONSUMER
        roles = frozenset({PartitionRole.LOADER, reader})
        for box in self.stationary_operands():
            sets = "STATIONARY_SETS * CONSUMERS" if s.persistent else "CONSUMERS"
            back = (Barrier("stationary_empty", s.consumers),) if s.persistent else ()
            barriers = (Barrier("stationary_full", 1), *back)
            yield Channel("STATIONARY_SETS", roles, (box_buffer(f"{box.name}_held", box, sets),), barriers)
        for ring in self.rings():
            buffers = [
                box_buffer(f"{box.name}_ring", box, _times(ring.depth, per_slot))
                for box, per_slot in ring.boxes
            ]
            readers = 1 if self.sums_apart else s.at_once
            barriers = (Barrier(f"{ring.name}_full", 1), Barrier(f"{ring.name}_empty", readers))
            yield Channel(ring.depth, roles, tuple(buffers), barriers)

    def _turns(self) -> Iterator[Channel]:
        """The order in which consumers in ping-pong go round the ring."""
        if self.ping_pong:
            yield Channel("CONSUMERS", _CONSUMER, barriers=(Barrier("turn", 1),))

    def _sums(self) -> Iterator[Channel]:
        """Sets of sums in tensor memory, which one warp's products fill and consumers read, each its rows."""
        if self.sums_apart:
            shape = (_times("SUM_SETS", self.s.consumers), "CONSUMER_ROWS", "TILE_COLUMNS")
            names = (f"{name}_sums" for name in self.sums())
            sums = (Buffer(name, GLUON[DType.F32], shape, "SUM_LAYOUT", Space.TENSOR) for name in names)
            barriers = (Barrier("sums_full", 1), Barrier("sums_empty", self.s.consumers))
            yield Channel("SUM_SETS", _SUMS, tuple(sums), barriers)

    def _own(self) -> Iterator[Channel]:
        """Channels of one consumer: prefetched vectors, full inputs, staging, its store warp's barriers."""
        for one in self.prefetched().values():
            if one.along_columns:
                yield Channel("", _CONSUMER, (one.buffer,), own=True)
        for box in self.inputs().values():
            buffer = box_buffer(f"{box.name}_input", box, "INPUT_BUFFERS")
            barriers = (Barrier(f"{box.name}_full", 1),)
            yield Channel("INPUT_BUFFERS", _CONSUMER, (buffer,), barriers, own=True)
        for pool in self.staged().pools.values():
            yield Channel("", _STORES, (box_buffer(pool.name, pool.box, str(pool.count)),), own=True)
        if self.stores_apart:
            yield Channel("STORES", _STORES, barriers=(Barrier("staged", 1), Barrier("freed", 1)), own=True)

    def staged(self) -> Staging:
        """The buffers that tiles are staged in, and what a store waits for."""
        buffers = self.verified.schedule.buffers
        if self.loops_over_tiles:
            return staged_by_tile(self.outputs(), buffers.staging)
        return staging(self.program, buffers, self.inputs(), self.outputs())

    # --- the loop's values and places -------------------------------------------------------------------

    def value(self, name: str, age: int = 0) -> str:
        """The identifier of a value of the loop; of what it was `age` iterations before."""
        plain = name.replace("$", "_").replace(BEFORE, "_past")
        if age == 0:
            return self.names(f"value:{name}", plain)
        return self.names(f"value:{name}-{age}", f"{plain}_old{'er' * (age - 1)}")

    def sums(self) -> tuple[str, ...]:
        """The accumulators that the epilogue reads, in the order of its arguments."""
        return tuple(self.value(name) for name in self.summed())

    def summed(self) -> tuple[str, ...]:
        """The products whose sums the loop leaves."""
        values = (value.id for value in self.program.values if value.consumer == 0)
        return tuple(one.subject for one in values if one.kind is ValueKind.SUM)

    def place(self, row: str, column: str) -> dict[Role, str]:
        """Expressions of a tile's place, by axis of the graph."""
        s = self.s
        own = {row_role(s.swap): row, column_role(s.swap): column}
        outer = {Role.BATCH: "batch", Role.GROUP: "group"}
        return {**own, **outer, Role.STREAM: "k_block * TILE_DEPTH", Role.INNER: "0"}

    def column(self, subtile: str | int = 0) -> str:
        """The first column of a subtile."""
        origin = [] if self.ranged or self.loops_over_tiles else ["column"]
        return " + ".join([*origin, *([f"{subtile} * SUBTILE_COLUMNS"] if subtile else [])]) or "0"

    def loop_items(self) -> tuple[Item, ...]:
        """Statements that a consumer computes in its loop."""
        own = (item for op in self.program.loop if op.consumer == 0 for item in op.items)
        return tuple(dict.fromkeys(own))

    def loop_reads(self) -> set[str]:
        """The sources that the loop's values read."""
        return self.read_by(self.loop_items())

    def rows(self) -> tuple[Reduction, ...]:
        """The loop's reductions that the epilogue reads."""
        after = self.program.after
        names = {name for item in after.items for name in item.reads} | {o.value for o in after.outputs}
        return tuple(i for i in self.loop_items() if isinstance(i, Reduction) and i.name in names)

    def stationary_place(self, consumer: str) -> str:
        """Expression of a consumer's stationary tile in this visit's set."""
        return f"(visit % STATIONARY_SETS) * CONSUMERS + {consumer}" if self.s.persistent else consumer

    # --- arguments --------------------------------------------------------------------------------------

    def stored(self) -> list[str]:
        """Arguments for a consumer's stores: addresses of row outputs, and descriptors where it starts the copies."""
        boxes = () if self.stores_apart else self.outputs().values()
        addresses = (name for row in self.row_outputs() for name in row.arguments)
        return [*addresses, *(box.descriptor for box in boxes)]

    def extent_names(self) -> dict[Role, str]:
        """The launcher's names of the axes' extents."""
        s = self.s
        return {
            row_role(s.swap): "row_extent",
            column_role(s.swap): "column_extent",
            Role.STREAM: "stream_extent",
            Role.INNER: "inner_extent",
            Role.BATCH: "batches",
            Role.GROUP: "groups",
        }

    def order_table(self) -> tuple[str, ...]:
        """The kernel's argument that says which tiles a block takes."""
        return ("order_ptr",) if self.ranged and self.s.persistent else ()

    def counts(self) -> tuple[str, ...]:
        """The kernel's arguments that say how many tiles there are, and K-blocks in each."""
        if self.ranged:
            return (*(["groups"] if self.has(Role.GROUP) else []), "row_tiles")
        batches = ("batches",) if self.has(Role.BATCH) else ()
        return (*batches, "row_tiles", *(() if self.loops_over_tiles else ("column_tiles", "k_iterations")))

    def sizes(self) -> tuple[str, ...]:
        """The kernel's arguments that are extents, and what follows from them."""
        column = () if self.loops_over_tiles else ("column_extent",)
        counted = ("stream_extent",) if self.ranged or self.counts_stream else ()
        return (*self.counts(), "row_extent", *column, *counted)


def _times(count: str, boxes: int) -> str:
    return count if boxes == 1 else f"{count} * {boxes}"
