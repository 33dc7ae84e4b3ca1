"""The arithmetic of a tile as Gluon text: scalar statements on whole tiles, reductions of their rows.

One writer serves a loop's phases, what is computed beside products, tiles of rows that stream, and epilogues. They
differ in the items, in what is known before, in the layout in registers, and in whether reductions run on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from wsopt.emit import choices, roundings
from wsopt.emit.expressions import Operand, broadcast, chosen_in_f32, expression, helpers, in_f32, number
from wsopt.emit.tensors import GLUON
from wsopt.graph.types import DType
from wsopt.program.types import Structure
from wsopt.tensors.statements import BEFORE, Item, Reduction, Scalar, Statement
from wsopt.tensors.views import Role

Age = Callable[[str], int]
"""How many times a value has been made again since it was made for the present iteration."""

ROW = frozenset({Role.ROW})
_ZEROS = {**GLUON, DType.BOOL: "gl.int1"}
_STARTS = {"max": 'float("-inf")', "sum": "0"}


@dataclass(slots=True)
class Arithmetic:
    """Writes items of one scope, in the order given.

    `items` are all that have a name in the scope, `sources` what is known besides, as operands; `name` gives the
    identifier of a value of an age. Whole tiles span `tile` and lie in `layout`. Under `asynchronous` products
    choices and roundings are written so that ptxas leaves them where they are. Reductions that are `carried` run on
    from iteration to iteration; those `apart` are kept by each thread for its own columns. Products leave `results`
    and are `fed` values from registers; those, and what else is `wanted`, are read outside. `unmasked` has for each
    value its alternative where no mask is at work. What the text calls of the kernel's own functions is noted in
    `called`.
    """

    items: tuple[Item, ...]
    s: Structure
    name: Callable[[str, int], str]
    sources: Mapping[str, Operand]
    tile: frozenset[Role]
    layout: str
    asynchronous: bool
    wanted: frozenset[str]
    results: frozenset[str] = frozenset()
    fed: frozenset[str] = frozenset()
    carried: bool = True
    apart: frozenset[str] = frozenset()
    unmasked: Mapping[str, str] = field(default_factory=dict)
    called: set[str] = field(default_factory=set)

    # --- what is there ----------------------------------------------------------------------------------

    def item(self, name: str) -> Item:
        """The item of this name."""
        return next(item for item in self.items if item.name == name.removesuffix(BEFORE))

    def operand(self, name: str, age: int = 0) -> Operand:
        """A value as the kernel holds it."""
        if name in self.sources:
            return self.sources[name]
        if name in self.results:
            return Operand(self.name(name, age), self.tile, DType.F32)
        item = self.item(name)
        spans = ROW if isinstance(item, Reduction) else item.spans
        dtype = item.dtype if isinstance(item, Statement) else DType.F32
        return Operand(self.name(name, age), spans, dtype)

    def left_over(self, items: tuple[str, ...]) -> tuple[str, ...]:
        """The values of some items that others read."""
        readers = [item for item in self.items if item.name not in items]
        outside = {a for item in readers for a in item.reads} | self.wanted
        return tuple(name for name in items if name in outside)

    def _alias(self, *, masked: bool) -> Mapping[str, str]:
        return {} if masked else self.unmasked

    def needed(self, *, masked: bool = True) -> set[str]:
        """The items that have to be computed: not what only a mask needs that is left out, nor comparisons that are
        part of a choice.
        """
        alias, found = self._alias(masked=masked), set[str]()
        known = {item.name for item in self.items}
        wanted = list(self.wanted)
        wanted += [i.name for i in self.items if isinstance(i, Reduction) and self.carried]
        while wanted:
            name = wanted.pop().removesuffix(BEFORE)
            while name in alias:
                name = alias[name]
            if name in known and name not in found:
                found.add(name)
                wanted.extend(self.read(self.item(name)))
        return found

    def read(self, item: Item) -> Iterator[str]:
        """The values that an item's text names: a choice by comparisons names their operands."""
        compared = self._compared(item)
        if not compared:
            yield from item.reads
            return
        assert isinstance(item, Statement)
        named = [*item.args[1:], *(a for one in compared for a in (one.left, one.right))]
        yield from (a for a in named if isinstance(a, str))

    def _compared(self, item: Item) -> tuple[choices.Comparison, ...]:
        """The comparisons by which elements of a tile are chosen, where they are of whole numbers."""
        if not self.asynchronous:
            return ()
        known = {one.name: one for one in self.items}
        return choices.comparisons(
            item, known.get, lambda name: self.operand(name).dtype is DType.I32, self.tile
        )

    def names_places(self, item: Item) -> bool:
        """Whether an item's text names the places of a K-block's elements."""
        own = isinstance(item, Statement) and item.primitive in ("iota_stream", "inside_stream")
        return own or any(one.left is None for one in self._compared(item))

    # --- text -------------------------------------------------------------------------------------------

    def phase(self, items: tuple[str, ...], age: Age, *, masked: bool) -> Iterator[str]:
        """Items in order; what other phases read of a value that has an alternative is known by its own name."""
        alias, needed, own = self._alias(masked=masked), self.needed(masked=masked), set[str]()

        def operand(name: str) -> Operand:
            while name in alias and name in items:
                name = alias[name]
            return self.operand(name, 0 if name in own else age(name.removesuffix(BEFORE)))

        for item in (self.item(name) for name in items if name in needed):
            if isinstance(item, Reduction):
                yield from self._reduction(item, operand)
            elif isinstance(item, Statement) and item.name not in alias:
                yield self._statement(item, operand)
                yield from self._register_operand(item)
            own.update((item.name, item.name + BEFORE))
        for name in self.left_over(items):
            if name in alias:
                yield f"{self.name(name, 0)} = {operand(name).name}"

    def _statement(self, item: Statement, operand: Callable[[str], Operand]) -> str:
        compared = self._compared(item)
        if compared:
            return f"{self.name(item.name, 0)} = {self._choice(item, compared, operand)}"
        terms = [operand(a) if isinstance(a, str) else a for a in item.args]
        rounds = roundings.rounding(item, terms, self.items) if self.asynchronous else None
        self.called |= {rounds} if rounds else helpers(item)
        (first, *_) = (*terms, None)
        text = f"{rounds}({first.name})" if rounds and isinstance(first, Operand) else None
        return f"{self.name(item.name, 0)} = {text or expression(item, terms, self.s)}"

    def _choice(
        self, item: Statement, compared: tuple[choices.Comparison, ...], operand: Callable[[str], Operand]
    ) -> str:
        def written(term: str | Scalar) -> str:
            return broadcast(operand(term), self.tile, self.s) if isinstance(term, str) else number(term)

        self.called |= {choices.helper(one.name) for one in compared} | helpers(item)
        values = (operand(term) if isinstance(term, str) else term for term in item.args[1:])
        chosen, other = (chosen_in_f32(value, self.tile, self.s) for value in values)
        end = ("gl.expand_dims(places, 0)", "stream_extent")
        return choices.choice(compared, chosen, other, written, end)

    def fed_name(self, value: str, age: int = 0) -> str:
        """The identifier of a value in the registers that feed a product."""
        return self.name(f"{value}$operand", age)

    def _register_operand(self, item: Statement) -> Iterator[str]:
        if item.name in self.fed:
            text = f"gl.convert_layout({self.name(item.name, 0)}, OPERAND_LAYOUT)"
            yield f"{self.fed_name(item.name)} = {text}"

    def _reduction(self, item: Reduction, operand: Callable[[str], Operand]) -> Iterator[str]:
        name, value = self.name(item.name, 0), in_f32(operand(item.value))
        if not self.carried:
            yield f"{name} = gl.{item.kind}({value}, axis=1)"
            return
        if any(item.name + BEFORE in other.reads for other in self.items):
            yield f"{self.name(item.name + BEFORE, 0)} = {name}"
        factor = None if item.rescale is None else operand(item.rescale).name
        if item.kind == "max":
            yield f"{name} = gl.maximum({name}, gl.max({value}, axis=1))"
        elif item.name in self.apart:
            self.called |= {"lane_sums"} if factor is None else {"lane_sums", "by_lanes"}
            kept = name if factor is None else f"by_lanes({name}, {factor})"
            yield f"{name} = {kept} + lane_sums({value})"
        else:
            kept = name if factor is None else f"{name} * {factor}"
            yield f"{name} = {kept} + gl.sum({value}, axis=1)"

    def rescale(self, sums: str, rescale: str, age: Age) -> str:
        """Multiply a product's sums by the factor of each row."""
        factor, name = self.operand(rescale, age(rescale)).name, self.name(sums, 0)
        rows = f"gl.convert_layout({factor}, gl.SliceLayout(1, SUM_LAYOUT))"
        return f"{name} = {name} * gl.expand_dims({rows}, 1)"

    # --- what the loop carries --------------------------------------------------------------------------

    def starts(self, older: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Initial values of reductions before the first iteration, and of values that are kept as `older`."""
        starts = [
            f"{self.name(i.name, 0)} = {self._start(i)}" for i in self.items if isinstance(i, Reduction)
        ]
        return (*starts, *(f"{self.name(name, 1)} = {self._older(name)}" for name in older))

    def _start(self, item: Reduction) -> str:
        if item.name in self.apart:
            self.called.add("lane_sums")
            return f"lane_sums({self._zeros(DType.F32)})"
        return self._row(_STARTS[item.kind], DType.F32)

    def _older(self, name: str) -> str:
        value = self.operand(name)
        return self._zeros(value.dtype) if Role.STREAM in value.spans else self._row("0", value.dtype)

    def _zeros(self, dtype: DType) -> str:
        return f"gl.zeros([CONSUMER_ROWS, TILE_DEPTH], {_ZEROS[dtype]}, {self.layout})"

    def _row(self, start: str, dtype: DType) -> str:
        return f"gl.full([CONSUMER_ROWS], {start}, {_ZEROS[dtype]}, gl.SliceLayout(1, {self.layout}))"
