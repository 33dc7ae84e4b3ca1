"""Everything that the kernel's template needs, as finished text and instructions: the emitter's output data.

The template writes and computes nothing: every name, number, coordinate and phase stands here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wsopt.emit.addresses import RowArgument, VectorArgument, stride_arguments
from wsopt.emit.beside import BesideWriter
from wsopt.emit.epilogue import PieceWriter
from wsopt.emit.expressions import Operand
from wsopt.emit.held import HeldVector
from wsopt.emit.instructions import Instruction, Loop, TmaLoad, Zero
from wsopt.emit.names import Names
from wsopt.emit.pipeline import Operands, consumer_loop, k_block_parts
from wsopt.emit.staging import Pool, Staging, staged_outputs, staging_pools
from wsopt.emit.tensors import Box, coordinates, make_box, tile_view
from wsopt.frontend.types import FULL, Role, View
from wsopt.graph.types import DType
from wsopt.lowering.cut import tile_of
from wsopt.perf.epilogue import Refill, refill
from wsopt.perf.stores import tile_stores
from wsopt.program.beside import views_read
from wsopt.program.ids import ValueId, ValueKind
from wsopt.program.program import TileProgram
from wsopt.program.structures import column_role, row_role
from wsopt.program.types import Sharing, Space, Structure
from wsopt.schedule.verified import VerifiedSchedule


@dataclass(frozen=True, slots=True)
class RingBuffer:
    """The shared memory of one streamed tensor's ring: `per_slot` boxes a slot."""

    name: str
    box: Box
    per_slot: int


def _sum(product: str) -> ValueId:
    """The first consumer's sums of a product; the others' have the same names."""
    return ValueId(ValueKind.SUM, product, 0)


