"""The arithmetic of a loop over K-blocks as Gluon text: values, their reductions, the products' operands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from wsopt.emit.choices import Comparison, choice, comparisons
from wsopt.emit.expressions import Operand, broadcast, chosen_in_f32, expression, in_f32, number
from wsopt.emit.instructions import Assign, Instruction
from wsopt.emit.names import Names
from wsopt.emit.roundings import rounding
from wsopt.emit.tensors import GLUON
from wsopt.frontend.types import K_BLOCK, Contraction, Reduction, Region, Role, Scalar, Statement
from wsopt.graph.types import DType
from wsopt.lowering.body import BEFORE, BodyItem, arguments, is_scores
from wsopt.program.program import OpKind, TileOp
from wsopt.program.types import Structure

Age = Callable[[str], int]
_ROW = frozenset({Role.ROW})
_ZEROS = {**GLUON, DType.BOOL: "gl.int1"}


@dataclass(slots=True)
class KBlockWriter:
    """Writes phases and rescalings. `sources` are the tensors that the loop's values read, as operands, `apart` the
    sums that each thread keeps of its own columns.
    """

    region: Region
    s: Structure
    names: Names
    apart: frozenset[str]
    sources: dict[str, Operand] = field(default_factory=dict)

    def name(self, value: str, age: int = 0) -> str:
        """The identifier of a value of the loop; of what it was `age` K-blocks before."""
        plain = value.replace("$", "_").replace(BEFORE, "_past")
        return (
            self.names(f"value:{value}", plain)
            if age == 0
            else self.names(f"value:{value}-{age}", f"{plain}_old{'er' * (age - 1)}")
        )

    def _item(self, name: str) -> BodyItem:
        return next(item for item in self.region.body if item.name == name)

    def product(self, name: str) -> Contraction:
        """The product of this name."""
        item = self._item(name)
        assert isinstance(item, Contraction), name
        return item

    def _operand_key(self, product: Contraction) -> str:
        return f"{product.left}$operand"

    def operand(self, product: Contraction, age: Age) -> str:
        """The identifier of the registers that feed a product."""
        assert isinstance(product.left, str), product.name
        return self.name(self._operand_key(product), age(product.left))

    def reads(self, op: TileOp) -> set[str]:
        """The loop's values that an operation reads from others."""
        if op.kind is OpKind.RESCALE:
            return {self.product(op.makes[0]).rescale or ""}
        if op.kind is OpKind.MMA:
            left = self.product(op.makes[0]).left
            return {left} if isinstance(left, str) else set()
        return {a for item in op.makes for a in arguments(self._item(item)) if a not in op.makes}

    def products_read(self, items: tuple[str, ...]) -> tuple[str, ...]:
        """The products whose results a phase reads."""
        found = [a for item in items for a in arguments(self._item(item)) if a not in items]
        known = {item.name for item in self.region.body if is_scores(item)}
        return tuple(dict.fromkeys(name for name in found if name in known))

    def products_fed(self, items: tuple[str, ...]) -> tuple[str, ...]:
        """The products whose left operand a phase makes."""
        products = (item for item in self.region.body if isinstance(item, Contraction))
        return tuple(product.name for product in products if product.left in items)

    def left_over(self, items: tuple[str, ...]) -> tuple[str, ...]:
        """The values of a phase that other operations read."""
        readers = [item for item in self.region.body if item.name not in items]
        outside = {a for item in readers for a in arguments(item)}
        return tuple(name for name in items if name in outside)

    # --- text -------------------------------------------------------------------------------------------

    def _alias(self, *, masked: bool) -> dict[str, str]:
        return {} if masked else dict(self.region.unmasked)

    def _needed(self, *, masked: bool) -> set[str]:
        """The items that the loop has to compute: with masks left out, what only they need is not."""
        alias = self._alias(masked=masked)
        needed: set[str] = set()
        wanted = [i.name for i in self.region.body if isinstance(i, Reduction | Contraction)]
        known = {item.name for item in self.region.body}
        while wanted:
            name = wanted.pop().removesuffix(BEFORE)
            while name in alias:
                name = alias[name]
            if name in known and name not in needed:
                needed.add(name)
                wanted.extend(self._read(self._item(name)))
        return needed

    def _read(self, item: BodyItem) -> Iterator[str]:
        """The values that an item's text names: a choice by comparisons names their operands."""
        compared = self._compared(item)
        if not compared:
            yield from arguments(item)
            return
        assert isinstance(item, Statement)
        named = [*item.args[1:], *(a for one in compared for a in (one.left, one.right))]
        yield from (a for a in named if isinstance(a, str))

    def _compared(self, item: BodyItem) -> tuple[Comparison, ...]:
        known = {one.name: one for one in self.region.body}
        return comparisons(item, known.get, lambda name: self._as_operand(name, 0).dtype is DType.I32)

    def phase(
        self, items: tuple[str, ...], age: Age, k_block: str, tiles: Mapping[str, str], *, masked: bool
    ) -> Iterator[Instruction]:
        """The items of a phase, in order; `tiles` are the slots of the streamed tensors that it reads."""
        alias, needed = self._alias(masked=masked), self._needed(masked=masked)
        own: set[str] = set()
        chosen = [self._item(name) for name in items if name in needed]
        if any(map(self._places_itself, chosen)):
            yield Assign(
                "places",
                f"(origin + {k_block}) * TILE_DEPTH + "
                "gl.arange(0, TILE_DEPTH, layout=gl.SliceLayout(0, K_BLOCK_LAYOUT))",
            )

        yield from self._reads_of(chosen, tiles)

        def operand(name: str) -> Operand:
            while name in alias and name in items:
                name = alias[name]
            return self._as_operand(name, 0 if name in own else age(name.removesuffix(BEFORE)))

        for item in chosen:
            if isinstance(item, Reduction):
                yield from self._reduction(item, operand)
            elif isinstance(item, Statement) and item.name not in alias:
                yield self._statement(item, operand)
                yield from self._register_operand(item)
            own.update((item.name, item.name + BEFORE))
        for name in self.left_over(items):  # other phases know a mask's value by its name, mask or not
            if name in alias:
                yield Assign(self.name(name), operand(name).name)

    def _places_itself(self, item: BodyItem) -> bool:
        """Whether an item's text names the places of a K-block's elements."""
        own = isinstance(item, Statement) and item.primitive in ("iota_stream", "inside_stream")
        return own or any(one.left is None for one in self._compared(item))

    def _reads_of(self, items: list[BodyItem], tiles: Mapping[str, str]) -> Iterator[Instruction]:
        """Streamed tensors' slots brought into registers, in the type that is computed with."""
        names = {name for item in items for name in self._read(item)}
        for source in (s for s in self.region.streamed_sources if s.name in names):
            layout = "K_BLOCK_LAYOUT" if source.spans == K_BLOCK else "gl.SliceLayout(0, K_BLOCK_LAYOUT)"
            operand = self.sources[source.name]
            convert = "" if source.view.dtype is operand.dtype else f".to({GLUON[operand.dtype]})"
            slot = tiles[self.region.operand_name(source.view)]
            yield Assign(operand.name, f"{slot}.load({layout}){convert}")

    def _as_operand(self, name: str, age: int) -> Operand:
        if name in self.sources:
            return self.sources[name]
        item = self._item(name.removesuffix(BEFORE))
        spans = _ROW if isinstance(item, Reduction) else item.spans
        dtype = item.dtype if isinstance(item, Statement) else DType.F32
        return Operand(self.name(name, age), spans, dtype)

    def _statement(self, item: Statement, operand: Callable[[str], Operand]) -> Instruction:
        compared = self._compared(item)
        if compared:
            return Assign(self.name(item.name), self._choice(item, compared, operand))
        terms = [operand(a) if isinstance(a, str) else a for a in item.args]
        text = rounding(item, terms, self.region.body) or expression(item, terms, self.s)
        return Assign(self.name(item.name), text)

    def _choice(
        self, item: Statement, compared: tuple[Comparison, ...], operand: Callable[[str], Operand]
    ) -> str:
        def written(term: str | Scalar) -> str:
            return broadcast(operand(term), K_BLOCK, self.s) if isinstance(term, str) else number(term)

        values = (operand(term) if isinstance(term, str) else term for term in item.args[1:])
        chosen, other = (chosen_in_f32(value, K_BLOCK, self.s) for value in values)
        return choice(compared, chosen, other, written, ("gl.expand_dims(places, 0)", "stream_extent"))

    def _register_operand(self, item: Statement) -> Iterator[Instruction]:
        for product in self.region.body:
            if isinstance(product, Contraction) and product.left == item.name:
                text = f"gl.convert_layout({self.name(item.name)}, OPERAND_LAYOUT)"
                yield Assign(self.name(self._operand_key(product)), text)
                return

    def _reduction(self, item: Reduction, operand: Callable[[str], Operand]) -> Iterator[Instruction]:
        name, value = self.name(item.name), in_f32(operand(item.value))
        if any(item.name + BEFORE in arguments(other) for other in self.region.body):
            yield Assign(self.name(item.name + BEFORE), name)
        if item.kind == "max":
            yield Assign(name, f"gl.maximum({name}, gl.max({value}, axis=1))")
            return
        if item.name in self.apart:
            kept = name if item.rescale is None else f"by_lanes({name}, {operand(item.rescale).name})"
            yield Assign(name, f"{kept} + lane_sums({value})")
            return
        kept = name if item.rescale is None else f"{name} * {operand(item.rescale).name}"
        yield Assign(name, f"{kept} + gl.sum({value}, axis=1)")

    def rescale(self, sums: str, age: Age) -> Iterator[Instruction]:
        """Multiply a product's sums by the factor of each row."""
        rescale = self.product(sums).rescale or ""
        factor = self._as_operand(rescale, age(rescale)).name
        name = self.name(sums)
        yield Assign(
            name, f"{name} * gl.expand_dims(gl.convert_layout({factor}, gl.SliceLayout(1, SUM_LAYOUT)), 1)"
        )

    def starts(self, older: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        """Every value that the loop carries, with what it is before the first K-block; those kept as `older` too."""
        carried: list[tuple[str, BodyItem]] = [
            (self.name(i.name), i) for i in self.region.body if isinstance(i, Reduction | Contraction)
        ]
        carried += [(self.name(name, 1), self._item(name)) for name in older]
        return tuple((name, self._start(item)) for name, item in carried)

    def _start(self, item: BodyItem) -> str:
        if isinstance(item, Contraction):
            scores = item.spans == K_BLOCK
            columns, layout = ("TILE_DEPTH", "K_BLOCK_LAYOUT") if scores else ("TILE_COLUMNS", "SUM_LAYOUT")
            return f"gl.zeros([CONSUMER_ROWS, {columns}], gl.float32, {layout})"
        if isinstance(item, Statement) and Role.STREAM in item.spans:
            return f"gl.zeros([CONSUMER_ROWS, TILE_DEPTH], {_ZEROS[item.dtype]}, K_BLOCK_LAYOUT)"
        if item.name in self.apart:
            return "lane_sums(gl.zeros([CONSUMER_ROWS, TILE_DEPTH], gl.float32, K_BLOCK_LAYOUT))"
        start = 'float("-inf")' if isinstance(item, Reduction) and item.kind == "max" else "0"
        dtype = _ZEROS[item.dtype] if isinstance(item, Statement) else "gl.float32"
        return f"gl.full([CONSUMER_ROWS], {start}, {dtype}, gl.SliceLayout(1, K_BLOCK_LAYOUT))"
