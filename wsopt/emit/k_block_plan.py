"""What the template of loops over K-blocks needs: rings for each streamed tensor, tiles that are held, ranges."""

from __future__ import annotations

from dataclasses import dataclass, replace

from wsopt.emit.addresses import VectorArgument
from wsopt.emit.expressions import Operand
from wsopt.emit.held import HeldVector
from wsopt.emit.instructions import Expect, Instruction, Loop, TmaLoad, WaitEmpty
from wsopt.emit.integers import GLUON, Name, maximum, minimum, text
from wsopt.emit.k_block_loop import KBlockOperands, k_block_loop, older_values
from wsopt.emit.k_block_values import KBlockWriter
from wsopt.emit.plan import KernelPlan, RingBuffer
from wsopt.emit.tensors import Box, coordinates, make_box, tile_view
from wsopt.frontend.types import FULL, Bound, Reduction, Role, View
from wsopt.graph.types import DType
from wsopt.perf.k_block_costs import inner_extent
from wsopt.perf.lanes import lane_sums
from wsopt.program.live_loops import LiveLoops, live_loops
from wsopt.program.ranges import is_end, k_blocks_between, k_iteration_counts, longest_last, splits
from wsopt.program.steps import arguments
from wsopt.schedule.passes import in_pass
from wsopt.schedule.types import PartitionRole


@dataclass(frozen=True, slots=True)
class Stretch:
    """The loop over a tile's K-blocks from `first` to `last`; a `guarded` one is only for where there are any."""

    first: str
    last: str
    loop: Loop
    guarded: bool = False


