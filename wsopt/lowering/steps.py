"""A region as the rings and steps of a consumer's iteration: products, values between products, or whole rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from wsopt.frontend.extents import pow2
from wsopt.frontend.types import Contraction, Region
from wsopt.lowering.counts import beside_products, k_block_phase, lane_sums, row_phase
from wsopt.lowering.cut import Held, Load, Ring, Step, When
from wsopt.lowering.phases import BodyItem, body_levels, is_scores, row_phases
from wsopt.machine.types import Machine
from wsopt.program.counts import Product, Promotion, Read, Release, Rescale, Store
from wsopt.program.facts import Member
from wsopt.program.ids import OpKind, ValueKind
from wsopt.program.program import Item
from wsopt.program.row_layout import k_block_layout, row_layout, widest_bits
from wsopt.program.types import Space, Structure, column_role, row_role
from wsopt.targets import Sums, target_of
from wsopt.tensors.statements import Reduction, Statement
from wsopt.tensors.views import FULL, K_BLOCK, Role, View

Steps = tuple[tuple[Ring, ...], tuple[Step, ...]]


def inner_extent(region: Region, machine: Machine) -> int:
    """Elements of the inner axis as tiles hold it: a power of two, and what one tensor instruction takes."""
    least = machine.mma_k_bytes * 8 // region.operand_dtype.bits
    return max(least, pow2(region.extent(Role.INNER)))


@dataclass(frozen=True, slots=True)
class _Maker:
    """Makes the steps of a region cut to a structure."""

    region: Region
    s: Structure
    machine: Machine
    tiles: int

    def member(self, view: View) -> Member:
        """A tensor in shared memory, and how its copies lie there."""
        s, row = self.s, row_role(self.s.swap)
        extents = {row: s.rows, column_role(s.swap): s.columns, Role.STREAM: s.depth}
        if Role.INNER in view.roles:
            extents[Role.INNER] = inner_extent(self.region, self.machine)
        shape = tuple(extents[role] for role in view.roles if role in extents)
        by_rows = row in view.roles
        streams = view in self.region.streams
        name = self.region.operand_name(view) if streams else view.tensor
        return Member(view, name, shape, s.at_once if by_rows else 1, by_rows)

    # --- products ---------------------------------------------------------------------------------------

    def products(self) -> Steps:
        """A loop of products, and of what is computed from their operands beside them: one ring for all."""
        loads = [
            Load(member, consumer, member.shape, member.box(member.shape))
            for member in map(self.member, self.region.operands)
            for consumer in (range(self.s.at_once) if member.by_rows else (None,))
        ]
        steps = [step for one in self.region.contractions for step in self._product(one)]
        if self.region.beside:
            steps.append(self._beside())
        committed = target_of(self.machine).own_issuer  # then the tensor core hands a slot back
        back = Step(OpKind.RELEASE, "", Release(not committed, committed))
        return (Ring("ring", "", tuple(loads)),), (*steps, back)

    def _product(self, product: Contraction) -> Iterator[Step]:
        """One product of a K-block; with promotion into partial sums, which a second step adds to the sums."""
        region, s, name = self.region, self.s, product.name
        sides = (product.right, product.left) if s.swap else (product.left, product.right)
        tiles = tuple((ValueKind.TILE, region.operand_name(side)) for side in sides if isinstance(side, View))
        partial, total, shape = (ValueKind.PARTIAL, name), (ValueKind.SUM, name), (s.rows, s.columns)
        counts = Product(
            s.rows, s.columns, s.depth, region.operand_dtype, s.consumer_warps,
            s.at_once * len(region.contractions),
        )  # fmt: skip
        if not product.promote:
            in_registers = target_of(self.machine).sums is Sums.REGISTERS
            space = Space.REGISTERS if in_registers else Space.TENSOR
            yield Step(OpKind.MMA, name, counts, tiles, total, shape, space=space)
            return
        # Partial sums are one set of registers a K-block: they are added up before they are made again.
        added = ((OpKind.ACCUMULATE, name, When.AGAIN),)
        yield Step(OpKind.MMA, name, counts, tiles, partial, shape, added)
        after = ((OpKind.MMA, name, When.SAME), (OpKind.ACCUMULATE, name, When.BEFORE))
        yield Step(
            OpKind.ACCUMULATE,
            name,
            Promotion(s.rows * s.columns, s.consumer_warps),
            (partial, total),
            total,
            shape,
            after,
        )

    def _beside(self) -> Step:
        """A consumer's reductions of its operands' tiles, to which each K-block adds."""
        region, s = self.region, self.s
        views = tuple(dict.fromkeys(tile.view for tile in region.tiles))
        layout = k_block_layout(widest_bits(views), s, self.machine)
        work = beside_products(region.beside, views, s, layout)
        tiles = tuple((ValueKind.TILE, region.operand_name(view)) for view in views)
        after = ((OpKind.ELEMENTWISE, "beside", When.BEFORE),)
        return Step(OpKind.ELEMENTWISE, "beside", work, tiles, after=after, items=region.beside)

    # --- values of the loop -----------------------------------------------------------------------------

    def values(self) -> Steps:
        """A loop that computes values between its products: phases of arithmetic, and a ring for each tensor."""
        rings, steps = list[Ring](), self._value_steps()
        for member in map(self.member, self.region.streams):
            shape = slot_shape(member)
            load = Load(member, None, shape, member.box(shape))
            rings.append(Ring(f"{member.name}_ring", member.name, (load,)))
        back = (Step(OpKind.RELEASE, ring.subject, Release(meets=False)) for ring in rings)
        return tuple(rings), (*steps, *back)

    def _value_steps(self) -> list[Step]:
        body, found = self.region.body, list[tuple[int, int, OpKind, str, tuple[BodyItem, ...]]]()
        level = body_levels(body)
        found += [(level[i.name], 1, OpKind.MMA, i.name, (i,)) for i in body if is_scores(i)]
        for number in sorted({level[i.name] for i in body if not isinstance(i, Contraction)}):
            own = tuple(i for i in body if not isinstance(i, Contraction) and level[i.name] == number)
            found.append((number, 0, OpKind.ELEMENTWISE, f"phase{number}", own))
        last = max((key for key, *_ in found), default=0) + 1
        for item in (i for i in body if isinstance(i, Contraction) and i.spans == FULL):
            if item.rescale is not None:
                found.append((last, 0, OpKind.RESCALE, item.name, (item,)))
            found.append((last, 1, OpKind.MMA, item.name, (item,)))
        ordered = [_part(*one[2:]) for one in sorted(found, key=lambda one: one[:2])]
        return [self._value_step(part, ordered) for part in ordered]

    def _value_step(self, part: _Part, parts: Sequence[_Part]) -> Step:
        region, name = self.region, part.name
        makers = {i.name: other for other in parts if other.kind is not OpKind.RESCALE for i in other.items}
        needed = dict.fromkeys(makers[n] for n in part.needs if n in makers)
        after = [(other.kind, other.name, When.SAME) for other in needed if other is not part]
        if part.kind is OpKind.RESCALE:
            sums = (ValueKind.SUM, name)
            after.append((OpKind.MMA, name, When.BEFORE))
            factor = ((ValueKind.VALUE, part.product.rescale or ""),)
            counts = Rescale(self.s.rows * self.s.columns)
            return Step(part.kind, name, counts, factor, sums, after=tuple(after))
        # A product reads its left operand's registers until it ends: they are not made again before. Where it takes
        # nothing but what comes with the K-block there are two sets of them, so that one is made under the other.
        fed = [p for p in parts if p.kind is OpKind.MMA and p.product.left in {i.name for i in part.items}]
        when = When.BEFORE if self.region.chained else When.TWICE
        after += [(OpKind.MMA, p.name, when) for p in fed]
        holds = tuple(self._holds(part, parts, self.s.depth))
        if part.kind is OpKind.MMA:
            if part.product.rescale is not None:
                after.append((OpKind.RESCALE, name, When.SAME))
            return self._value_product(part.product, tuple(after), holds)
        if any(isinstance(item, Reduction) for item in part.items):
            after.append((part.kind, name, When.BEFORE))
        work = k_block_phase(
            part.arithmetic, region.body, region.streamed_sources, self.s,
            lane_sums(region.body, self.s, self.machine),
        )  # fmt: skip
        read = {n for item in part.items for n in item.reads}
        views = dict.fromkeys(source.view for source in region.streamed_sources if source.name in read)
        tiles = tuple((ValueKind.TILE, region.operand_name(view)) for view in views)
        made = (ValueKind.VALUE, name)
        return Step(part.kind, name, work, tiles, made, None, tuple(after), part.arithmetic, holds)

    def _value_product(
        self,
        product: Contraction,
        after: tuple[tuple[OpKind, str, When], ...],
        holds: tuple[Held, ...],
    ) -> Step:
        """A product of a K-block: its values, or sums over K-blocks of values that were computed."""
        region, s, left = self.region, self.s, product.left
        registers = isinstance(left, str)
        scores = is_scores(product)
        columns, deep = (s.depth, inner_extent(region, self.machine)) if scores else (s.columns, s.depth)
        counts = Product(s.rows, columns, deep, region.operand_dtype, s.consumer_warps, 0, registers)
        first = (ValueKind.VALUE, left) if isinstance(left, str) else (ValueKind.STATIONARY, left.tensor)
        inputs = (first, (ValueKind.TILE, region.operand_name(product.right)))
        made = (ValueKind.VALUE if scores else ValueKind.SUM, product.name)
        return Step(OpKind.MMA, product.name, counts, inputs, made, (s.rows, columns), after, (), holds)

    def _holds(self, part: _Part, parts: Sequence[_Part], columns: int) -> Iterator[Held]:
        """Tiles of so many columns that one step leaves to later ones, which read them in order or side by side."""
        threads = self.s.consumer_warps * self.machine.threads_per_warp
        for name, bits in part.leaves:
            readers = [p for p in parts if p is not part and name in p.needs]
            if readers:
                registers = math.ceil(self.s.rows * columns * max(bits, 16) / 32 / threads)
                to_the_end = any(p.kind is OpKind.MMA for p in readers)
                names = tuple((p.kind, p.name) for p in (readers if self.region.body else readers[-1:]))
                yield Held(name, names, registers, to_the_end)

    # --- whole rows -------------------------------------------------------------------------------------

    def rows(self) -> Steps:
        """A loop whose iterations are tiles of whole rows: read, computed in phases, and stored."""
        region, s = self.region, self.s
        members = [self.member(view) for view in region.operands]
        loads = tuple(self._row_load(m, consumer) for consumer in range(s.consumers) for m in members)
        parts = self._row_parts()
        steps = [self._row_step(part, parts, members) for part in parts]
        back = Step(OpKind.RELEASE, "", Release(meets=False))
        return (Ring("ring", "", loads),), (steps[0], back, *steps[1:])

    def _row_parts(self) -> list[_Part]:
        """Reading, which converts to f32 once, the phases, and storing."""
        region = self.region
        read = tuple((source.name, 32) for source in region.row_sources)
        phases = [
            _part(OpKind.ELEMENTWISE, f"phase{number}", items)
            for number, items in enumerate(row_phases(region.statements), 1)
        ]
        stored = tuple(output.value for output in region.outputs)
        first, last = _Part(OpKind.ELEMENTWISE, "read", (), (), read), _Part(OpKind.TMA_STORE, "", (), stored)
        return [first, *phases, last]

    def _row_step(self, part: _Part, parts: Sequence[_Part], members: Sequence[Member]) -> Step:
        """A step of a tile of rows, after the one before it."""
        region, s, place = self.region, self.s, parts.index(part)
        after = tuple((p.kind, p.name, When.SAME) for p in parts[max(0, place - 1) : place])
        holds = tuple(self._holds(part, parts, s.columns))
        if not place:
            narrow = sum(member.view.dtype.bits == 16 for member in members)
            counts = Read(sum(m.copy_bytes for m in members), narrow * s.rows * s.columns)
            tiles = tuple((ValueKind.TILE, member.name) for member in members)
            return Step(part.kind, part.name, counts, tiles, holds=holds)
        if part.kind is OpKind.TMA_STORE:
            return Step(part.kind, part.name, self._store(), after=after)
        bits = widest_bits([*region.operands, *(output.view for output in region.outputs)])
        layout = row_layout(bits, s.rows, s.columns, s.consumer_warps, self.machine)
        work = row_phase(part.arithmetic, region.statements, region.sources, s, layout)
        return Step(part.kind, part.name, work, after=after, items=part.arithmetic, holds=holds)

    def _row_load(self, member: Member, consumer: int) -> Load:
        """One consumer's rows of a tensor, from device memory."""
        box, nbytes = member.box(member.shape), self._copied(member.copy_bytes)
        return Load(member, consumer, member.shape, replace(box, from_memory=nbytes, tiles=self.tiles))

    def _copied(self, nbytes: int) -> int:
        """Bytes of a tile's that are copied: nothing is, beyond the end of a row."""
        return round(nbytes * min(1.0, self.region.extent(Role.COLUMN) / self.s.columns))

    def _store(self) -> Store:
        views = [output.view for output in self.region.outputs]
        sizes = [self.s.rows * self.s.columns * view.dtype.bits // 8 for view in views]
        return Store(len(views), sum(sizes), sum(map(self._copied, sizes)), self.tiles)


@dataclass(frozen=True, slots=True)
class _Part:
    """A product, a phase, a rescaling, a read or a store, before it is a step: the values that it `needs`, by name,
    and the tiles that it `leaves` in registers, with their bits.
    """

    kind: OpKind
    name: str
    items: tuple[BodyItem, ...]
    needs: tuple[str, ...]
    leaves: tuple[tuple[str, int], ...] = ()

    @property
    def product(self) -> Contraction:
        """The product of a part that is one, or whose sums it rescales."""
        (item,) = self.items
        assert isinstance(item, Contraction), f"{self.name} is no product's part"
        return item

    @property
    def arithmetic(self) -> tuple[Item, ...]:
        """The items of a phase."""
        return tuple(item for item in self.items if not isinstance(item, Contraction))


def _part(kind: OpKind, name: str, items: tuple[BodyItem, ...]) -> _Part:
    """The part of a loop that computes these items, or rescales the sums of one."""
    needs, leaves = list[str](), list[tuple[str, int]]()
    for item in items:
        if isinstance(item, Contraction):
            feeds = item.rescale if kind is OpKind.RESCALE else item.left
            needs += [feeds] if isinstance(feeds, str) else []
        else:
            needs += item.reads
        if is_scores(item) or (isinstance(item, Statement) and item.spans in (K_BLOCK, FULL)):
            leaves.append((item.name, item.dtype.bits if isinstance(item, Statement) else 32))
    return _Part(kind, name, items, tuple(needs), tuple(leaves))


def slot_shape(member: Member) -> tuple[int, ...]:
    """The shape of what one K-block's slot holds of a tensor: the rows of all consumers."""
    roles = [role for role in member.view.roles if role not in (Role.BATCH, Role.GROUP)]
    return tuple(
        extent * (member.copies if role is Role.ROW else 1)
        for role, extent in zip(roles, member.shape, strict=True)
    )


def spans_of(item: BodyItem) -> frozenset[Role]:
    """The axes that a value of the loop varies along."""
    return frozenset({Role.ROW}) if isinstance(item, Reduction) else item.spans


def steps_of(region: Region, s: Structure, machine: Machine, tiles: int) -> Steps:
    """The rings and steps of a region cut to a structure, whose grid has so many `tiles`."""
    maker = _Maker(region, s, machine, tiles)
    if region.body:
        return maker.values()
    return maker.products() if region.contractions else maker.rows()


def stationary(region: Region, s: Structure, machine: Machine) -> Iterator[Member]:
    """The tensors that a block holds through its loop."""
    yield from map(_Maker(region, s, machine, 0).member, region.stationary_operands)
