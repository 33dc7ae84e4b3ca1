"""The operations of a consumer's loop as text: products with their operands, tiles and vectors read, arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from wsopt.emit import ahead, flat, halves, held, kept, next_rows, quantized, row_ends, tensor_tiles, vectors
from wsopt.emit.arithmetic import Arithmetic
from wsopt.emit.called import WIDEN
from wsopt.emit.instructions import Mma
from wsopt.emit.kept import Kept
from wsopt.emit.operands import converted, widens_pairs
from wsopt.emit.plan import KernelPlan
from wsopt.emit.rings import Ring
from wsopt.emit.scope import Age
from wsopt.emit.slots import step_at
from wsopt.emit.sums import accumulator_names
from wsopt.emit.tensors import GLUON, PAIRS_LAYOUT, Box, tile_load, tile_view
from wsopt.emit.text import environment, of_slot
from wsopt.lowering.cut import KINDS
from wsopt.program.facts import Member, Product, Read
from wsopt.program.ids import AGAIN, OpKind, ValueId, ValueKind
from wsopt.program.program import TileOp
from wsopt.program.types import row_role
from wsopt.tensors.parts import Part, parts
from wsopt.tensors.views import Packing, Role, Source, View


@dataclass(frozen=True, slots=True)
class Operations:
    """The operations of one consumer's loop with its `products`, whose arithmetic `writer` writes; `index` is the
    consumer's number, `again` whether it is the second pass over rows, `kept` what that has to do with registers.
    """

    plan: KernelPlan
    writer: Arithmetic
    products: tuple[TileOp, ...]
    index: str = "index"
    again: bool = False
    kept: Kept = Kept.NOTHING

    @property
    def tile_names(self) -> list[str]:
        """The identifiers of the loop's tiles that are brought into registers, each once."""
        known = self.writer.sources
        return list(
            dict.fromkeys(known[one.name].name for one in self.plan.program.streamed if one.name in known)
        )

    # --- tiles ------------------------------------------------------------------------------------------

    def place(self, tile: ValueId) -> tuple[Ring, Member, tuple[Box, ...]]:
        """The ring that a tile comes through, as which of its members, in which boxes."""
        members = ((ring, member, boxes) for ring in self.plan.rings for member, boxes in ring.members)
        return next(found for found in members if found[1].name == tile.subject)

    def slot(self, tile: ValueId, place: int) -> str:
        """The expression of a streamed tile of one part."""
        (matrix,) = self.slots(tile, place)
        return matrix

    def slots(self, tile: ValueId, place: int) -> list[str]:
        """The expressions of a streamed tile's parts as matrices in the slot of the K-block at this place: rows, or
        what its product contracts, first.
        """
        return [tile_view(buffer, box, first) for buffer, box, first in self.buffers(tile, place)]

    def loaded(self, tile: ValueId, place: int, layout: str) -> str:
        """The expression that brings a streamed tile of one part into registers."""
        ((buffer, box, first),) = self.buffers(tile, place)
        return tile_load(buffer, box, first, layout)

    def buffers(self, tile: ValueId, place: int) -> list[tuple[str, Box, Role]]:
        """A streamed tile's parts: the buffer in its slot, its box, and the axis that is first in a matrix of it."""
        ring, member, boxes = self.place(tile)
        contracted = Role.INNER if Role.INNER in member.view.roles else Role.STREAM
        slot = of_slot(ring.counter.slot(place), member.copies, self.index)
        first = row_role(self.plan.s.swap) if member.by_rows else contracted
        return [(f"{box.name}_ring.index({slot})", box, first) for box in boxes]

    def operands(self, op: TileOp, place: int, age: Age, first: int, length: int) -> Iterator[list[str]]:
        """The two sides of a product, each in its parts, or of a stretch of it: `length` elements along the streamed
        axis from the `first`; all if it is 0.
        """
        for operand in op.inputs[:2]:
            if operand.kind is ValueKind.TILE:
                given = "TAIL" if length == self.plan.s.tail else length
                streamed = int(self.place(operand)[1].by_rows)
                part = f".slice({first}, {given}, dim={streamed})" if length else ""
                yield [matrix + part for matrix in self.slots(operand, place)]
            elif operand.kind is ValueKind.VALUE:
                yield [*self.writer.fed_names(operand.subject, age(operand.subject))]
            elif operand.kind is ValueKind.OPERAND:
                yield [tensor_tiles.tile(self.plan, operand, self.index)]
            else:
                stays = self.plan.stationary_place(self.index)
                held = ((f"{box.name}_held.index({stays})", box) for box in self.plan.stationary)
                yield [tile_view(tile, box, row_role(self.plan.s.swap)) for tile, box in held]

    def product(
        self, op: TileOp, place: int, age: Age, use: str, first: int = 0, length: int = 0
    ) -> Iterator[Mma]:
        """A product, or a stretch of it, as tensor instructions take it: part by part of what it contracts, one
        adding to the other, or accumulator by accumulator. The first stretch adds to the sums as `use` says; what
        follows it always adds.
        """
        assert isinstance(op.counts, Product), f"{op.id} is a product"
        assert op.output is not None, f"{op.id} has a result"
        if op.counts.sets > 1:
            yield from self._sets(op, place, age, use)
            return
        targets, (lefts, rights) = self.registers(op.output), self.operands(op, place, age, first, length)
        instructions = op.instructions * (length or self.plan.s.depth) // self.plan.s.depth
        if len(targets) > 1:
            lefts = lefts * (len(targets) // len(lefts))
            for target, left, right in zip(targets, lefts, rights, strict=True):
                yield Mma(target, left, right, "" if first else use, instructions // len(targets))
            return
        contracted = parts(op.counts.deep) if len(rights) > 1 else (Part(0, op.counts.deep),)
        for part, left, right in zip(contracted, lefts, rights, strict=True):
            count = instructions * part.length // op.counts.deep
            yield Mma(targets[0], left, right, "" if first or part.first else use, count)

    def _sets(self, op: TileOp, place: int, age: Age, use: str) -> Iterator[Mma]:
        """A product whose K-block is cut to parts, each with sums of its own, accumulator by accumulator."""
        assert isinstance(op.counts, Product), f"{op.id} is a product"
        assert op.output is not None, f"{op.id} has a result"
        targets, sets = self.registers(op.output), op.counts.sets
        length, each = op.counts.deep // sets, len(targets) // sets
        for number in range(sets):
            lefts, rights = self.operands(op, place, age, number * length, length)
            own = slice(number * each, (number + 1) * each)
            for target, left, right in zip(targets[own], lefts[own], rights, strict=True):
                yield Mma(target, left, right, use, op.instructions // len(targets))

    # --- values -----------------------------------------------------------------------------------------

    def registers(self, value: ValueId, age: int = 0) -> tuple[str, ...]:
        """The identifiers of a product's result: values of a K-block, or its sums, one for each accumulator."""
        if value.kind is ValueKind.PARTIAL:
            number = f"_{value.k_block}" if value.k_block else ""
            sets, name = self.plan.program.value(value).sets, f"{value.subject}_partial{number}"
            name = self.plan.value(name)
            names = (name,) if sets == 1 else (f"{name}_set_{n}" for n in range(sets))
            return tuple(one for own in names for one in accumulator_names(self.plan.s, own))
        if value.kind is ValueKind.SUM:
            return accumulator_names(self.plan.s, self.plan.value(value.subject))
        return (self.plan.value(value.subject, age),)

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

    # --- text -------------------------------------------------------------------------------------------

    def arithmetic(self, op: TileOp, age: Age, place: int, *, masked: bool) -> Iterator[str]:
        """Tiles brought into registers, and what is computed of them."""
        phases = [one for one in self.plan.program.loop if one.items and one.consumer == op.consumer]
        if not op.items:
            yield from self._reads(op, {source.name for source in self.plan.program.streamed}, place)
            if isinstance(op.counts, Read) and not phases:  # tensors that are stored as they are
                yield from self.vectors(self.of_tiles)
            return
        if self.plan.loops_over_tiles:
            yield from self.vectors(self._loaded_before(op, phases))
        needed = self.writer.needed(masked=masked)
        chosen = [item for item in op.items if item.name in needed]
        if any(map(self.writer.names_places, chosen)):
            index = f"gl.arange(0, TILE_DEPTH, layout=gl.SliceLayout(0, {self.writer.layout}))"
            yield f"places = (origin + {step_at(place)}) * TILE_DEPTH + {index}"
        yield from self._reads(op, self.writer.read_by(tuple(chosen), masked=masked), place)
        yield from self.writer.phase(op.makes, age, masked=masked)

    def _loaded_before(self, op: TileOp, phases: Sequence[TileOp]) -> Iterator[str]:
        """The vectors that are loaded before a phase of a tile: all before the first of each pass, so that none is
        waited for. Where an SM has several blocks, another one works meanwhile, and each vector or tile is loaded
        before the first phase that reads it: of registers there is one block's share.
        """
        if not self.plan.s.resident:
            yield from self.of_tiles if op is phases[0] or op.id.subject == AGAIN else ()
            return
        again = op.id.subject == AGAIN
        before = () if again else phases[: phases.index(op)]
        there = {name for one in before for item in one.items for name in item.reads}
        read = {name for item in op.items for name in item.reads} - there
        last = op is phases[-1] or again
        stored = {output.value for output in self.plan.program.after.outputs} - there if last else set[str]()
        yield from (name for name in self.of_tiles if name in read | stored)

    def vectors(self, chosen: Iterable[str] | None = None) -> Iterator[str]:
        """The loads of the vectors and scalars that the loop's values read, or of those `chosen`; those of bounds are
        there already.
        """
        plan, sources = self.plan, self.writer.sources
        pairs = set[View]()  # those that are in registers
        names = tuple(self._vectors if chosen is None else chosen)
        before = next_rows.loaded_ahead(plan, names)
        yield from next_rows.taken(plan, {name: sources[name].name for name in before})
        for name in (one for one in names if one not in before):
            yield from vectors.chosen_places(plan, name)
            if name in plan.program.held_vectors:
                yield from held.taken(plan, name, sources[name].name)
            elif plan.program.long_rows and plan.vectors[name].of.is_tile:
                yield from self._read_by_threads(name)
            elif (view := plan.vectors[name].of.view).step > 1:
                yield from halves.read(plan, name, sources[name].name, there=view.moved in pairs)
                pairs.add(view.moved)
            else:
                yield f"{sources[name].name} = {vectors.load(plan, name)}"

    def _read_by_threads(self, name: str) -> Iterator[str]:
        """A part of rows that no SM holds, which threads read: now, or as it was read ahead."""
        tile, own = self.plan.vectors[name], self.writer.sources[name]
        if self.plan.s.ahead:
            yield ahead.taken(self.plan, name, own.name)
        else:
            yield f"{own.name} = {vectors.load(self.plan, name, row_ends.beyond(self.writer, name) or 0.0)}"
        if tile.of.view.flat:
            yield flat.rest(tile, own.name)
            yield from self._hidden(name)

    def _hidden(self, name: str) -> Iterator[str]:
        """Lines that put zeros for a tile's elements of other rows, where something is computed of them. Of a second
        pass nothing is stored that lies beyond the row's ends.
        """
        own = self.writer.sources[name]
        if not (self.again or row_ends.keeps_to_rows(self.writer, name)):
            yield from flat.hidden(self.plan, own.name, own.dtype, self.writer.ends)

    @property
    def _vectors(self) -> tuple[str, ...]:
        """The vectors and scalars that the loop's values read, by name."""
        plan = self.plan
        return tuple(sorted(self.writer.sources.keys() & plan.vectors.keys() - plan.scalars.keys()))

    @property
    def reads_along_rows(self) -> bool:
        """Whether a vector that the loop's values read runs along rows."""
        row = row_role(self.plan.s.swap)
        return any(row in self.writer.sources[name].spans for name in self._vectors)

    @property
    def of_tiles(self) -> tuple[str, ...]:
        """The vectors that are read for every tile: not those of whole rows, where it is a part of rows."""
        return tuple(name for name in self._vectors if name not in self.of_rows)

    @property
    def of_rows(self) -> tuple[str, ...]:
        """The vectors that are loaded once before all parts of rows that no SM holds, as they do not run along
        columns: a load from L2 takes as long as much of a part's arithmetic.
        """
        sources = self.writer.sources
        same = (name for name in self._vectors if Role.COLUMN not in sources[name].spans)
        return tuple(same) if self.plan.program.long_rows else ()

    def _reads(self, op: TileOp, names: set[str], place: int) -> Iterator[str]:
        """Streamed tensors' slots brought into registers, each once, in the type that is computed with."""
        tiles = {self.place(tile)[1].view: tile for tile in op.inputs}
        read = (s for s in self.plan.program.streamed if s.name in names and s.view.moved in tiles)
        for name, source in {self.writer.sources[one.name].name: one for one in read}.items():
            self.writer.called |= {WIDEN} if widens_pairs(self.plan, source) else set()
            loaded = self._brought(source, tiles[source.view.moved], place)
            held = self.writer.sources[source.name].dtype
            yield from kept.tile(self.kept, name, loaded, partial(converted, self.plan, source, held))
            yield from self._hidden(source.name)

    def _brought(self, source: Source, tile: ValueId, place: int) -> str:
        """The expression that brings a tensor's elements of a slot into registers, as they are."""
        if source.view.step > 1:
            return self._one_of_pairs(source.view, tile, place)
        if source.view.packing is Packing.FRAGMENTS or source.view.each > 1:
            return self._taken_apart(source.view, tile, place)
        layout = self.writer.layout
        layout = layout if source.spans == self.writer.tile else f"gl.SliceLayout(0, {layout})"
        return self.loaded(tile, place, layout)

    def _one_of_pairs(self, view: View, tile: ValueId, place: int) -> str:
        """One element of every pair of a tile's rows, brought into registers."""
        half = f"{halves.taken_apart(self.loaded(tile, place, PAIRS_LAYOUT))}[{view.offset}]"
        return f"gl.convert_layout({half}, {self.writer.layout})"

    def _taken_apart(self, view: View, tile: ValueId, place: int) -> str:
        """A tile of packed elements, or of elements that neighbours share, brought into registers."""
        ((buffer, _, _),) = self.buffers(tile, place)
        dtype, depth = self.plan.program.whole.dtype, self.plan.s.depth
        text, function = quantized.loaded(view, buffer, dtype, depth, self.writer.layout)
        self.writer.called |= {function} - {""}
        raised = view.zero and view.packing is not Packing.FRAGMENTS
        return f"({text}.to({GLUON[dtype]}) + {-view.zero})" if raised and view.zero else text

    def added(self, op: TileOp, place: int) -> str:
        """An operation of a kind that was added."""
        template = environment().from_string(KINDS[op.id.subject].text)
        return template.render(tiles=[self.slot(tile, place) for tile in op.inputs])