@dataclass(slots=True)
class KBlockPlan(KernelPlan):
    """One kernel whose loop computes values, ready to be written."""

    @property
    def has_group(self) -> bool:
        """Whether the tiles have a second batch axis."""
        return any(role is Role.GROUP for role, _ in self.program.region.extents)

    @property
    def longest_last(self) -> bool:
        """Whether tiles of later rows have more K-blocks."""
        return longest_last(k_iteration_counts(self.program.region, self.s))

    def _extents(self, columns: int) -> dict[Role, int]:
        inner = inner_extent(self.program.region, self.verified.machine)
        return {Role.ROW: self.s.rows, Role.COLUMN: columns, Role.STREAM: self.s.depth, Role.INNER: inner}

    def _named(self, kind: str, wish: str, view: View) -> Box:
        name = self.names(f"{kind}:{wish}", wish)
        return make_box(name, f"{name}_LAYOUT", view, self._extents(self.s.columns))

    def rings(self) -> tuple[RingBuffer, ...]:
        """One ring for each streamed tensor; along the rows a box for each consumer."""
        region = self.program.region
        boxes = [self._named("streamed", region.operand_name(view), view) for view in region.streams]
        return tuple(
            RingBuffer(f"{box.name}_ring", box, self.s.consumers if Role.ROW in box.view.roles else 1)
            for box in boxes
        )

    def stationary_operands(self) -> tuple[Box, ...]:
        """The tiles that a block holds through its loop, one for each consumer."""
        return tuple(
            self._named("stationary", view.tensor, view) for view in self.program.region.stationary_operands
        )

    def depth_name(self, ring: RingBuffer) -> str:
        """The constant with a ring's slots."""
        return f"{ring.box.name}_DEPTH"

    def slots(self, ring: RingBuffer) -> int:
        """A ring's slots."""
        view = ring.box.view
        return self.verified.schedule.depth(f"{self.program.region.operand_name(view)}_ring")

    def k_block_operands(self) -> KBlockOperands:
        """How the products see their operands."""
        region = self.program.region
        tiles, rings, depths = {}, {}, {}
        for ring in self.rings():
            name = region.operand_name(ring.box.view)
            product = next((c for c in region.contractions if c.right == ring.box.view), None)
            first = Role.STREAM if product is None or product.spans == FULL else Role.INNER
            first = Role.ROW if Role.ROW in ring.box.view.roles else first
            slot = "{slot}" if ring.per_slot == 1 else "({slot}) * CONSUMERS + index"
            tiles[name] = tile_view(f"{ring.name}.index({slot})", ring.box, first)
            rings[name] = ring.name
            depths[ring.name] = self.depth_name(ring)
        (stationary,) = self.stationary_operands()
        return KBlockOperands(
            tile_view(f"{stationary.name}_held.index({self._held_place('index')})", stationary, Role.ROW),
            tiles,
            rings,
            depths,
        )

    def sums(self) -> tuple[str, ...]:
        """The accumulators that the epilogue reads, in the order of its arguments."""
        return tuple(self.writer().name(c.name) for c in self.program.region.contractions if c.spans == FULL)

    def epilogue_values(self) -> dict[str, Operand]:
        """The loop's results that the epilogue reads, by name: sums, and reductions of rows."""
        writer, region = self.writer(), self.program.region
        found = {
            c.name: Operand(writer.name(c.name), FULL, DType.F32)
            for c in region.contractions
            if c.spans == FULL
        }
        rows = frozenset({Role.ROW})
        return found | {i.name: Operand(writer.name(i.name), rows, DType.F32) for i in self.epilogue_rows()}

    def held(self) -> dict[str, HeldVector]:
        """None: what a loop that computes values leaves of the registers is little."""
        return {}

    def epilogue_vectors(self) -> dict[str, VectorArgument]:
        """The rows, columns and scalars that the epilogue reads."""
        return {name: vector for name, vector in self.vectors().items() if name in self.epilogue_reads()}

    def writer(self) -> KBlockWriter:
        """The writer of the loop's arithmetic."""
        apart = lane_sums(self.program.region, self.s, self.verified.machine)
        return KBlockWriter(self.program.region, self.s, self.names, apart, self._loop_sources())

    def _loop_sources(self) -> dict[str, Operand]:
        found = {}
        for source in self.program.region.sources:
            if source.name in self.loop_reads():
                name = self.names(f"loop:{source.name}", f"{source.view.tensor}_value")
                dtype = DType.F32 if source.view.dtype.is_float else source.view.dtype
                found[source.name] = Operand(name, source.spans, dtype)
        return found

    def loop_reads(self) -> set[str]:
        """The sources that the loop's values read."""
        names = {a for item in self.program.region.body for a in arguments(item)}
        return names & {source.name for source in self.program.region.sources}

    def epilogue_reads(self) -> set[str]:
        """The sources that the epilogue reads."""
        names = {a for s in self.program.region.statements for a in arguments(s)}
        return names & {source.name for source in self.program.region.sources}

    def epilogue_rows(self) -> tuple[Reduction, ...]:
        """The reductions that the epilogue reads."""
        region = self.program.region
        names = {a for s in region.statements for a in arguments(s)} | {o.value for o in region.outputs}
        return tuple(i for i in region.body if isinstance(i, Reduction) and i.name in names)

    def overlapped(self) -> bool:
        """Whether iterations overlap within a consumer."""
        placed = in_pass(self.verified, f"{PartitionRole.CONSUMER}0")
        return any(p.stage for p in placed)

    def k_block_loop(self, *, masked: bool) -> Loop:
        """The loop over K-blocks in which masks are at work, or over those in which none is."""
        alone = masked and self.has_masks
        return k_block_loop(
            self.verified, self.k_block_operands(), self.writer(), masked=masked, overlapped=not alone
        )

    @property
    def live(self) -> LiveLoops:
        """Which loops over K-blocks can run at all."""
        return live_loops(self.program.region, self.s)

    @property
    def own_k_blocks(self) -> bool:
        """Whether consumers look at K-blocks of their own among those of their tile."""
        return self.has_masks and self.s.consumers > 1

    def stretches(self) -> tuple[Stretch, ...]:
        """The K-blocks of a tile: those at its beginning that masks touch, those that none does, and the last ones.

        What cannot run at any extents is left out.
        """
        plain = self.k_block_loop(masked=False)
        if not self.has_masks:
            return (Stretch("begin", "end", plain),)
        masked, live, overlapped = self.k_block_loop(masked=True), self.live, self.overlapped()
        if live.most_whole < (plain.least if overlapped else 1):
            return (Stretch("begin", "end", masked),)
        start, behind = (
            ("whole_begin", "whole_end") if self.has_lower else ("begin", "gl.maximum(whole_end, begin)")
        )
        if live.most_whole <= plain.first:
            plain = replace(plain, steady=())
        found = [Stretch("begin", "whole_begin", masked)] if live.begins else []
        found.append(Stretch(start, "whole_end", plain, guarded=overlapped))
        if live.ends or (overlapped and plain.least > 1):  # too few whole K-blocks for the overlapped loop
            found.append(Stretch("whole_end" if overlapped else behind, "end", masked))
        return tuple(found)

    @property
    def may_fall_short(self) -> bool:
        """Whether a tile may have fewer whole K-blocks than the overlapped loop takes at least."""
        guarded = [stretch.loop for stretch in self.stretches() if stretch.guarded]
        return any(loop.least > 1 or self.live.none_whole for loop in guarded)

    def older_values(self) -> tuple[str, ...]:
        """The values of the loop that are kept under an older name."""
        return older_values(self.verified, self.k_block_operands(), self.writer())

    @property
    def has_masks(self) -> bool:
        """Whether there are K-blocks in which not every element counts."""
        return bool(self.program.region.bounds)

    def _held_place(self, consumer: str) -> str:
        """Where a consumer's tile that the loop holds lies: among those of this visit."""
        return f"(visit % STATIONARY_SETS) * CONSUMERS + {consumer}" if self.s.persistent else consumer

    @property
    def has_lower(self) -> bool:
        """Whether a tile's K-blocks may begin after the first."""
        return any(bound.stream > 0 for bound in self.program.region.bounds)

    def stationary_loads(self) -> tuple[Instruction, ...]:
        """The copies of the tiles that the loop holds, into buffers that the consumers have handed back."""
        (box,) = self.stationary_operands()
        full = "stationary_full.index(visit % STATIONARY_SETS)"
        found: list[Instruction] = []
        if self.s.persistent:
            found.append(WaitEmpty("stationary", "visit", "STATIONARY_SETS"))
        found.append(Expect(full, "STATIONARY_BYTES"))
        for consumer in range(self.s.consumers):
            row = "row" + (f" + {consumer} * CONSUMER_ROWS" if consumer else "")
            found.append(
                TmaLoad(
                    box.descriptor,
                    coordinates(box.view, self._at(row)),
                    full,
                    f"{box.name}_held.index({self._held_place(str(consumer))})",
                )
            )
        return tuple(found)

    @property
    def piece_column(self) -> str:
        """The first column of the piece numbered `piece`: a block has all columns."""
        return "piece * PIECE_COLUMNS"

    def place(self, row: str, column: str) -> dict[Role, str]:
        """Where a tile of the epilogue lies, by axis of the graph."""
        return self._at(row) | {Role.COLUMN: column}

    def _at(self, row: str) -> dict[Role, str]:
        return {
            Role.BATCH: "batch",
            Role.GROUP: "group",
            Role.ROW: row,
            Role.COLUMN: "0",
            Role.INNER: "0",
            Role.STREAM: "k_block * TILE_DEPTH",
        }

    def k_block_copies(self) -> tuple[tuple[RingBuffer, tuple[TmaLoad, ...]], ...]:
        """The copies of one K-block into each ring, in the loader's order."""
        region = self.program.region
        rings = {region.operand_name(ring.box.view): ring for ring in self.rings()}
        found = []
        for placed in self.verified.schedule.of(f"{PartitionRole.LOADER}0"):
            ring = rings[self.program.named(placed.op).id.subject]
            found.append((ring, tuple(self._k_block_copy(ring, box) for box in range(ring.per_slot))))
        return tuple(found)

    def _k_block_copy(self, ring: RingBuffer, number: int) -> TmaLoad:
        """The copy of one box of a slot: that of the consumer of this number, where each has its own."""
        slot = f"step % {self.depth_name(ring)}"
        place = self._at("row" + (f" + {number} * CONSUMER_ROWS" if number else ""))
        box = slot if ring.per_slot == 1 else f"({slot}) * CONSUMERS" + (f" + {number}" if number else "")
        return TmaLoad(
            ring.box.descriptor,
            coordinates(ring.box.view, place),
            f"{ring.name}_full.index({slot})",
            f"{ring.name}.index({box})",
        )

    def range_lines(self) -> tuple[str, ...]:
        """How each bound narrows the K-blocks of a tile, and those among them in which all elements count."""
        lines: list[str] = []
        for bound in self.program.region.bounds:
            lines += self._bound_lines(bound)
        return tuple(lines)

    def _bound_lines(self, bound: Bound) -> list[str]:
        if not splits(bound):
            return ["whole_end = 0"]
        row, last, depth = Name("row"), Name("last_row"), Name("TILE_DEPTH")
        constant = Name("stream_extent") + -1 if is_end(bound, self.program.region) else bound.constant
        narrowing = [(bound.row, bound.stream, constant)]
        begin, end = k_blocks_between(
            narrowing, row, last, Name("begin"), Name("end"), depth, minimum, maximum
        )
        nearest = bound.row * (row if bound.row >= 0 else last) + constant
        if bound.stream < 0:
            whole = minimum(Name("whole_end"), maximum(nearest + 1, 0) // depth)
            return [f"end = {text(end, GLUON)}", f"whole_end = {text(whole, GLUON)}"]
        whole = maximum(Name("whole_begin"), (maximum(-nearest, 0) + depth + -1) // depth)
        return [f"begin = {text(begin, GLUON)}", f"whole_begin = {text(whole, GLUON)}"]

    def extent_names(self) -> dict[Role, str]:
        """What the launcher calls the extents of the region's axes."""
        return {
            Role.ROW: "row_extent",
            Role.COLUMN: "column_extent",
            Role.STREAM: "stream_extent",
            Role.INNER: "inner_extent",
            Role.BATCH: "batches",
            Role.GROUP: "groups",
        }

    def moved(self) -> tuple[Box, ...]:
        """The tensors that TMA brings for the loop: those that are held, then the streamed ones."""
        return (*self.stationary_operands(), *(ring.box for ring in self.rings()))

    def walk(self) -> tuple[str, ...]:
        """The kernel's argument that says which tiles a block takes."""
        return ("order_ptr",) if self.s.persistent else ()

    def sizes(self) -> tuple[str, ...]:
        """The kernel's arguments that are extents."""
        return (
            *(["groups"] if self.has_group else []),
            "row_tiles",
            "row_extent",
            "column_extent",
            "stream_extent",
        )
