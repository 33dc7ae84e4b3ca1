"""What the template of kernels that stream rows needs: boxes of whole rows, a ring of them, one tile's program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from wsopt.emit.epilogue import PieceWriter
from wsopt.emit.expressions import Operand
from wsopt.emit.instructions import (
    Assign,
    Instruction,
    Release,
    Stage,
    StoreWait,
    TmaLoad,
    TmaStore,
    WaitFull,
)
from wsopt.emit.names import Names
from wsopt.emit.plan import KernelPlan, RingBuffer
from wsopt.emit.staging import Pool
from wsopt.emit.tensors import GLUON, Box, coordinates
from wsopt.frontend.types import Output, Role, Source, View
from wsopt.graph.types import DType
from wsopt.program.row_layout import RowLayout, row_layout


@dataclass(slots=True)
class RowWriter(PieceWriter):
    """Writes one consumer's tile of rows. `outputs` are the boxes of what it stores, `tiles` the expressions of its
    tensors in the ring, by source.
    """

    outputs: dict[str, Box] = field(default_factory=dict)
    tiles: dict[str, str] = field(default_factory=dict)

    def reads(self) -> Iterator[Instruction]:
        """The tiles from their slot into registers; then the slot is free."""
        yield WaitFull("ring", "step", "RING_DEPTH")
        for source in self.verified.program.region.row_sources:
            yield self._read(source, self.tiles[source.name])
        yield Release("ring", "step", "RING_DEPTH")

    def _read(self, source: Source, tile: str) -> Instruction:
        dtype = DType.F32 if source.view.dtype.is_float else source.view.dtype
        convert = "" if source.view.dtype is dtype else f".to({GLUON[dtype]})"
        name = self.names(source.name, f"{source.view.tensor}_tile")
        self.operands[source.name] = Operand(name, source.spans, dtype)
        return Assign(name, f"{tile}.load(PIECE_LAYOUT){convert}")

    def _inside(self, source: Source) -> str:
        """As in an epilogue; the length of a row is a constant, which leaves wide loads wide."""
        region, s = self.verified.program.region, self.verified.program.structure
        if Role.ROW in source.spans:
            return "rows < row_extent"
        ragged = region.extent(Role.COLUMN) != s.columns
        return "columns < ROW_LENGTH" if ragged and Role.COLUMN in source.spans else ""

    def store(self, output: Output) -> Iterator[Instruction]:
        """One output: wait until its buffer was read, stage the tile, start the copy."""
        box, dtype = self.outputs[output.name], output.view.dtype
        region, staging = self.verified.program.region, self.verified.schedule.staging
        slot = "0" if staging == 1 else f"step % {staging}"
        buffer = f"{box.name}_staging.index({slot})"
        operand = self.operands[output.value]
        value = operand.name if operand.dtype is dtype else f"{operand.name}.to({GLUON[dtype]})"
        yield StoreWait(str(len(region.outputs) * staging - 1))
        yield Stage(matrix(buffer, box), value)
        yield TmaStore(box.descriptor, row_coordinates(box, "row"), buffer)


@dataclass(slots=True)
class RowsPlan(KernelPlan):
    """One kernel that streams rows, ready to be written."""

    @property
    def layout(self) -> RowLayout:
        """How a tile lies in a consumer's registers."""
        s = self.s
        return row_layout(self.program.region, s.rows, s.columns, s.consumer_warps, self.verified.machine)

    def _row_box(self, kind: str, wish: str, view: View) -> Box:
        """The box of a consumer's rows. Where it can be one copy, its rows are folded into parts."""
        name = self.names(f"{kind}:{wish}", wish)
        outer = tuple(1 if role is Role.BATCH else self.s.rows for role in view.roles[:-1])
        most = self.verified.machine.tma_box_extent_max
        fold = most if self.s.columns > most and view.extents[-1] % most == 0 else 0
        inner = (self.s.columns // fold, fold) if fold else (self.s.columns,)
        return Box(name, f"{name}_desc", f"{name}_LAYOUT", view, (*outer, *inner), 0, fold)

    def rings(self) -> tuple[RingBuffer, ...]:
        """The tensors' rings; a slot has a box for each consumer."""
        region = self.program.region
        boxes = [self._row_box("streamed", region.operand_name(view), view) for view in region.operands]
        return tuple(RingBuffer(f"{box.name}_ring", box, self.s.consumers) for box in boxes)

    def outputs(self) -> dict[str, Box]:
        """Output tensors, by name."""
        return {o.name: self._row_box("written", o.name, o.view) for o in self.program.region.outputs}

    def staging(self) -> tuple[Pool, ...]:
        """The staging buffers of one consumer: each output has its own."""
        count = self.verified.schedule.staging
        return tuple(Pool(f"{box.name}_staging", box, count) for box in self.outputs().values())

    def slot_loads(self) -> tuple[Instruction, ...]:
        """The copies that fill one slot."""
        found = []
        for ring in self.rings():
            for consumer in range(self.s.consumers):
                row = "row_tile * TILE_ROWS" + (f" + {consumer} * CONSUMER_ROWS" if consumer else "")
                slot = "slot" if self.s.consumers == 1 else f"slot * {self.s.consumers}"
                slot += f" + {consumer}" if consumer else ""
                found.append(
                    TmaLoad(
                        ring.box.descriptor,
                        row_coordinates(ring.box, row),
                        "ring_full.index(slot)",
                        f"{ring.name}.index({slot})",
                    )
                )
        return tuple(found)

    def _writer(self) -> RowWriter:
        tiles = {}
        place = "step % RING_DEPTH"
        if self.s.consumers > 1:
            place = f"({place}) * {self.s.consumers} + index"
        rings = {ring.box.view: ring for ring in self.rings()}
        for source in self.program.region.row_sources:
            ring = rings[source.view]
            tiles[source.name] = matrix(f"{ring.name}.index({place})", ring.box)
        scope = Names(taken={"columns", "rows", "row"})
        return RowWriter(self.verified, scope, self.vectors(), {}, {}, outputs=self.outputs(), tiles=tiles)

    def piece(self) -> tuple[Instruction, ...]:
        """What a consumer does with one tile."""
        writer, region = self._writer(), self.program.region
        found = [*writer.reads(), *writer.sources()]
        found.extend(writer.statement(statement) for statement in region.statements)
        for output in region.outputs:
            found.extend(writer.store(output))
        return tuple(found)

    def sizes(self) -> tuple[str, ...]:
        """The kernel's arguments that are extents."""
        return (*self.counts(), "row_extent")

    def counts(self) -> tuple[str, ...]:
        """The kernel's arguments that say how many tiles there are."""
        return (*(("batches",) if self.has_batch else ()), "row_tiles")


def row_coordinates(box: Box, row: str) -> tuple[str, ...]:
    """Where a box of whole rows lies in its tensor."""
    place = coordinates(box.view, {Role.BATCH: "batch", Role.ROW: row, Role.COLUMN: "0"})
    return (*place, "0") if box.fold else place


def matrix(buffer: str, box: Box) -> str:
    """The expression for a box as a matrix of rows."""
    return buffer if box.rank == 2 else f"{buffer}.reshape((CONSUMER_ROWS, TILE_COLUMNS))"
