"""The epilogue of one piece of a tile: read what it needs, compute, stage, store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from wsopt.emit.addresses import RowArgument, VectorArgument
from wsopt.emit.choices import Comparison, choice, comparisons
from wsopt.emit.expressions import Operand, broadcast, chosen_in_f32, expression, in_f32, number
from wsopt.emit.held import HeldVector
from wsopt.emit.instructions import (
    Assign,
    Instruction,
    Refill,
    RowStore,
    Signal,
    Stage,
    StoreWait,
    TmaStore,
    WaitFreed,
    WaitPhase,
)
from wsopt.emit.names import Names
from wsopt.emit.roundings import rounding
from wsopt.emit.staging import StagedOutput
from wsopt.emit.tensors import GLUON, Box, coordinates, tile_view, zero
from wsopt.frontend.types import FULL, Output, Reduction, Role, Scalar, Source, Statement
from wsopt.graph.types import DType
from wsopt.program.types import column_role, row_role
from wsopt.schedule.verified import VerifiedSchedule


@dataclass(slots=True)
class PieceWriter:
    """Writes one piece. `places` gives graph axes as expressions of the piece's origin."""

    verified: VerifiedSchedule
    names: Names
    vectors: dict[str, VectorArgument]
    inputs: dict[str, Box]
    staged: dict[str, StagedOutput]
    held: dict[str, HeldVector] = field(default_factory=dict)
    operands: dict[str, Operand] = field(default_factory=dict)

    def _places(self, rows: str, columns: str) -> dict[Role, str]:
        s = self.verified.program.structure
        return {
            row_role(s.swap): rows,
            column_role(s.swap): columns,
            Role.BATCH: "batch",
            Role.GROUP: "group",
        }

    def _vector(self, argument: VectorArgument) -> Iterator[Instruction]:
        """A row, column or scalar source, loaded by address and masked at the tensor's end."""
        source = argument.source
        name = self.names(source.name, f"{source.view.tensor}_tile")
        inside = self._inside(source)
        mask = f", mask={inside}, other={zero(source.view.dtype)}" if inside else ""
        text = f"gl.load({argument.at(self._places('rows', 'columns'))}{mask})"
        dtype = DType.F32 if source.view.dtype.is_float else source.view.dtype
        if source.view.dtype is not dtype:
            text += f".to({GLUON[dtype]})"
        self.operands[source.name] = Operand(name, source.spans, dtype)
        yield Assign(name, text)

    def _held(self, held: HeldVector) -> Iterator[Instruction]:
        """A source that the consumer has loaded before: in registers, or in shared memory by columns."""
        source, value = held.vector.source, held.value
        dtype = DType.F32 if source.view.dtype.is_float else source.view.dtype
        if source.view.dtype is not dtype:
            value += f".to({GLUON[dtype]})"
        name = held.name
        if value != name:
            name = self.names(source.name, f"{source.view.tensor}_tile")
            yield Assign(name, value)
        self.operands[source.name] = Operand(name, source.spans, dtype)

    def _inside(self, source: Source) -> str:
        """The condition that a row's or column's element is there; empty for a scalar."""
        s = self.verified.program.structure
        if row_role(s.swap) in source.spans:
            return "rows < row_extent"
        return "columns < column_extent" if column_role(s.swap) in source.spans else ""

    def _full_input(self, source: Source, box: Box) -> Iterator[Instruction]:
        """A full tile in shared memory: its copy was started before the loop, or by an earlier piece."""
        s, buffers = self.verified.program.structure, self.verified.schedule.buffers
        name = self.names(source.name, f"{source.view.tensor}_tile")
        uses = s.pieces // buffers.inputs
        place = "piece % INPUT_BUFFERS" if uses > 1 else "piece"
        phase = f"(visit * {uses} + piece // INPUT_BUFFERS) & 1" if uses > 1 else "visit & 1"
        barrier, buffer = f"{box.name}_full.index({place})", f"{box.name}_input.index({place})"
        yield WaitPhase(barrier, phase)
        dtype = DType.F32 if source.view.dtype.is_float else source.view.dtype
        convert = "" if source.view.dtype is dtype else f".to({GLUON[dtype]})"
        self.operands[source.name] = Operand(name, source.spans, dtype)
        yield Assign(name, f"{tile_view(buffer, box, row_role(s.swap))}.load(PIECE_LAYOUT){convert}")
        if uses > 1:
            later = self._places("row", "column + INPUT_BUFFERS * PIECE_COLUMNS")
            yield Refill(barrier, box.nbytes, box.descriptor, coordinates(box.view, later), buffer)

    def sources(self) -> Iterator[Instruction]:
        """Every source of the epilogue; vectors first, so that their latency is behind other work."""
        for source in self.verified.program.region.sources:
            if source.name in self.vectors:
                yield from self._vector(self.vectors[source.name])
        for held in self.held.values():
            yield from self._held(held)
        for source in self.verified.program.region.sources:
            if source.name in self.inputs:
                yield from self._full_input(source, self.inputs[source.name])

    def statement(self, statement: Statement | Reduction) -> Instruction:
        """One scalar operation on tiles, or a reduction of their rows."""
        if isinstance(statement, Reduction):
            return self._reduction(statement)
        s, compared = self.verified.program.structure, self._compared(statement)
        if compared:
            text = self._choice(statement, compared)
        else:
            operands = [self.operands[a] if isinstance(a, str) else a for a in statement.args]
            text = self._rounding(statement, operands) or expression(statement, operands, s)
        node, _, number = statement.name.partition("$")
        name = self.names(statement.name, node if self._is_last(statement) else f"{node}_{number}")
        self.operands[statement.name] = Operand(name, statement.spans, statement.dtype)
        return Assign(name, text)

    def _rounding(self, item: Statement, operands: list[Operand | Scalar]) -> str | None:
        region = self.verified.program.region
        return rounding(item, operands, region.statements) if region.contractions else None

    def _compared(self, item: Statement | Reduction) -> tuple[Comparison, ...]:
        """The comparisons by which a product's elements are chosen, where they are of whole numbers."""
        region = self.verified.program.region
        if not region.contractions:
            return ()
        known = {one.name: one for one in region.statements}
        types = {one.name: one.dtype for one in region.statements if isinstance(one, Statement)}
        types |= {name: operand.dtype for name, operand in self.operands.items()}
        return comparisons(item, known.get, lambda name: types.get(name) is DType.I32, FULL)

    def _choice(self, item: Statement, compared: tuple[Comparison, ...]) -> str:
        s = self.verified.program.structure

        def written(term: str | Scalar) -> str:
            return broadcast(self.operands[term], FULL, s) if isinstance(term, str) else number(term)

        values = (self.operands[t] if isinstance(t, str) else t for t in item.args[1:])
        chosen, other = (chosen_in_f32(value, FULL, s) for value in values)
        return choice(compared, chosen, other, written, ("", ""))

    def needed(self) -> tuple[Statement | Reduction, ...]:
        """The statements that an output needs, those left out whose comparison is a part of a choice."""
        region, found = self.verified.program.region, list[Statement | Reduction]()
        wanted = {output.value for output in region.outputs}
        for item in reversed(region.statements):
            if item.name not in wanted:
                continue
            found.append(item)
            compared = self._compared(item)
            terms = item.args[1 if compared else 0 :] if isinstance(item, Statement) else (item.value,)
            sides = [side for one in compared for side in (one.left, one.right)]
            wanted |= {term for term in (*terms, *sides) if isinstance(term, str)}
        return tuple(reversed(found))

    def _reduction(self, item: Reduction) -> Instruction:
        """One value a row, of all columns of the tile."""
        node, _, number = item.name.partition("$")
        name = self.names(item.name, f"{node}_{number}")
        self.operands[item.name] = Operand(name, frozenset({Role.ROW}), DType.F32)
        return Assign(name, f"gl.{item.kind}({in_f32(self.operands[item.value])}, axis=1)")

    def _is_last(self, statement: Statement) -> bool:
        node = statement.name.partition("$")[0]
        of_node = [x for x in self.verified.program.region.statements if x.name.partition("$")[0] == node]
        return of_node[-1] is statement

    def store(self, output: Output) -> Iterator[Instruction]:
        """One output: wait for its buffer, stage the tile in the output's order, have it copied."""
        s = self.verified.program.structure
        staged = self.staged[output.name]
        dtype = output.view.dtype
        operand = self.operands[output.value]
        value = operand.name if operand.dtype is dtype else f"{operand.name}.to({GLUON[dtype]})"
        if staged.pending and staged.by_store_warp:
            yield WaitFreed(staged.number, staged.awaited, staged.pending, staged.optional)
        elif staged.pending:
            yield StoreWait(staged.pending, staged.optional)
        yield Stage(tile_view(staged.buffer, staged.box, row_role(s.swap)), value)
        if staged.by_store_warp:
            yield Signal(f"staged.index({staged.number})")
            return
        place = coordinates(staged.box.view, self._places("row", "column"))
        yield TmaStore(staged.box.descriptor, place, staged.buffer)

    def store_row(self, argument: RowArgument) -> Instruction:
        """An output of one value a row, which the first piece stores by address."""
        operand = self.operands[argument.output.value]
        dtype = argument.output.view.dtype
        value = operand.name if operand.dtype is dtype else f"{operand.name}.to({GLUON[dtype]})"
        first = self.verified.program.structure.pieces == 1
        return RowStore(argument.at(self._places("rows", "columns")), value, "rows < row_extent", first)
