"""A region as the rings and steps of a consumer's iteration: products, values between products, or whole rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from wsopt.frontend.types import Contraction, Region
from wsopt.graph.types import DType
from wsopt.lowering.cut import KINDS, Held, Load, Ring, Step, When
from wsopt.lowering.phases import (
    beside_products,
    body_levels,
    is_scores,
    is_sums,
    k_block_phase,
    lane_sums,
    read_by,
    row_phase,
    row_phases,
)
from wsopt.lowering.promotion import is_promoted, promotes
from wsopt.machine.types import Machine
from wsopt.program.facts import (
    Arithmetic,
    Copy,
    Member,
    Moved,
    Product,
    Promotion,
    Read,
    Release,
    Rescale,
    Store,
    Transform,
)
from wsopt.program.ids import AGAIN, OpKind, ValueKind
from wsopt.program.program import Item
from wsopt.program.row_layout import RowLayout, reduces_outer, row_layout, tile_layout, widest_bits
from wsopt.program.types import Space, Structure, column_role, row_role
from wsopt.targets import Operands, Sums, target_of
from wsopt.tensors.parts import stretches, summed
from wsopt.tensors.views import FULL, K_BLOCK, OUTER, Packing, Reduction, Role, Statement, View


def releases_early(region: Region, machine: Machine) -> bool:
    """Whether consumers may hand a slot back behind the begin of the next product: they issue products and do nothing
    else in the loop. What computes beside its products would come late with the rest of one.
    """
    apart = region.chained or region.beside or promotes(region, machine)
    return target_of(machine).sums is Sums.REGISTERS and not apart


_ROWS = frozenset({Role.ROW})

Steps = tuple[tuple[Ring, ...], tuple[Step, ...], tuple[Member, ...]]
"""Rings, steps, and the tensors that a block holds through its loop."""


def inner_extent(region: Region, machine: Machine) -> int:
    """Elements of the inner axis as tiles hold it: each part is what one tensor instruction contracts, or more."""
    return summed(region.extent(Role.INNER), machine.mma_depth(region.operand_dtype.bits))


@dataclass(frozen=True, slots=True)
class _Part:
    """A step before it is linked to others: the values that it `needs` and `makes`, by name, and the tiles that it
    `leaves` in registers, with their bits.
    """

    step: Step
    needs: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()
    leaves: tuple[tuple[str, int], ...] = ()


def _phase(step: Step) -> _Part:
    """The part that is a phase of arithmetic."""
    needs = tuple(name for item in step.items for name in item.reads)
    tiles = (item for item in step.items if isinstance(item, Statement) and item.spans in (K_BLOCK, FULL))
    leaves = tuple((item.name, item.dtype.bits) for item in tiles)
    return _Part(step, needs, tuple(item.name for item in step.items), leaves)


@dataclass(frozen=True, slots=True)
class _Maker:
    """Makes the steps of a region cut to a structure, whose grid has so many `tiles`."""

    region: Region
    s: Structure
    machine: Machine
    tiles: int

    @property
    def apart(self) -> bool:
        """Whether products leave their results in tensor memory."""
        return target_of(self.machine).sums is Sums.TENSOR_MEMORY

    @property
    def inner(self) -> int:
        """Elements of the inner axis as tiles hold it."""
        return inner_extent(self.region, self.machine)

    def shape(self, view: View, rows: int) -> tuple[int, ...]:
        """The shape of a tensor's tile with so many of the accumulator's rows."""
        s = self.s
        extents = {row_role(s.swap): rows, column_role(s.swap): s.columns, Role.STREAM: s.depth}
        extents[Role.INNER] = self.inner
        return tuple(view.of(role, extents[role]) for role in view.roles if role in extents)

    def member(self, view: View) -> Member:
        """A tensor in shared memory, and how its copies lie there."""
        s, by_rows = self.s, row_role(self.s.swap) in view.roles
        name = self.region.operand_name(view) if view in self.region.streams else view.tensor
        return Member(view, name, self.shape(view, s.rows), s.at_once if by_rows else 1, by_rows)

    def box(self, member: Member) -> Copy:
        """Counts of a copy of an operand, with the rows of it that lie beyond the tensor's end, on the average: where
        it is the last tile's alone, the others have the bytes that this one does not ask for.
        """
        if len(member.view.roles) == 1:
            return member.box(member.shape)
        role, s = member.view.roles[-2], self.s
        tile = {row_role(s.swap): s.tile_rows, column_role(s.swap): s.columns}.get(role)
        if tile is None:
            return member.box(member.shape)
        extent = self.region.extent(role)
        share = 1 - extent / (math.ceil(extent / tile) * tile)
        return replace(member.box(member.shape), outside=share * member.extent(role))

    def read(self, views: Iterable[View]) -> tuple[tuple[ValueKind, str], ...]:
        """The inputs of a step that reads the tiles of streamed tensors, each once."""
        return tuple((ValueKind.TILE, self.region.operand_name(view)) for view in dict.fromkeys(views))

    # --- products ---------------------------------------------------------------------------------------

    def products(self) -> Steps:
        """A loop of products, and of what is computed from their operands beside them: one ring for all."""
        loads = [
            Load(member, consumer, member.shape, self.box(member))
            for member in map(self.member, self.region.streams)
            for consumer in (range(self.s.at_once) if member.by_rows else (None,))
        ]
        steps = [step for one in self.region.contractions for step in self._product(one)]
        if self.region.beside:
            steps.append(self._beside())
        back = tuple(self._returns())
        subjects = tuple(step.subject for step in back)
        return (Ring("ring", subjects, tuple(loads)),), (*steps, *back), ()

    def _returns(self) -> Iterator[Step]:
        """What hands a slot back: the consumer that issues the products; or the tensor core itself, and for what is
        computed beside its products the consumer too.
        """
        committed = target_of(self.machine).sums is Sums.TENSOR_MEMORY
        yield Step(OpKind.RELEASE, "", Release(not committed, committed))
        if committed and self.region.beside:
            yield Step(OpKind.RELEASE, "beside", Release(meets=True))

    def _stretches(self) -> int:
        """The stretches in which a product of a loop is issued."""
        early = self.s.early_release and releases_early(self.region, self.machine)
        least = self.machine.mma_depth(self.region.operand_dtype.bits)
        return len(stretches(self.s.depth, least)) if early else 1

    def _counts(self) -> Product:
        """Counts of one of the products of a loop that has nothing between them."""
        region, s = self.region, self.s
        return Product(
            s.rows, s.columns, s.depth, region.operand_dtype, s.consumer_warps,
            s.at_once * len(region.contractions), stretches=self._stretches(),
        )  # fmt: skip

    def _product(self, product: Contraction) -> list[Step]:
        """One product of a K-block; with promotion into partial sums, which a second step adds to the sums."""
        s, name = self.s, product.name
        sides = (product.right, product.left) if s.swap else (product.left, product.right)
        partial, total, shape = (ValueKind.PARTIAL, name), (ValueKind.SUM, name), (s.rows, s.columns)
        space = Space.REGISTERS if target_of(self.machine).sums is Sums.REGISTERS else Space.TENSOR
        factors = [source.view for source in self.region.sources if source.name in product.factors]
        inputs = self.read([*(side for side in sides if isinstance(side, View)), *factors])
        counts = replace(self._counts(), factors=len(factors))
        made = Step(OpKind.MMA, name, counts, inputs, total, shape, space=space)
        if not is_promoted(product, self.region, self.machine):
            return [made]
        # Partial sums are one set of registers a K-block: they are added up before they are made again.
        made = replace(made, output=partial, after=((OpKind.ACCUMULATE, name, When.AGAIN),))
        after = ((OpKind.MMA, name, When.SAME), (OpKind.ACCUMULATE, name, When.BEFORE))
        promotion = Promotion(s.rows * s.columns, s.consumer_warps, bool(factors))
        return [made, Step(OpKind.ACCUMULATE, name, promotion, (partial, total), total, shape, after)]

    def _beside(self) -> Step:
        """A consumer's reductions of its operands' tiles, to which each K-block adds."""
        region, s = self.region, self.s
        views = tuple(dict.fromkeys(tile.view for tile in region.tiles))
        layout = row_layout(widest_bits(views), s.rows, s.depth, s.consumer_warps, self.machine)
        work = beside_products(region.beside, views, s, layout)
        after = ((OpKind.ELEMENTWISE, "beside", When.BEFORE),)
        return Step(OpKind.ELEMENTWISE, "beside", work, self.read(views), after=after, items=region.beside)

    # --- values of the loop -----------------------------------------------------------------------------

    def values(self) -> Steps:
        """A loop that computes values between its products: phases of arithmetic, and a ring for each tensor, whose
        slots have the rows of all consumers.
        """
        rings = self._streamed_rings()
        read = {source.view for source in self.region.streamed_sources} if self.apart else set()
        back = (
            Step(
                OpKind.RELEASE,
                ring.subjects[0],
                Release(False, self.apart and ring.members[0].view not in read),
            )
            for ring in rings
        )
        held = tuple(map(self.member, self.region.stationary_operands))
        return tuple(rings), (*self._linked(list(self._value_parts())), *back), held

    def _streamed_rings(self) -> list[Ring]:
        """A ring for each tensor, but for scales of groups: they share the slots of the numbers that they scale."""
        members = [self.member(view) for view in self.region.streams]
        packed = [one for one in members if one.view.packing is Packing.FRAGMENTS][:1]
        shared = [one for one in members if packed and one.view.each > 1]
        found = list[Ring]()
        for member in (one for one in members if one not in shared):
            held = [member, *(shared if member in packed else [])]
            shapes = [self.shape(one.view, self.s.tile_rows) for one in held]
            loads = (Load(one, None, shape, one.box(shape)) for one, shape in zip(held, shapes, strict=True))
            found.append(Ring(f"{member.name}_ring", (member.name,), tuple(loads)))
        return found

    def computed_apart(self) -> Steps:
        """A loop of products whose left operands a role of its own computes, from rings into rings."""
        region, s = self.region, self.s
        rings, steps = self._streamed_rings(), list[Step]()
        read = {source.view for source in region.streamed_sources}
        for product in region.contractions:
            made = Member(
                self._made_view(product), _made_name(product), (s.rows, s.depth), s.at_once, by_rows=True
            )
            rings.append(Ring(f"{product.name}_left_ring", (made.name,), made=(made,)))
            steps += [self._apart(made, str(product.left)), self._plain_product(product)]
        for ring in rings:
            apart = any(member.view in read for member in ring.members)
            steps.append(Step(OpKind.RELEASE, ring.subjects[0], Release(meets=False), apart=apart))
        return tuple(rings), tuple(steps), ()

    def _made_view(self, product: Contraction) -> View:
        """A product's left operand as if it were a tensor, contiguous along the streamed axis."""
        item = next(item for item in self.region.body if item.name == product.left)
        assert isinstance(item, Statement), "a product's operand is an element's value"
        roles = (Role.ROW, Role.STREAM)
        rows, deep = map(self.region.extent, roles)
        return View(
            f"{product.name}_left",
            item.dtype,
            roles,
            (rows, deep),
            (deep, 1),
            ((0,), (1,)),
            2,
            constant=False,
        )

    def _apart(self, made: Member, value: str) -> Step:
        """What computes a consumer's rows of an operand, and leaves them in shared memory."""
        body, name, wanted = self.region.body, made.name, {value}
        for item in reversed(body):
            wanted |= set(item.reads) if item.name in wanted else set()
        items = tuple(item for item in body if item.name in wanted and not isinstance(item, Contraction))
        read = read_by(items, self.region.streamed_sources)
        nbytes = sum(self.member(source.view).copy_bytes for source in read)
        work = k_block_phase(items, body, self.region.streamed_sources, self.s)
        counts = Transform(replace(work, tiles=(), vectors=0.0), nbytes, made.copy_bytes)
        inputs, shape = self.read(source.view for source in read), (self.s.rows, self.s.depth)
        return Step(
            OpKind.ELEMENTWISE, name, counts, inputs, (ValueKind.TILE, name), shape, items=items,
            space=Space.SHARED, apart=True,
        )  # fmt: skip

    def _plain_product(self, product: Contraction) -> Step:
        """A product of what a role of its own has left in shared memory."""
        inputs = ((ValueKind.TILE, _made_name(product)), *self.read([product.right]))
        total, shape = (ValueKind.SUM, product.name), (self.s.rows, self.s.columns)
        return Step(OpKind.MMA, product.name, self._counts(), inputs, total, shape)

    def _value_parts(self) -> Iterator[_Part]:
        """Phases with the products that read them, then the sums over the streamed axis. emitter.v1: sums that a
        moving maximum rescales are rescaled in every K-block.
        """
        body, s = self.region.body, self.s
        level = body_levels(body)
        for number in range(max(level.values()) + 1):
            own = [item for item in body if level[item.name] == number and not is_sums(item)]
            items = tuple(item for item in own if not isinstance(item, Contraction))
            for name, part in self._phases(number, items):
                yield _phase(self._k_block_step(name, part))
            for item in (item for item in own if isinstance(item, Contraction)):
                yield from self._value_products(item)
        sums = [item for item in body if isinstance(item, Contraction) and is_sums(item)]
        for name, factor in ((item.name, item.rescale) for item in sums if item.rescale is not None):
            read, made = ((ValueKind.VALUE, factor),), (ValueKind.SUM, name)
            count = s.rows * s.columns
            work = Rescale(count, count * DType.F32.bits // 8 if self.apart else 0)
            step = Step(OpKind.RESCALE, name, work, read, made, None, ((OpKind.MMA, name, When.BEFORE),))
            if not s.corrections:
                yield _Part(step, (factor,))
                continue
            yield self._handed(factor, name)
            given, after = ((ValueKind.OPERAND, factor),), (OpKind.WRITE, factor, When.SAME)
            yield _Part(replace(step, inputs=given, after=(*step.after, after), apart=True))
        for item in sums:
            yield from self._value_products(item)

    def _phases(self, number: int, items: tuple[Item, ...]) -> Iterator[tuple[str, tuple[Item, ...]]]:
        """A phase's steps: where sums lie apart, the factors by which they are rescaled come first."""
        wanted = {item.rescale for item in self.region.contractions if item.rescale} if self.apart else set()
        for item in reversed(items):
            wanted |= set(item.reads) if item.name in wanted else set()
        rows = tuple(i for i in items if isinstance(i, Statement) and i.name in wanted and i.spans == _ROWS)
        rest = tuple(item for item in items if item not in rows)
        yield from (
            (name, own) for name, own in ((f"factors{number}", rows), (f"phase{number}", rest)) if own
        )

    def _masking(self) -> set[str]:
        """The items of the loop that only masks need: what is left out where they take nothing away."""
        alias, items = dict(self.region.unmasked), {item.name: item for item in self.region.body}
        ends = (item for item in self.region.body if not isinstance(item, Statement))
        wanted, found = [item.name for item in ends], set[str]()
        while wanted:
            name = wanted.pop()
            while name in alias:
                name = alias[name]
            if name in items.keys() - found:
                found.add(name)
                wanted.extend(items[name].reads)
        return items.keys() - found

    def _k_block_step(self, name: str, items: tuple[Item, ...]) -> Step:
        """A phase of arithmetic on a K-block; row values go on from the K-block before."""
        body, streamed = self.region.body, self.region.streamed_sources
        # Without masks: nearly all K-blocks have none, in loops whose results lie apart as in others.
        counted = [i for i in items if i.name not in self._masking()] if self.apart else items
        lanes = lane_sums(body, self.s, self.machine)
        work = k_block_phase(counted, body, streamed, self.s, lanes, self.apart)
        inputs = self.read(source.view for source in read_by(items, streamed))
        reduces = any(isinstance(item, Reduction) for item in items)
        after = ((OpKind.ELEMENTWISE, name, When.BEFORE),) if reduces else ()
        return Step(OpKind.ELEMENTWISE, name, work, inputs, (ValueKind.VALUE, name), None, after, items)

    def _value_products(self, product: Contraction) -> Iterator[_Part]:
        """A product with what brings its operand into tensor memory and its values into registers, where they go that
        way.
        """
        part, left = self._value_product(product), product.left
        if not self.apart:
            yield part
            return
        fed = [item.name for item in self.region.contractions if isinstance(item.left, str)]
        scores = [item.name for item in self.region.contractions if is_scores(item)]
        step, shares = part.step, self.s.operands is Operands.SCORES
        if isinstance(left, str):
            yield self._written(left, product.name, scores[0] if shares else "")
            after = ((OpKind.WRITE, left, When.SAME), *step.after)
            step = replace(step, inputs=((ValueKind.OPERAND, left), *step.inputs[1:]), after=after)
        step = replace(step, space=Space.TENSOR)
        if not is_scores(product):
            yield _Part(step)
            return
        made = ValueKind.RESULT, product.name
        if shares:
            step = replace(step, output=made, behind=tuple((OpKind.MMA, name) for name in fed))
        else:
            step = replace(step, output=made, after=(*step.after, (OpKind.READ, product.name, When.BEFORE)))
        yield _Part(step)
        nbytes, value = self.s.rows * self.s.depth * DType.F32.bits // 8, (ValueKind.VALUE, product.name)
        read = Step(
            OpKind.READ,
            product.name,
            Moved(nbytes),
            (made,),
            value,
            after=((OpKind.MMA, product.name, When.SAME),),
        )
        yield _Part(read, (), (product.name,), ((product.name, DType.F32.bits),))

    def _handed(self, factor: str, sums: str) -> _Part:
        """The factors of a consumer's rows on their way to who rescales its sums, through shared memory: not before
        those of the K-block before have been taken.
        """
        counts = Moved(self.s.rows * DType.F32.bits // 8, written=True)
        step = Step(
            OpKind.WRITE, factor, counts, ((ValueKind.VALUE, factor),), (ValueKind.OPERAND, factor), (self.s.rows,),
            ((OpKind.RESCALE, sums, When.BEFORE),), space=Space.SHARED,
        )  # fmt: skip
        return _Part(step, (factor,))

    def _written(self, value: str, product: str, scores: str) -> _Part:
        """A value of a K-block on its way to tensor memory, from which a product takes it: not before the product has
        read the one before.
        """
        item = next(item for item in self.region.body if item.name == value)
        assert isinstance(item, Statement), "a product's operand is an element's value"
        shape, within = (self.s.rows, self.s.depth), (ValueKind.RESULT, scores) if scores else None
        counts = Moved(math.prod(shape) * item.dtype.bits // 8, written=True)
        step = Step(
            OpKind.WRITE, value, counts, ((ValueKind.VALUE, value),), (ValueKind.OPERAND, value), shape,
            ((OpKind.MMA, product, When.BEFORE),), space=Space.TENSOR, dtype=item.dtype, within=within,
        )  # fmt: skip
        return _Part(step, (value,))

    def _value_product(self, product: Contraction) -> _Part:
        """A product of a K-block: its values, or sums over K-blocks of values that were computed."""
        s, left, name, scores = self.s, product.left, product.name, is_scores(product)
        columns, deep = (s.depth, self.inner) if scores else (s.columns, s.depth)
        dtype, computed = self.region.operand_dtype, (left,) if isinstance(left, str) else ()
        counts = Product(s.rows, columns, deep, dtype, s.consumer_warps, 0, bool(computed) and not self.apart)
        first = (ValueKind.VALUE, left) if isinstance(left, str) else (ValueKind.STATIONARY, left.tensor)
        made = (ValueKind.VALUE if scores else ValueKind.SUM, name)
        after = ((OpKind.RESCALE, name, When.SAME),) if product.rescale is not None else ()
        inputs = (first, *self.read([product.right]))
        step = Step(OpKind.MMA, name, counts, inputs, made, (s.rows, columns), after)
        return _Part(step, computed, (name,), ((name, 32),) if scores else ())

    def _linked(self, parts: Sequence[_Part]) -> Iterator[Step]:
        """The steps, each after those that make what it needs."""
        makers = {name: (part.step.kind, part.step.subject) for part in parts for name in part.makes}
        for part in parts:
            step = part.step
            needed = dict.fromkeys(makers[name] for name in part.needs if name in makers)
            after = [(*one, When.SAME) for one in needed if one != (step.kind, step.subject)]
            # A product reads its left operand's registers until it ends: they are not made again before, not even
            # others in their place, for ptxas before 13.3 takes the same ones (`codegen/async_reads.py`).
            # Written to tensor memory they are the write's, which waits for the product itself.
            fed = (p.step for p in parts if p.step.kind is OpKind.MMA and {*p.needs} & {*part.makes})
            after += [(reader.kind, reader.subject, When.BEFORE) for reader in fed]
            yield replace(step, after=(*after, *step.after), holds=tuple(self._holds(part, parts)))

    def _holds(self, part: _Part, parts: Sequence[_Part]) -> Iterator[Held]:
        """Tiles that one step leaves to later ones, which read them side by side, or in order where rows stream."""
        s, body = self.s, self.region.body
        columns, threads = s.depth if body else s.columns, s.consumer_warps * self.machine.threads_per_warp
        for name, bits in part.leaves:
            readers = [p.step for p in parts if p is not part and name in p.needs]
            if readers:
                registers = math.ceil(s.rows * columns * max(bits, 16) / 32 / threads)
                to_the_end = any(step.kind is OpKind.MMA for step in readers)
                names = tuple((step.kind, step.subject) for step in (readers if body else readers[-1:]))
                yield Held(name, names, registers, to_the_end)

    # --- whole rows -------------------------------------------------------------------------------------

    def rows(self) -> Steps:
        """A loop whose iterations are tiles of rows, from and to device memory, each step after the one before.
        Nothing is copied beyond the end of a row. What repeats along batches comes from L2 again.
        """
        region, s = self.region, self.s
        extent, members = region.extent(Role.COLUMN), map(self.member, region.operands)
        share = extent / (math.ceil(extent / s.columns) * s.columns)
        # Rows that are read twice come from L2 the second time, as far as they are kept there.
        again = kept_in_l2(region, s, self.machine) if region.passes > 1 else 0.0
        lines = reduces_outer(region.operands)
        reads = share * (1 - again / 2)
        own = [(m, round(m.copy_bytes * reads) if self._once(m.view) else 0) for m in members]
        loads = (
            Load(
                m,
                consumer,
                m.shape,
                replace(m.box(m.shape), from_memory=nbytes, tiles=self.tiles, lines=lines),
            )
            for consumer in range(s.consumers)
            for m, nbytes in own
        )
        parts, steps = list(self._row_parts(share)), list[Step]()
        for part in parts:
            after = tuple((step.kind, step.subject, When.SAME) for step in steps[-1:])
            steps.append(replace(part.step, after=after, holds=tuple(self._holds(part, parts))))
        back = Step(OpKind.RELEASE, "", Release(meets=False))
        return (Ring("ring", ("",), tuple(loads)),), (steps[0], back, *steps[1:]), ()

    def _once(self, view: View) -> bool:
        """Whether a tensor's tiles are each copied once, for it varies along all batches."""
        return all(role in view.roles for role in OUTER if self.region.extent(role) > 1)

    def _row_parts(self, share: float) -> Iterator[_Part]:
        """Reading, which converts to f32 once, the phases, and storing the `share` of a tile that tensors have."""
        region, s = self.region, self.s
        read, stored = region.operands, [output.view for output in region.tile_outputs]
        narrow = sum(view.dtype.bits == 16 for view in read)
        nbytes = sum(self.member(view).copy_bytes for view in read)
        counts = Read(nbytes, narrow * s.rows * s.columns, self._divisions(), s.consumer_warps)
        leaves = tuple((source.name, 32) for source in region.row_sources)
        yield _Part(Step(OpKind.ELEMENTWISE, "read", counts, self.read(read)), leaves=leaves)
        layout = tile_layout([*read, *stored], s.rows, s.columns, s.consumer_warps, self.machine)
        every = region.running or region.statements
        for number, items in enumerate(row_phases(every), 1):
            work = self._of_a_pass(row_phase(items, every, region.sources, s, layout))
            yield _phase(Step(OpKind.ELEMENTWISE, f"phase{number}", work, items=items))
        if region.passes > 1:
            items = tuple(item for item in region.statements if item not in behind_rows(region))
            yield _phase(self._again(items, layout))
        if region.tile_outputs or not region.running:
            yield self._row_store(share)

    def _divisions(self) -> int:
        """Divisions by which a tile's place follows from its number: by all axes of tiles but one."""
        region = self.region
        apart = not region.running and region.extent(Role.COLUMN) > self.s.columns
        return sum(region.extent(role) > 1 for role in OUTER) + apart

    def _row_store(self, share: float) -> _Part:
        """The store of a tile of rows. Values of rows that no SM holds are stored behind their last part."""
        region, s = self.region, self.s
        bits = [output.view.dtype.bits for output in region.tile_outputs]
        sizes = [s.rows * s.columns * width // 8 // region.passes for width in bits]
        behind = () if region.running else (output for output in region.outputs if not output.is_tile)
        values = [output.view.dtype.bits // 8 for output in behind]
        copied = sum(round(size * share) for size in sizes) + s.rows * sum(values)
        store = Store(len(sizes), sum(sizes), copied, self.tiles, len(values))
        return _Part(Step(OpKind.TMA_STORE, "", store), tuple(output.value for output in region.outputs))

    def _of_a_pass(self, work: Arithmetic) -> Arithmetic:
        """Arithmetic of one of the passes over a row: on the average an iteration has its share."""
        return replace(work, elements=work.elements // self.region.passes)

    def _again(self, items: tuple[Item, ...], layout: RowLayout) -> Step:
        """What a part of a row is read again for: the output's elements."""
        work = row_phase(items, self.region.statements, self.region.sources, self.s, layout)
        return Step(OpKind.ELEMENTWISE, AGAIN, self._of_a_pass(work), items=items)


def behind_rows(region: Region) -> list[Item]:
    """What follows the last part of rows that no SM holds: values of rows, for their reductions are complete."""
    return [i for i in region.statements if not isinstance(i, Statement) or Role.COLUMN not in i.spans]


def kept_in_l2(region: Region, s: Structure, machine: Machine) -> float:
    """The share of rows that is still in L2 when they are read again: of those that all blocks are in half of it."""
    row = sum(view.dtype.bits // 8 for view in region.operands) * region.extent(Role.COLUMN)
    return min(1.0, machine.l2_bytes / 2 / (s.tile_rows * machine.sm_count * row))


def _made_name(product: Contraction) -> str:
    """The name of a product's left operand that another role computes: no tensor's, for it has blanks."""
    return f"left operand of {product.name}"


def steps_of(region: Region, s: Structure, machine: Machine, tiles: int) -> Steps:
    """The loop of a region cut to a structure, whose grid has so many `tiles`; kinds that were added are among the
    steps.
    """
    maker = _Maker(region, s, machine, tiles)
    made = maker.values if region.body else maker.products if region.contractions else maker.rows
    rings, steps, held = (maker.computed_apart if s.transforms else made)()
    for entry in KINDS.values():
        steps = tuple(entry.insert(steps, region, s, machine))
    return rings, steps, held
