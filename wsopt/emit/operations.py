"""Operands, results and text of the operations of a consumer's loop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wsopt.emit.addresses import ByAddress
from wsopt.emit.arithmetic import Age, Arithmetic
from wsopt.emit.expressions import Operand
from wsopt.emit.instructions import Added, Assign, Instruction
from wsopt.emit.plan import KernelPlan, Ring
from wsopt.emit.stores import stores
from wsopt.emit.tensors import GLUON, Box, tile_view, zero
from wsopt.emit.text import environment, of_slot
from wsopt.graph.types import DType
from wsopt.lowering.cut import KINDS
from wsopt.program.facts import Member
from wsopt.program.ids import OpKind, ValueId, ValueKind
from wsopt.program.program import TileOp
from wsopt.program.types import row_role
from wsopt.tensors.views import Role, Source, View


def k_block_parts(depth: int, least: int) -> tuple[tuple[int, int], ...]:
    """The parts of a K-block of `depth` elements, by first element and length: one instruction's `least`, and the
    rest in powers of two.
    """
    found, first = [(0, least)], least
    while first < depth:
        found.append((first, first))
        first *= 2
    return tuple(found)


def sources(plan: KernelPlan) -> dict[str, Operand]:
    """The tensors that the loop's values read, as a consumer knows them in registers."""
    found: dict[str, Operand] = {}
    for source in (*plan.program.after.vectors, *plan.program.streamed):
        if source.name in plan.loop_reads():
            name = plan.names(f"loop:{source.view.tensor}:{source.view.roles}", f"{source.view.tensor}_value")
            found[source.name] = Operand(name, source.spans, computed_in(source.view))
    return found


def computed_in(view: View) -> DType:
    """The type in which a tensor's elements are computed with."""
    return DType.F32 if view.dtype.is_float else view.dtype


def widened(view: View) -> str:
    """The conversion of a tensor's elements to that type, as text behind them."""
    wanted = computed_in(view)
    return "" if view.dtype is wanted else f".to({GLUON[wanted]})"


def load_text(vector: ByAddress[Source], index: dict[Role, str], inside: str) -> str:
    """The load of a vector or scalar by address, in the type that is computed with; masked where not `inside`."""
    view = vector.of.view
    mask = f", mask={inside}, other={zero(view.dtype)}" if inside else ""
    return f"gl.load({vector.at(index)}{mask}){widened(view)}"