@dataclass(slots=True)
class KernelPlan:
    """One kernel, ready to be written."""

    verified: VerifiedSchedule
    names: Names = field(default_factory=lambda: Names(pieces=True))

    @property
    def program(self) -> TileProgram:
        """The tile program that the schedule was checked against."""
        return self.verified.program

    @property
    def s(self) -> Structure:
        """The structure."""
        return self.program.structure

    @property
    def has_batch(self) -> bool:
        """Whether the tiles have a batch axis."""
        return any(role is Role.BATCH for role, _ in self.program.region.extents)

    @property
    def in_turns(self) -> bool:
        """Whether the consumers work in ping-pong."""
        return self.s.sharing is Sharing.TURNS

    @property
    def depth(self) -> int:
        """Slots of the ring."""
        return self.verified.schedule.depth("ring")

    def _extents(self, columns: int) -> dict[Role, int]:
        s = self.s
        return {row_role(s.swap): s.rows, column_role(s.swap): columns, Role.STREAM: s.depth}

    def box(self, kind: str, wish: str, view: View, columns: int) -> Box:
        """The box of a tensor for tiles of this many accumulator columns; one name for each way it is used."""
        name = self.names(f"{kind}:{wish}", wish)
        return make_box(name, f"{name}_LAYOUT", view, self._extents(columns))

    def rings(self) -> tuple[RingBuffer, ...]:
        """The streamed tensors' rings; along the accumulator's rows a box for each consumer."""
        per_slot = self.s.consumers if not self.in_turns else 1
        found = []
        for view in self.program.region.operands:
            box = self.box("streamed", self.program.region.operand_name(view), view, self.s.columns)
            rows = row_role(self.s.swap) in view.roles
            found.append(RingBuffer(f"{box.name}_ring", box, per_slot if rows else 1))
        return tuple(found)

    def inputs(self) -> dict[str, Box]:
        """Full tiles that the epilogue reads, by source."""
        return {
            source.name: self.box(
                f"read:{source.name}", source.view.tensor, source.view, self.s.piece_columns
            )
            for source in self.program.region.full_sources
        }

    def outputs(self) -> dict[str, Box]:
        """Output tensors, by name."""
        outputs = self.program.region.tile_outputs
        return {o.name: self.box("written", o.name, o.view, self.s.piece_columns) for o in outputs}

    def staged(self) -> Staging:
        """The buffers that tiles are staged in, and what a store waits for."""
        buffers, outputs = self.verified.schedule.buffers, self.outputs()
        plan = tile_stores(self.program, buffers)
        pools = staging_pools(self.program, buffers, outputs)
        staged = staged_outputs(plan.stores, outputs, by_store_warp=buffers.store_warp)
        barriers = ("staged", "freed") if buffers.store_warp else ()
        return Staging(plan, staged, self.inputs(), pools, barriers)

    def pools(self) -> tuple[Pool, ...]:
        """A consumer's staging buffers, by kind of output."""
        return tuple(self.staged().pools.values())

    def vectors(self) -> dict[str, VectorArgument]:
        """Sources that are rows, columns or scalars, by source, with their stride arguments."""
        found = {}
        for source in self.program.region.sources:
            if source.spans == FULL or source in self.program.region.streamed_sources:
                continue
            name = self.names(f"read:{source.name}", source.view.tensor)
            found[source.name] = VectorArgument(source, f"{name}_ptr", stride_arguments(source.view, name))
        return found

    def row_outputs(self) -> tuple[RowArgument, ...]:
        """Outputs of one value a row, with their stride arguments."""
        found = []
        for output in self.program.region.row_outputs:
            name = self.names(f"written:{output.name}", output.name)
            found.append(RowArgument(output, f"{name}_ptr", stride_arguments(output.view, name)))
        return tuple(found)

    def registers(self) -> dict[ValueId, str]:
        """Names of the tiles that live in a consumer's registers, by value."""
        found = {}
        for value in self.program.values:
            if value.space is Space.REGISTERS and value.consumer == 0:
                contraction, copy = value.id.subject, value.id.k_block
                partial = f"{contraction}_partial{f'_{copy}' if copy else ''}"
                wish = partial if value.id.kind is ValueKind.PARTIAL else contraction
                found[value.id] = self.names(str(value.id), wish)
        return found

    def operands(self) -> Operands:
        """Expressions of the streamed loop for the consumer numbered `index`."""
        tiles, tails, cuts = {}, {}, {}
        rows = row_role(self.s.swap)
        for ring in self.rings():
            along_rows = rows in ring.box.view.roles
            place = "{slot}" if ring.per_slot == 1 else f"({{slot}}) * {ring.per_slot} + index"
            text = tile_view(f"{ring.name}.index({place})", ring.box, rows if along_rows else Role.STREAM)
            for copy in range(self.s.copies):
                tile = tile_of(self.program.region, ring.box.view, 0 if along_rows else None, copy)
                streamed = int(along_rows)
                tiles[tile] = text
                cuts[tile] = f"{text}.slice({{first}}, {{length}}, dim={streamed})"
                if self.s.tail:
                    tails[tile] = f"{text}.slice(0, TAIL, dim={streamed})"

        def beside(slot: str, copy: int) -> tuple[Instruction, ...]:
            views = views_read(self.program.region)
            read = {view: tiles[tile_of(self.program.region, view, 0, copy)] for view in views}
            return self.beside().k_block({view: tile.format(slot=slot) for view, tile in read.items()})

        least = self.verified.machine.mma_k_bytes * 8 // self.program.region.operand_dtype.bits
        parts = k_block_parts(self.s.depth, least)
        return Operands(tiles, tails, cuts, parts, self.registers(), "ring", "RING_DEPTH", beside)

    def beside(self) -> BesideWriter:
        """The writer of what is computed beside the products."""
        return BesideWriter(self.program.region, self.s, self.names)

    def rows(self) -> dict[str, str]:
        """Names of the rows' reductions that the loop leaves to the epilogue, by item."""
        return self.beside().carried()

    def loop(self) -> Loop:
        """A consumer's streamed loop."""
        return consumer_loop(self.verified, self.operands())

    def cleared(self) -> tuple[Instruction, ...]:
        """Sums that partial sums are added to start from zero, and reductions of rows from nothing."""
        promoted = [c.name for c in self.program.region.contractions if c.promote]
        zeros = tuple(Zero(self.registers()[_sum(name)]) for name in promoted)
        return (*zeros, *self.beside().starts())

    def place(self, row: str, column: str) -> dict[Role, str]:
        """Where a tile lies, by axis of the graph."""
        s = self.s
        return {
            row_role(s.swap): row,
            column_role(s.swap): column,
            Role.STREAM: "k * TILE_DEPTH",
            Role.BATCH: "batch",
        }

    @property
    def refill(self) -> Refill:
        """When a tile's inputs are copied."""
        verified = self.verified
        return refill(self.program, verified.machine, verified.schedule.buffers)

    def vector_places(self) -> dict[Role, str]:
        """The places of what is loaded by address for a whole tile."""
        return self.place("rows", "columns") | {Role.GROUP: "group"}

    def slot_loads(self) -> tuple[Instruction, ...]:
        """The copies that fill one slot."""
        found = []
        for ring in self.rings():
            for consumer in range(ring.per_slot):
                row = "row_tile * TILE_ROWS" + (f" + {consumer} * CONSUMER_ROWS" if consumer else "")
                offset = (
                    f" * {ring.per_slot}" + (f" + {consumer}" if consumer else "")
                    if ring.per_slot > 1
                    else ""
                )
                place = self.place(row, "column_tile * TILE_COLUMNS")
                found.append(
                    TmaLoad(
                        ring.box.descriptor,
                        coordinates(ring.box.view, place),
                        "ring_full.index(slot)",
                        f"{ring.name}.index(slot{offset})",
                    )
                )
        return tuple(found)

    def slot_bytes(self) -> int:
        """Bytes that arrive at a slot's barrier."""
        return sum(ring.box.nbytes * ring.per_slot for ring in self.rings())

    @property
    def piece_column(self) -> str:
        """The first column of the piece numbered `piece`."""
        return "column + piece * PIECE_COLUMNS"

    def input_loads(self) -> tuple[tuple[Box, TmaLoad], ...]:
        """The copies of the epilogue's full tiles, for the piece numbered `piece`."""
        place = self.place("row", self.piece_column)
        return tuple(
            (
                box,
                TmaLoad(
                    box.descriptor,
                    coordinates(box.view, place),
                    f"{box.name}_full.index(piece)",
                    f"{box.name}_input.index(piece)",
                ),
            )
            for box in self.inputs().values()
        )

    def piece(self) -> tuple[Instruction, ...]:
        """The epilogue of one piece."""
        known = self.epilogue_values()
        scope = Names(taken={operand.name for operand in known.values()})
        writer = PieceWriter(
            self.verified,
            scope,
            self.epilogue_vectors(),
            self.inputs(),
            self.staged().outputs,
            self.held(),
        )
        writer.operands.update(known)
        found = list(writer.sources())
        found.extend(writer.statement(statement) for statement in writer.needed())
        found.extend(writer.store_row(argument) for argument in self.row_outputs())
        for output in self.program.region.tile_outputs:
            found.extend(writer.store(output))
        return tuple(found)

    def epilogue_values(self) -> dict[str, Operand]:
        """The loop's results that the epilogue reads, by name."""
        names = {c.name: self.registers()[_sum(c.name)] for c in self.program.region.contractions}
        rows = {item: Operand(name, frozenset({Role.ROW}), DType.F32) for item, name in self.rows().items()}
        return {value: Operand(name, FULL, DType.F32) for value, name in names.items()} | rows

    def epilogue_vectors(self) -> dict[str, VectorArgument]:
        """The rows, columns and scalars that the epilogue loads by itself."""
        return {}

    def held(self) -> dict[str, HeldVector]:
        """Those that a consumer has loaded for it."""
        return {name: HeldVector(vector, self.s) for name, vector in self.vectors().items()}

    def sums(self) -> tuple[str, ...]:
        """The accumulators that the epilogue reads, in the order of its arguments."""
        return tuple(self.registers()[_sum(c.name)] for c in self.program.region.contractions)

    def all_registers(self) -> tuple[str, ...]:
        """Every tile in registers that the loop carries."""
        return tuple(self.registers().values())

    def extent_names(self) -> dict[Role, str]:
        """What the launcher calls the extents of the region's axes."""
        s = self.s
        return {
            row_role(s.swap): "row_extent",
            column_role(s.swap): "column_extent",
            Role.STREAM: "stream_extent",
            Role.BATCH: "batches",
        }

    def moved(self) -> tuple[Box, ...]:
        """The tensors that TMA brings for the loop."""
        return tuple(ring.box for ring in self.rings())

    def sizes(self) -> tuple[str, ...]:
        """The kernel's arguments that are extents, and what follows from them."""
        counted = ("stream_extent",) if self.program.region.counts_stream else ()
        return (*self.counts(), "row_extent", "column_extent", *counted)

    def counts(self) -> tuple[str, ...]:
        """Those that say how many tiles there are, and K-blocks in each."""
        batches = ("batches",) if self.has_batch else ()
        return (*batches, "row_tiles", "column_tiles", "k_iterations")
