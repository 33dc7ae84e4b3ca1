"""The arithmetic of a tile as Gluon text: scalar statements on whole tiles, reductions of their rows.

One writer serves a loop's phases, what is computed beside products, tiles of rows that stream, and epilogues. They
differ in the items, in what is known before, in the layout in registers, and in whether reductions run on.

Under products elements of a tile are chosen by comparisons of whole numbers in one piece of assembly each. Apart, a
comparison does not wait for the product whose elements it chooses: ptxas moves all of them up before the product's
end, has predicates for seven, and packs the others into registers and out again. Together they take two instructions
an element. Roundings of elements that are computed with further are written as one instruction for two elements:
single ones ptxas moves up before the end of the product whose sums they round, and then runs the products one by one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from wsopt.emit.called import (
    BRANCH,
    BRANCH_COLUMNS,
    COLUMNS_FROM,
    FOR_ELEMENTS,
    KEPT_BRANCH,
    LARGER,
    OWN,
    ROUNDINGS,
    reduction,
)
from wsopt.emit.expressions import Operand, broadcast, expression, for_elements, helpers, in_type, number
from wsopt.emit.instructions import when
from wsopt.emit.sums import accumulator_names, accumulators, cut_along, operand_layouts
from wsopt.emit.tensors import GLUON
from wsopt.graph.types import DType
from wsopt.primitives import PRIMITIVES
from wsopt.program.combination import made_of_reductions
from wsopt.program.types import Structure
from wsopt.tensors.statements import BEFORE, Item, Reduction, Scalar, Statement
from wsopt.tensors.views import K_BLOCK, Role

Age = Callable[[str], int]
"""How many times a value has been made again since it was made for the present iteration."""


Comparison = tuple[str, str | Scalar | None, str | Scalar | None]
"""A comparison of whole numbers: its instruction's name and its operands, None for the streamed axis's end."""

ROW = frozenset({Role.ROW})
_ZEROS = {**GLUON, DType.BOOL: "gl.int1"}
_STARTS = {"max": 'float("-inf")', "sum": "0"}


@dataclass(slots=True)
class Arithmetic:
    """Writes items of one scope, in the order given.

    `items` are all that have a name in the scope, `sources` what is known besides, as operands; `name` gives the
    identifier of a value of an age. Whole tiles span `tile` and lie in `layout`. Under `asynchronous` products
    choices and roundings are written so that ptxas leaves them where they are. Reductions that are `carried` run on
    from iteration to iteration; those `apart` are kept by each thread for its own columns, and so are all of tiles of
    rows in a layout of `threads`. Tiles that are `by_parts` of rows reach beyond the row's ends where the
    condition `ends` holds, none where it is empty. Products leave `results` and are `fed` values from registers, each
    cut for so many sets of sums; those, and what else is `wanted`, are read outside, some one by one (`by_address`).
    Branches that few parts take have their columns `numbered` by all parts, or number them themselves. Tensors that
    are `asked` for elements by their addresses, with the types that they have in memory, may have any number for what
    is beyond their rows. `unmasked` has for each value its alternative where no mask is at work. What the text calls
    of the kernel's own functions is noted in `called`.
    """

    items: tuple[Item, ...]
    s: Structure
    name: Callable[[str, int], str]
    sources: Mapping[str, Operand]
    tile: frozenset[Role]
    layout: str
    asynchronous: bool
    wanted: frozenset[str]
    by_address: frozenset[str] = frozenset()
    results: frozenset[str] = frozenset()
    fed: Mapping[str, int] = field(default_factory=dict)
    carried: bool = True
    apart: frozenset[str] = frozenset()
    threads: str = ""
    by_parts: bool = False
    ends: str = ""
    numbered: bool = False
    asked: Mapping[str, DType] = field(default_factory=dict)
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
        spans = item.spans if isinstance(item, Statement) else self.tile if item.over_rows else ROW
        dtype = item.dtype if isinstance(item, Statement) else DType.F32
        own = bool(self.threads) and item.name in made_of_reductions(self.items)
        return Operand(self.name(name, age), spans, dtype, own=own)

    def left_over(self, items: tuple[str, ...]) -> tuple[str, ...]:
        """The values of some items that others read."""
        readers = [item for item in self.items if item.name not in items]
        outside = {a for item in readers for a in item.reads} | self.wanted
        return tuple(name for name in items if name in outside)

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
        compared = self._compared(item)
        if not isinstance(item, Statement) or not compared:
            return list(item.reads)
        named = (*item.args[1:], *(side for _, *sides in compared for side in sides))
        return [one for one in named if isinstance(one, str)]

    def read_by(self, items: tuple[Item, ...], *, masked: bool) -> set[str]:
        """The values that the text of some items names; where no mask is at work, the alternatives that some have."""
        alias, found = {} if masked else self.unmasked, set[str]()
        for name in (name for item in items for name in self.read(item)):
            while name in alias:
                name = alias[name]
            found.add(name)
        return found

    def _compared(self, item: Item) -> tuple[Comparison, ...]:
        """The comparisons that all have to hold where a statement chooses its first value; none if it is no such
        choice between elements of a tile under products, or is also by what is no comparison of whole numbers.
        """
        if not self.asynchronous or not isinstance(item, Statement) or item.primitive != "where":
            return ()
        if item.spans != self.tile or item.dtype is not DType.F32:
            return ()
        found = tuple(self._conjuncts(item.args[0]))
        return tuple(one for one in found if one) if all(found) else ()

    def _conjuncts(self, condition: str | Scalar) -> Iterator[Comparison | None]:
        """The comparisons that a condition is made of; None for what is no comparison of whole numbers."""
        item = next((one for one in self.items if one.name == condition), None)
        if not isinstance(item, Statement):
            yield None
        elif item.primitive == "logical_and":
            for part in item.args:
                yield from self._conjuncts(part)
        elif item.primitive == "inside_stream":
            yield ("lt", None, None)
        elif facts := PRIMITIVES[item.primitive].comparison:
            left, right = item.args
            whole = (
                isinstance(a, int) or (isinstance(a, str) and self.operand(a).dtype is DType.I32)
                for a in item.args
            )
            yield (facts.instruction, left, right) if all(whole) else None
        else:
            yield None

    def names_places(self, item: Item) -> bool:
        """Whether an item's text names the places of a K-block's elements."""
        own = isinstance(item, Statement) and item.primitive in ("iota_stream", "inside_stream")
        return own or any(left is None for _, left, _ in self._compared(item))

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
                yield from self._reduction(item, operand)
            elif self._hides(item):
                yield from self._hidden(item, operand)
            elif isinstance(item, Statement) and item.name not in alias and not self._tells_ends(item):
                yield f"{self.name(item.name, 0)} = {self._statement(item, operand)}"
                if item.name in self.fed:
                    yield from self._operands(item.name)
            own.update((item.name, item.name + BEFORE))
        for name in self.left_over(items):
            if name in alias:
                yield f"{self.name(name, 0)} = {self._alternative(name, operand(name))}"

    def _branch(self) -> tuple[str, str]:
        """The first line of a branch that few parts take, and the numbers of the columns in it."""
        self.called |= {OWN} if self.numbered else {OWN, COLUMNS_FROM}
        return (KEPT_BRANCH, "columns") if self.numbered else (BRANCH, BRANCH_COLUMNS)

    def keeps_to_rows(self, name: str) -> bool:
        """Whether nothing is computed of a tile's elements beyond the ends of its rows: all that reads them hides
        them.
        """
        readers = [item for item in self.items if name in item.reads]
        return bool(readers) and all(map(self._hides, readers))

    def beyond(self, name: str) -> float | None:
        """The number that all which reads a tensor's elements has in place of those beyond the ends of rows, if it is
        asked for elements, and its type has that number.
        """
        dtype = self.asked.get(name)
        if dtype is None or not self.keeps_to_rows(name):
            return None
        others = {item.args[2] for item in self.items if isinstance(item, Statement) and name in item.reads}
        number, *more = (float(other) for other in others if not isinstance(other, str))
        has = dtype is DType.F32 or (dtype in (DType.F16, DType.BF16) and (math.isinf(number) or not number))
        return number if has and not more else None

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

    def _tells_ends(self, item: Item) -> bool:
        """Whether an item only says which elements of a part a row has, for choices of the last part alone."""
        if not (self.by_parts and isinstance(item, Statement) and item.primitive == "inside_column"):
            return False
        return all(self._chooses(other, item) for other in self.items if item.name in other.reads)

    def _chooses(self, item: Item, mask: Statement) -> bool:
        """Whether an item is an element of a tile of f32, or a number beyond the row's end, as a mask says."""
        if not isinstance(item, Statement) or item.primitive != "where" or item.dtype is not DType.F32:
            return False
        condition, element, other = item.args
        if condition != mask.name or not isinstance(element, str) or isinstance(other, str):
            return False
        return self.operand(element).spans == item.spans == self.tile

    def _hides(self, item: Item) -> bool:
        """Whether an item hides what lies beyond the end of rows, which only the last part reaches."""
        masks = (one for one in self.items if one.name in item.reads and self._tells_ends(one))
        return any(isinstance(mask, Statement) and self._chooses(item, mask) for mask in masks)

    def _hidden(self, item: Item, operand: Callable[[str], Operand]) -> Iterator[str]:
        """Lines that hide what lies beyond the end, where the part reaches it: all others keep the tile as it is, and
        so do all where parts end with the row.
        """
        assert isinstance(item, Statement), "a choice"
        mask, kept, name = self.item(item.reads[0]), operand(item.reads[1]), self.name(item.name, 0)
        assert isinstance(mask, Statement), "a comparison"
        self.called |= helpers(item)
        yield f"{name} = {in_type(kept.name, kept, DType.F32)}"
        if self.ends and self.beyond(item.reads[1]) != item.args[2]:
            begin, columns = self._branch()
            inside = f"{self.name(mask.name, 0)} = {columns} < ROW_LENGTH"
            yield when(self.ends, f"{begin}\n{inside}\n{name} = {self._statement(item, operand)}")

    def _statement(self, item: Statement, operand: Callable[[str], Operand]) -> str:
        """The right-hand side of a statement."""
        if compared := self._compared(item):
            return self._choice(item, compared, operand)
        terms = [operand(a) if isinstance(a, str) else a for a in item.args]
        if self.asynchronous and item.primitive in ROUNDINGS and len(item.spans) > 1:
            (term,) = terms
            computed_with = any(item.name in other.reads for other in self.items)
            # What is stored by TMA is rounded where it is staged, two elements at a time.
            if (
                (computed_with or item.name in self.by_address)
                and isinstance(term, Operand)
                and term.dtype is DType.F32
            ):
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

    def _choice(
        self, item: Statement, compared: tuple[Comparison, ...], operand: Callable[[str], Operand]
    ) -> str:
        """The calls that choose, one in another."""

        def written(term: str | Scalar, wanted: DType | None = None) -> str:
            if not isinstance(term, str):
                return number(float(term) if wanted else term)
            text = broadcast(operand(term), self.tile, self.s)
            return in_type(text, operand(term), wanted) if wanted else text

        self.called |= {f"where_{name}" for name, _, _ in compared} | helpers(item)
        chosen, other = (written(term, DType.F32) for term in item.args[1:])
        for name, left, right in compared:
            end = "gl.expand_dims(places, 0), stream_extent"
            sides = end if left is None or right is None else f"{written(left)}, {written(right)}"
            chosen = f"where_{name}({sides}, {chosen}, {other})"
        return chosen

    def fed_names(self, value: str, age: int = 0) -> tuple[str, ...]:
        """The identifiers of a value in the registers that feed a product: one for each set of its sums and each
        accumulator of a set, whose layouts differ, not what lies in registers.
        """
        name, count = self.name(f"{value}$operand", age), self.fed[value] * len(operand_layouts(self.s))
        return tuple(f"{name}_{n}" if n else name for n in range(count))

    def _reduction(self, item: Reduction, operand: Callable[[str], Operand]) -> Iterator[str]:
        name, reduced = self.name(item.name, 0), operand(item.value)
        value = in_type(reduced.name, reduced, DType.F32)  # of a narrower type it would be computed in that
        if item.over_rows:
            self.called |= {"tl", LARGER} if item.kind == "max" else set()
            yield f"{name} = {LARGER}({name}, {value})" if item.kind == "max" else f"{name} += {value}"
            return
        if reduced.spans == {Role.COLUMN}:  # weights of columns: each row has its own sum of them
            value = f"gl.zeros([CONSUMER_ROWS, TILE_COLUMNS], gl.float32, {self.layout}) + gl.expand_dims({value}, 0)"
        self.called |= {"tl", LARGER} if item.keeps_nan else set()
        if self.threads:
            value = reduction(item.kind, f"by_threads({value})", 3, keeps_nan=item.keeps_nan)
        whole = reduction(item.kind, value, 1, keeps_nan=item.keeps_nan)
        if not self.carried:
            yield f"{name} = {whole}"
            return
        if any(item.name + BEFORE in other.reads for other in self.items):
            yield f"{self.name(item.name + BEFORE, 0)} = {name}"
        factor = None if item.rescale is None else operand(item.rescale).name
        if item.kind == "max":
            kept = name if factor is None else f"gl.where({factor}, {name}, NEG_INF)"
            self.called |= set() if factor is None else {"NEG_INF"}
            yield f"{name} = {LARGER if item.keeps_nan else 'gl.maximum'}({kept}, {whole})"
        elif item.name in self.apart and not self.threads:
            self.called |= {"lane_sums"} if factor is None else {"lane_sums", "by_lanes"}
            kept = name if factor is None else f"by_lanes({name}, {factor})"
            yield f"{name} = {kept} + lane_sums({value})"
        else:
            kept = name if factor is None else f"{name} * {factor}"
            yield f"{name} = {kept} + {whole}"

    def rescale(self, sums: str, rescale: str, age: Age) -> Iterator[str]:
        """Multiply a product's sums by the factor of each row."""
        factor = self.operand(rescale, age(rescale)).name
        names = accumulator_names(self.s, self.name(sums, 0))
        for name, one in zip(names, accumulators(self.s), strict=True):
            rows = f"gl.convert_layout({factor}, gl.SliceLayout(1, {one.layout}))"
            yield f"{name} = {name} * gl.expand_dims({rows}, 1)"

    # --- what the loop carries --------------------------------------------------------------------------

    def starts(self, older: tuple[str, ...] = ()) -> Iterator[str]:
        """Initial values of reductions before the first iteration, and of values that are kept as `older`."""

        def zeros(dtype: DType) -> str:
            return f"gl.zeros([CONSUMER_ROWS, TILE_DEPTH], {_ZEROS[dtype]}, {self.layout})"

        def row(start: str, dtype: DType) -> str:
            if self.threads:
                return f"gl.full([CONSUMER_ROWS, THREADS], {start}, {_ZEROS[dtype]}, {self.threads})"
            return f"gl.full([CONSUMER_ROWS], {start}, {_ZEROS[dtype]}, gl.SliceLayout(1, {self.layout}))"

        for item in (item for item in self.items if isinstance(item, Reduction)):
            if item.name in self.apart and not self.threads:
                self.called.add("lane_sums")
                start = f"lane_sums({zeros(DType.F32)})"
            else:
                start = row(_STARTS[item.kind], DType.F32)
            yield f"{self.name(item.name, 0)} = {start}"
        for name in older:
            value = self.operand(name)
            start = zeros(value.dtype) if Role.STREAM in value.spans else row("0", value.dtype)
            yield f"{self.name(name, 1)} = {start}"