@dataclass(slots=True)
class Operations:
    """The operations of one consumer's loop, whose arithmetic `writer` writes; `index` is the consumer's number."""

    plan: KernelPlan
    writer: Arithmetic
    index: str = "index"

    # --- tiles ------------------------------------------------------------------------------------------

    def _place(self, tile: ValueId) -> tuple[Ring, Member, Box]:
        """The ring that a tile comes through, as which of its members, in which box."""
        for ring in self.plan.rings():
            for member, (box, _) in zip(ring.plan.members, ring.boxes, strict=True):
                if member.name == tile.subject:
                    return ring, member, box
        raise KeyError(tile)

    def ring(self, tile: ValueId) -> Ring:
        """The ring that a tile comes through."""
        return self._place(tile)[0]

    def ring_handed_back(self, op: TileOp) -> Ring:
        """The ring whose slot an operation hands back."""
        return next(ring for ring in self.plan.rings() if op.id in ring.plan.releases)

    def _slot(self, tile: ValueId, step: str) -> str:
        """The expression of a streamed tile as a matrix in its slot: rows, or what its product contracts, first."""
        ring, member, box = self._place(tile)
        roles = member.view.roles
        contracted = Role.INNER if Role.INNER in roles else Role.STREAM
        place = of_slot(f"{step} % {ring.depth}", member.copies, self.index)
        first = row_role(self.plan.s.swap) if member.by_rows else contracted
        return tile_view(f"{box.name}_ring.index({place})", box, first)

    def _part(self, tile: ValueId, step: str, first: int, length: int) -> str:
        """A tile in its slot: `length` elements along the streamed axis from the `first`; all if it is 0."""
        text = self._slot(tile, step)
        if not length:
            return text
        streamed = int(self._place(tile)[1].by_rows)
        given = "TAIL" if length == self.plan.s.tail else length
        return f"{text}.slice({first}, {given}, dim={streamed})"

    def operands(self, op: TileOp, step: str, age: Age, first: int, length: int) -> tuple[str, str]:
        """The two sides of a product, or of a part of it."""
        left, right = op.inputs
        return self._left(left, step, age, first, length), self._part(right, step, first, length)

    def _left(self, left: ValueId, step: str, age: Age, first: int, length: int) -> str:
        if left.kind is ValueKind.TILE:
            return self._part(left, step, first, length)
        if left.kind is ValueKind.VALUE:
            return self.writer.fed_name(left.subject, age(left.subject))
        (box,) = self.plan.stationary_operands()
        place = self.plan.stationary_place("index")
        return tile_view(f"{box.name}_held.index({place})", box, row_role(self.plan.s.swap))

    # --- products ---------------------------------------------------------------------------------------

    @property
    def parts(self) -> tuple[tuple[int, int], ...]:
        """The parts in which a product may be begun and ended."""
        least = self.plan.verified.machine.mma_k_bytes * 8 // self.plan.program.whole.dtype.bits
        return k_block_parts(self.plan.s.depth, least)

    @property
    def cleared(self) -> bool:
        """Whether sums are cleared before a tile: where a tile may have no K-block, or they are rescaled first."""
        return self.plan.ranged

    def instructions(self, op: TileOp, length: int) -> int:
        """Tensor instructions of a product of so many elements of the contracted axis, 0 for all, a warpgroup."""
        return op.instructions * length // self.plan.s.depth if length else op.instructions

    def register(self, value: ValueId, age: int) -> str:
        """The identifier of a product's result."""
        if value.kind is ValueKind.PARTIAL:
            number = f"_{value.k_block}" if value.k_block else ""
            return self.plan.value(f"{value.subject}_partial{number}")
        return self.plan.value(value.subject, 0 if value.kind is ValueKind.SUM else age)

    # --- values -----------------------------------------------------------------------------------------

    def makes(self, op: TileOp) -> tuple[str, ...]:
        """The loop's values that an operation makes anew, by name."""
        if op.kind is OpKind.ELEMENTWISE:
            return op.makes
        anew = op.kind is OpKind.MMA and op.output is not None and op.output.kind is not ValueKind.SUM
        return (op.output.subject,) if anew and op.output is not None else ()

    def reads(self, op: TileOp) -> set[str]:
        """The loop's values that an operation reads from others."""
        values = {value.subject for value in op.inputs if value.kind is ValueKind.VALUE}
        return values | {name for item in op.items for name in item.reads if name not in op.makes}

    def _products(self, op: TileOp) -> Iterator[tuple[TileOp, ValueId]]:
        """The products of an operation's consumer, with their results."""
        for other in self.plan.program.of(OpKind.MMA):
            if other.consumer == op.consumer and other.output is not None:
                yield other, other.output

    def products_read(self, op: TileOp) -> tuple[ValueId, ...]:
        """The products whose results arithmetic reads."""
        read = {name for item in op.items for name in item.reads} & self.writer.results
        return tuple(made for _, made in self._products(op) if made.subject in read)

    def products_fed(self, op: TileOp) -> tuple[ValueId, ...]:
        """The products whose left operand arithmetic makes."""
        return tuple(made for other, made in self._products(op) if self.reads(other) & set(op.makes))

    def left_over(self, op: TileOp) -> tuple[str, ...]:
        """The values that arithmetic leaves to other operations."""
        return self.writer.left_over(op.makes)

    # --- text -------------------------------------------------------------------------------------------

    def rescale(self, op: TileOp, age: Age) -> Instruction:
        """Multiply a product's sums by the factor of each row."""
        (factor,), sums = op.inputs, op.id.subject
        return self.writer.rescale(sums, factor.subject, age)

    def arithmetic(self, op: TileOp, age: Age, step: str, *, masked: bool) -> Iterator[Instruction]:
        """Tiles brought into registers, and what is computed of them."""
        if not op.items:
            yield from self._reads(op, {source.name for source in self.plan.program.streamed}, step)
            return
        yield from self._vectors(op)
        needed = self.writer.needed(masked=masked)
        chosen = [item for item in op.items if item.name in needed]
        if any(map(self.writer.names_places, chosen)):
            index = f"gl.arange(0, TILE_DEPTH, layout=gl.SliceLayout(0, {self.writer.layout}))"
            yield Assign("places", f"(origin + {step}) * TILE_DEPTH + {index}")
        names = {name for item in chosen for name in self.writer.read(item)}
        yield from self._reads(op, names, step)
        yield from self.writer.phase(op.makes, age, masked=masked)

    def _vectors(self, op: TileOp) -> Iterator[Instruction]:
        """Vectors by address, where each tile is an iteration: before the first arithmetic on it."""
        phases = (one for one in self.plan.program.loop if one.items and one.consumer == op.consumer)
        if self.plan.loops_over_tiles and op is next(phases):
            yield from self.vectors()

    def vectors(self) -> Iterator[Instruction]:
        """The loads of the vectors and scalars that the loop's values read."""
        plan, vectors = self.plan, self.plan.vectors()
        for name in sorted(plan.loop_reads() & vectors.keys()):
            spans, inside = vectors[name].of.spans, ""
            if Role.COLUMN in spans and plan.program.whole.extent(Role.COLUMN) != plan.s.columns:
                inside = "columns < ROW_LENGTH"
            inside = "rows < row_extent" if Role.ROW in spans else inside
            load = load_text(vectors[name], plan.place("rows", "columns"), inside)
            yield Assign(self.writer.sources[name].name, load)

    def _reads(self, op: TileOp, names: set[str], step: str) -> Iterator[Instruction]:
        """Streamed tensors' slots brought into registers, each once, in the type that is computed with."""
        tiles, seen = {self._place(tile)[1].view: tile for tile in op.inputs}, set[str]()
        for source in (s for s in self.plan.program.streamed if s.name in names and s.view in tiles):
            operand = self.writer.sources[source.name]
            if operand.name not in seen:
                seen.add(operand.name)
                slot = self._slot(tiles[source.view], step)
                yield Assign(operand.name, f"{slot}.load({self._layout(source)}){widened(source.view)}")

    def _layout(self, source: Source) -> str:
        layout = self.writer.layout
        return layout if source.spans == self.writer.tile else f"gl.SliceLayout(0, {layout})"

    def added(self, op: TileOp, step: str) -> Instruction:
        """An operation of a kind that was added."""
        template = environment().from_string(KINDS[op.id.subject].text)
        return Added(template.render(tiles=[self._slot(tile, step) for tile in op.inputs]))

    def store(self) -> Iterator[Instruction]:
        """The outputs of a tile that the loop computes whole."""
        for output in self.plan.program.after.outputs:
            yield from stores(self.plan, output, self.writer.operand(output.value), "0")
