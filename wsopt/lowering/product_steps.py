"""The steps of a loop of products with no arithmetic between them, one feeding another.

What is computed of their operands stands beside the products, or apart, in a role of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from wsopt.frontend.types import Contraction, Region
from wsopt.lowering.cut import Load, Ring, Step, When
from wsopt.lowering.maker import Maker, Steps
from wsopt.lowering.phases import (
    beside_products,
    k_block_phase,
    read_by,
)
from wsopt.lowering.promotion import is_promoted, promotes
from wsopt.machine.types import Machine
from wsopt.program.facts import (
    Member,
    Product,
    Promotion,
    Release,
    Transform,
)
from wsopt.program.ids import OpKind, ValueKind
from wsopt.program.row_layout import row_layout, widest_bits
from wsopt.program.types import Space
from wsopt.targets import Sums, target_of
from wsopt.tensors.parts import stretches
from wsopt.tensors.statements import Statement
from wsopt.tensors.views import Role, View


def releases_early(region: Region, machine: Machine) -> bool:
    """Whether consumers may hand a slot back behind the begin of the next product: they issue products and do nothing
    else in the loop. What computes beside its products would come late with the rest of one.
    """
    apart = region.chained or region.beside or promotes(region, machine)
    return target_of(machine).sums is Sums.REGISTERS and not apart


@dataclass(frozen=True, slots=True)
class Products(Maker):
    """Makes the steps of a loop of products."""

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
        yield Step(OpKind.RELEASE, "", Release(not committed, committed, self.s.paired))
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
            s.at_once * len(region.contractions), stretches=self._stretches(), paired=s.paired,
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

    def computed_apart(self) -> Steps:
        """A loop of products whose left operands a role of its own computes, from rings into rings."""
        region, s = self.region, self.s
        rings, steps = self.streamed_rings(), list[Step]()
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


def _made_name(product: Contraction) -> str:
    """The name of a product's left operand that another role computes: no tensor's, for it has blanks."""
    return f"left operand of {product.name}"
