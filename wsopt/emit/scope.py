"""The scope of a tile's arithmetic: the items that are written, and how the kernel holds each value that they read.

Text of choices, of ends of rows and of reductions is written from a scope (`comparisons.py`, `row_ends.py`,
`reductions.py`); all of a scope's items together by `arithmetic.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from wsopt.emit.expressions import Operand
from wsopt.graph.types import DType
from wsopt.program.combination import made_of_reductions
from wsopt.program.types import Structure
from wsopt.tensors.statements import BEFORE, Item, Statement
from wsopt.tensors.views import Role

Age = Callable[[str], int]
"""How many times a value has been made again since it was made for the present iteration."""

Known = Callable[[str], Operand]
"""How the kernel holds a value where a line reads it, by name."""

ROW = frozenset({Role.ROW})


@dataclass(slots=True)
class Scope:
    """Items of one scope, in the order in which they are written.

    `items` are all that have a name in the scope, `sources` what is known besides, as operands; `name` gives the
    identifier of a value of an age. Whole tiles span `tile` and lie in `layout`. Under `asynchronous` products
    choices and roundings are written so that ptxas leaves them where they are. Reductions that are `carried` run on
    from iteration to iteration, over rows as one value a column where each thread has its `columns_together`; those
    `apart` are kept by each thread for its own columns, and so are all of tiles of rows in a layout of `threads`.
    Tiles that are `by_parts` of rows reach beyond the row's ends where the condition `ends` holds, none where it is
    empty. Products leave `results` and are `fed` values from registers, each cut for so many sets of sums; those, and
    what else is `wanted`, are read outside, some one by one (`by_address`). Branches that few parts take have their
    columns `numbered` by all parts, or number them themselves. Tensors that are `asked` for elements by their
    addresses, with the types that they have in memory, may have any number for what is beyond their rows. Roundings
    `in_pairs` take two neighbours at a time. `unmasked` has for each value its alternative where no mask is at work.
    What the text calls of the kernel's own functions is noted in `called`.
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
    in_pairs: frozenset[str] = frozenset()
    columns_together: bool = False
    unmasked: Mapping[str, str] = field(default_factory=dict)
    called: set[str] = field(default_factory=set)

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
