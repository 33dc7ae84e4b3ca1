"""The arithmetic of a tile as Gluon text: scalar statements on whole tiles, reductions of their rows.

One writer serves a loop's phases, what is computed beside products, tiles of rows that stream, and epilogues. They
differ in the items, in what is known before, in the layout in registers, and in whether reductions run on.

Roundings of elements that are computed with further are written, under products, as one instruction for two elements:
single ones ptxas moves up before the end of the product whose sums they round, and then runs the products one by one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from wsopt.emit.called import FOR_ELEMENTS, ROUNDINGS
from wsopt.emit.comparisons import choice, compared
from wsopt.emit.expressions import Operand, broadcast, expression, for_elements, helpers, in_type
from wsopt.emit.reductions import reduced
from wsopt.emit.row_ends import hidden, hides, tells_ends
from wsopt.emit.scope import Age, Known, Scope
from wsopt.emit.sums import cut_along, operand_layouts
from wsopt.graph.types import DType
from wsopt.primitives import PRIMITIVES
from wsopt.tensors.statements import BEFORE, Item, Reduction, Statement
from wsopt.tensors.views import K_BLOCK


@dataclass(slots=True)
class Arithmetic(Scope):
    """Writes the items of a scope, in the order given."""

    # --- what is needed ---------------------------------------------------------------------------------

    def needed(self, *, masked: bool = True) -> set[str]:
        """The items that have to be computed: not what only a mask needs that is left out, nor comparisons that are
        part of a choice.
        """
        alias, found = {} if masked else self.unmasked, set[str]()
        known = {item.name for item in self.items}
        carried = (i.name for i in self.items if isinstance(i, Reduction) and (self.carried or i.over_rows))
        wanted = [*self.wanted, *carried]
        while wanted:
            name = wanted.pop().removesuffix(BEFORE)
            while name in alias:
                name = alias[name]
            if name in known - found:
                found.add(name)
                wanted.extend(self.read(self.item(name)))
        return found

    def read(self, item: Item) -> list[str]:
        """The values that an item's text names: a choice by comparisons names their operands."""
        comparisons = compared(self, item)
        if not isinstance(item, Statement) or not comparisons:
            return list(item.reads)
        named = (*item.args[1:], *(side for _, *sides in comparisons for side in sides))
        return [one for one in named if isinstance(one, str)]

    def read_by(self, items: tuple[Item, ...], *, masked: bool) -> set[str]:
        """The values that the text of some items names; where no mask is at work, the alternatives that some have."""
        alias, found = {} if masked else self.unmasked, set[str]()
        for name in (name for item in items for name in self.read(item)):
            while name in alias:
                name = alias[name]
            found.add(name)
        return found

    def names_places(self, item: Item) -> bool:
        """Whether an item's text names the places of a K-block's elements."""
        own = isinstance(item, Statement) and item.primitive in ("iota_stream", "inside_stream")
        return own or any(left is None for _, left, _ in compared(self, item))

    # --- text -------------------------------------------------------------------------------------------

    def phase(self, items: tuple[str, ...], age: Age, *, masked: bool) -> Iterator[str]:
        """Items in order; what other phases read of a value that has an alternative is known by its own name."""
        alias, needed, own = {} if masked else self.unmasked, self.needed(masked=masked), set[str]()

        def operand(name: str) -> Operand:
            while name in alias and name in items:
                name = alias[name]
            return self.operand(name, 0 if name in own else age(name.removesuffix(BEFORE)))

        for item in (self.item(name) for name in items if name in needed):
            if isinstance(item, Reduction):
                yield from reduced(self, item, operand)
            elif hides(self, item):
                yield from hidden(self, item, operand, self._statement(item, operand))
            elif item.name not in alias and not tells_ends(self, item):
                yield f"{self.name(item.name, 0)} = {self._statement(item, operand)}"
                if item.name in self.fed:
                    yield from self._operands(item.name)
            own.update((item.name, item.name + BEFORE))
        for name in self.left_over(items):
            if name in alias:
                yield f"{self.name(name, 0)} = {self._alternative(name, operand(name))}"

    def _statement(self, item: Statement, operand: Known) -> str:
        """The right-hand side of a statement."""
        if comparisons := compared(self, item):
            return choice(self, item, comparisons, operand)
        terms = [operand(a) if isinstance(a, str) else a for a in item.args]
        if self._rounds_pairs(item):
            (term,) = terms
            if isinstance(term, Operand) and term.dtype is DType.F32:
                self.called.add(item.primitive)
                return f"{item.primitive}({term.name})"
        other = PRIMITIVES[item.primitive].otherwise
        if other is not None and self.s.exp2_eighths and item.spans == K_BLOCK:
            (term,) = terms
            assert isinstance(term, Operand), "of a number it is folded before"
            self.called.add(other.helper)
            return f"{other.helper}({in_type(term.name, term, DType.F32)})"
        self.called |= helpers(item)
        if any(isinstance(term, Operand) and for_elements(term, item.spans) for term in terms):
            self.called.add(FOR_ELEMENTS)
        return expression(item, terms, self.s)

    def _rounds_pairs(self, item: Statement) -> bool:
        """Whether a statement rounds two elements at a time by itself: those that it is told of, and under products
        what is computed with, or stored by address. What is stored by TMA is rounded where it is staged.
        """
        if item.name in self.in_pairs:
            return True
        if not self.asynchronous or item.primitive not in ROUNDINGS or len(item.spans) < 2:
            return False
        return item.name in self.by_address or any(item.name in other.reads for other in self.items)

    def _alternative(self, name: str, other: Operand) -> str:
        """The expression of a value by its alternative, which may be a tensor's elements as they lie in memory."""
        item = self.item(name)
        if other.name not in {one.name for one in self.sources.values()} or not isinstance(item, Statement):
            return other.name
        return in_type(broadcast(other, item.spans, self.s), other, item.dtype)

    def _operands(self, value: str) -> Iterator[str]:
        """Lines that bring a value to where products take it, set by set of their sums."""
        whole, sets, layouts = self.name(value, 0), self.fed[value], operand_layouts(self.s)
        parts = (whole,) if sets == 1 else tuple(f"{whole}_part_{n}" for n in range(sets))
        if sets > 1:
            yield from cut_along(whole, parts, self.s.depth)
        ends = itertools.product(parts, layouts)
        for name, (part, (layout, _)) in zip(self.fed_names(value), ends, strict=True):
            yield f"{name} = gl.convert_layout({part}, {layout})"

    def fed_names(self, value: str, age: int = 0) -> tuple[str, ...]:
        """The identifiers of a value in the registers that feed a product: one for each set of its sums and each
        accumulator of a set, whose layouts differ, not what lies in registers.
        """
        name, count = self.name(f"{value}$operand", age), self.fed[value] * len(operand_layouts(self.s))
        return tuple(f"{name}_{n}" if n else name for n in range(count))
