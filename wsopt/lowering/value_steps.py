"""The steps of a loop that computes values between its products: phases of arithmetic, and what goes between them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from wsopt.frontend.types import Contraction
from wsopt.graph.types import DType
from wsopt.lowering.cut import Ring, Step, When
from wsopt.lowering.maker import Maker, Part, Steps, part_of
from wsopt.lowering.phases import (
    body_levels,
    is_scores,
    is_sums,
    k_block_phase,
    lane_sums,
    lazy_rows,
    read_by,
    widening_mix,
)
from wsopt.lowering.promotion import sum_sets
from wsopt.program.facts import (
    Arithmetic,
    Member,
    Moved,
    Product,
    Promotion,
    Release,
    Rescale,
    Transform,
)
from wsopt.program.ids import OpKind, ValueKind
from wsopt.program.lazy import MOVED
from wsopt.program.program import Item
from wsopt.program.types import Space
from wsopt.targets import Operands
from wsopt.tensors.statements import Reduction, Statement
from wsopt.tensors.views import Role, View

_ROWS = frozenset({Role.ROW})


@dataclass(frozen=True, slots=True)
class Values(Maker):
    """Makes the steps of a loop that computes values between its products."""

    def values(self) -> Steps:
        """A loop that computes values between its products: phases of arithmetic, and a ring for each tensor, whose
        slots have the rows of all consumers.
        """
        rings, widened = self.streamed_rings(), self.region.widened
        read = {source.view for source in self.region.streamed_sources} if self.apart else set()
        wide = [self._wide(view) for view in widened]
        helper = {view: min(number, self.s.transforms - 1) for number, view in enumerate(widened)}
        steps = [self._widening(view, made, helper[view]) for view, made in zip(widened, wide, strict=True)]
        back = []
        for ring in rings:
            view = ring.members[0].view
            counts = Release(False, self.apart and view not in read)
            common, by = view in widened, helper.get(view, 0)
            back.append(
                Step(OpKind.RELEASE, ring.subjects[0], counts, apart=common, helper=by, common=common)
            )
        rings += [Ring(f"{made.name}_ring", (made.name,), made=(made,)) for made in wide]
        back += [Step(OpKind.RELEASE, made.name, Release(False)) for made in wide]
        held = tuple(map(self.member, self.region.stationary_operands))
        return tuple(rings), (*steps, *self._linked(list(self._value_parts())), *back), held

    def _wide(self, view: View) -> Member:
        """An operand in the products' type, as a role of its own leaves it: it lies as the tensor does."""
        roles = tuple(role for role in view.roles if role in (Role.STREAM, Role.INNER, Role.COLUMN))
        extents = tuple(map(self.region.extent, roles))
        name = _wide_name(self.region.operand_name(view))
        made = View(
            f"{view.tensor}_wide", self.region.operand_dtype, roles, extents, (extents[-1], 1), ((0,), (1,)), 2,
            constant=False,
        )  # fmt: skip
        return Member(made, name, self.shape(made, self.s.tile_rows), 1, by_rows=False)

    def _widening(self, view: View, made: Member, helper: int) -> Step:
        """What widens the elements of a K-block of an operand for all consumers, and leaves them in shared memory: so
        does the transform warpgroup of this number.
        """
        elements = math.prod(made.shape)
        work = Arithmetic(widening_mix(view.dtype, made.view.dtype), elements, 1, 0, (), waits=1)
        counts = Transform(work, elements * view.dtype.bits // 8, made.copy_bytes)
        return Step(
            OpKind.ELEMENTWISE, made.name, counts, self.read([view]), (ValueKind.TILE, made.name), made.shape,
            space=Space.SHARED, apart=True, helper=helper, common=True,
        )  # fmt: skip

    def _right(self, view: View) -> tuple[tuple[ValueKind, str], ...]:
        """The tile of a product's right operand: the tensor's, or what was made of it."""
        if view not in self.region.widened:
            return self.read([view])
        return ((ValueKind.TILE, _wide_name(self.region.operand_name(view))),)

    def _value_parts(self) -> Iterator[Part]:
        """Phases with the products that read them, then the sums over the streamed axis. Sums that a moving maximum
        rescales are rescaled in every K-block, or where it has moved by more than a little.
        """
        body, s = self.region.body, self.s
        level = body_levels(body)
        for number in range(max(level.values()) + 1):
            own = [item for item in body if level[item.name] == number and not is_sums(item)]
            items = tuple(item for item in own if not isinstance(item, Contraction))
            for name, part in self._phases(number, items):
                yield part_of(self._k_block_step(name, part))
            for item in (item for item in own if isinstance(item, Contraction)):
                yield from self._value_products(item)
        sums = [item for item in body if isinstance(item, Contraction) and is_sums(item)]
        for name, factor in ((item.name, item.rescale) for item in sums if item.rescale is not None):
            read, made = ((ValueKind.VALUE, factor),), (ValueKind.SUM, name)
            count = s.rows * s.columns
            work = Rescale(count, count * DType.F32.bits // 8 if self.apart else 0, MOVED if s.lazy else 1.0)
            step = Step(OpKind.RESCALE, name, work, read, made, None, ((OpKind.MMA, name, When.BEFORE),))
            if not s.corrections:
                yield Part(step, (factor,))
                continue
            yield self._handed(factor, name)
            given, after = ((ValueKind.OPERAND, factor),), (OpKind.WRITE, factor, When.SAME)
            yield Part(replace(step, inputs=given, after=(*step.after, after), apart=True))
        for item in sums:
            yield from self._promoted(item) if item.factors else self._value_products(item)

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
        lazy = lazy_rows(self.region) if self.s.lazy else None
        if lazy is not None and lazy.factor in {item.name for item in items}:  # a comparison, two selections
            work = replace(work, statements=work.statements + len(lazy.again) + 3)
        inputs = self.read(source.view for source in read_by(items, streamed))
        reduces = any(isinstance(item, Reduction) for item in items)
        after = ((OpKind.ELEMENTWISE, name, When.BEFORE),) if reduces else ()
        return Step(OpKind.ELEMENTWISE, name, work, inputs, (ValueKind.VALUE, name), None, after, items)

    def _value_products(self, product: Contraction) -> Iterator[Part]:
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
            yield Part(step)
            return
        made = ValueKind.RESULT, product.name
        if shares:
            step = replace(step, output=made, behind=tuple((OpKind.MMA, name) for name in fed))
        else:
            step = replace(step, output=made, after=(*step.after, (OpKind.READ, product.name, When.BEFORE)))
        yield Part(step)
        nbytes, value = self.s.rows * self.s.depth * DType.F32.bits // 8, (ValueKind.VALUE, product.name)
        read = Step(
            OpKind.READ,
            product.name,
            Moved(nbytes),
            (made,),
            value,
            after=((OpKind.MMA, product.name, When.SAME),),
        )
        yield Part(read, (), (product.name,), ((product.name, DType.F32.bits),))

    def _handed(self, factor: str, sums: str) -> Part:
        """The factors of a consumer's rows on their way to who rescales its sums, through shared memory: not before
        those of the K-block before have been taken.
        """
        counts = Moved(self.s.rows * DType.F32.bits // 8, written=True)
        step = Step(
            OpKind.WRITE, factor, counts, ((ValueKind.VALUE, factor),), (ValueKind.OPERAND, factor), (self.s.rows,),
            ((OpKind.RESCALE, sums, When.BEFORE),), space=Space.SHARED,
        )  # fmt: skip
        return Part(step, (factor,))

    def _written(self, value: str, product: str, scores: str) -> Part:
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
        return Part(step, (value,))

    def _value_product(self, product: Contraction) -> Part:
        """A product of a K-block: its values, or sums over K-blocks of values that were computed."""
        s, left, name, scores = self.s, product.left, product.name, is_scores(product)
        columns, deep = (s.depth, self.inner) if scores else (s.columns, s.depth)
        dtype, computed = self.region.operand_dtype, (left,) if isinstance(left, str) else ()
        counts = Product(s.rows, columns, deep, dtype, s.consumer_warps, 0, bool(computed) and not self.apart)
        first = (ValueKind.VALUE, left) if isinstance(left, str) else (ValueKind.STATIONARY, left.tensor)
        made = (ValueKind.VALUE if scores else ValueKind.SUM, name)
        after = ((OpKind.RESCALE, name, When.SAME),) if product.rescale is not None else ()
        inputs = (first, *self._right(product.right))
        step = Step(OpKind.MMA, name, counts, inputs, made, (s.rows, columns), after)
        return Part(step, computed, (name,), ((name, 32),) if scores else ())

    def _promoted(self, product: Contraction) -> Iterator[Part]:
        """A product that leaves partial sums, a set for each part of the K-block with factors of its own, and the
        step that adds them to the sums before they are made again.
        """
        s, name, part = self.s, product.name, self._value_product(product)
        factors = [source.view for source in self.region.sources if source.name in product.factors]
        sets, step = sum_sets(factors, s.depth), part.step
        assert isinstance(step.counts, Product), "a product's counts"
        partial, total, shape = (ValueKind.PARTIAL, name), (ValueKind.SUM, name), (s.rows, s.columns)
        made = replace(
            step, inputs=(*step.inputs, *self.read(factors)), output=partial,
            counts=replace(step.counts, factors=len(factors), sets=sets),
            shape=(sets, *shape) if sets > 1 else shape, after=((OpKind.ACCUMULATE, name, When.AGAIN),),
        )  # fmt: skip
        yield replace(part, step=made)
        after = ((OpKind.MMA, name, When.SAME), (OpKind.ACCUMULATE, name, When.BEFORE))
        counts = Promotion(sets * s.rows * s.columns, s.consumer_warps, True)
        yield Part(Step(OpKind.ACCUMULATE, name, counts, (partial, total), total, shape, after))

    def _linked(self, parts: Sequence[Part]) -> Iterator[Step]:
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
            yield replace(step, after=(*after, *step.after), holds=tuple(self.holds(part, parts)))


def _wide_name(name: str) -> str:
    """The name of a tensor whose elements another role has widened: no tensor's, for it has a blank."""
    return f"wide {name}"
