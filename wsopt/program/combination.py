"""How a tile's results come together where several blocks have a part of its loop each.

A loop that computes values carries, for each row, maxima and sums, and may rescale what it has summed when a maximum
has grown. The same factors rescale a part's sums to the largest maximum of all parts: a factor is computed from a
reduction before a K-block and with it, and a part's own maximum stands for the first, that of all for the second.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from wsopt.program.ids import OpKind
from wsopt.program.program import TileProgram
from wsopt.tensors.statements import BEFORE, Item, Reduction, Statement
from wsopt.tensors.views import Role

_ROW = frozenset({Role.ROW})


@dataclass(frozen=True, slots=True)
class Combination:
    """What of a part goes into a tile's result: `maxima` of rows, some of which `keep_nan`, `sums` of rows and of
    `products`, with the factor that rescales each, by name or None; and the `statements` that compute the factors, in
    order.
    """

    maxima: tuple[str, ...]
    keep_nan: frozenset[str]
    sums: tuple[tuple[str, str | None], ...]
    products: tuple[tuple[str, str | None], ...]
    statements: tuple[Statement, ...]

    @property
    def rows(self) -> tuple[str, ...]:
        """The values of a row, by name, in the order in which a part leaves them."""
        return (*self.maxima, *(name for name, _ in self.sums))


def combination(items: Iterable[Item], products: Mapping[str, str | None]) -> Combination | None:
    """How parts of a loop with these items come together; `products` have the factor of each product's sums.

    None where a factor takes more than maxima and numbers, so that it cannot be computed behind the loop.
    """
    known = {item.name: item for item in items}
    reductions = [item for item in known.values() if isinstance(item, Reduction)]
    factors = {one.rescale for one in reductions} | {*products.values()}
    wanted, needed = [name for name in factors if name is not None], set[str]()
    while wanted:
        item = known.get(wanted.pop().removesuffix(BEFORE))
        if isinstance(item, Statement) and item.spans <= _ROW:
            needed.add(item.name)
            wanted.extend(item.reads)
        elif not (isinstance(item, Reduction) and item.kind == "max" and item.rescale is None):
            return None
    return Combination(
        maxima=tuple(one.name for one in reductions if one.kind == "max"),
        keep_nan=frozenset(one.name for one in reductions if one.keeps_nan),
        sums=tuple((one.name, one.rescale) for one in reductions if one.kind == "sum"),
        products=tuple(products.items()),
        statements=tuple(
            item for item in known.values() if isinstance(item, Statement) and item.name in needed
        ),
    )


def kept_by_threads(items: Iterable[Item]) -> Combination | None:
    """How the results come together of rows that no SM holds, where each thread reduces its own elements of all parts
    and exchanges nothing until the last: as parts of a loop do. `items` are those of the loop over parts.

    None where parts do not come together by their maxima and sums alone: where a maximum begins anew, or a value
    of a row is computed of one that comes by address, or of a reduction and the row's own place. Then threads
    exchange in every part.
    """
    known = {item.name: item for item in items}
    reduced = made_of_reductions(tuple(known.values()))
    placed = {name for name, item in known.items() if _is_of_row(item)} - reduced
    for item in known.values():
        read = {name.removesuffix(BEFORE) for name in item.reads}
        if isinstance(item, Reduction):
            plain = item.kind == "sum" or not item.rescale
        else:
            apart = item.name in reduced and not read.isdisjoint(placed)
            plain = not _is_of_row(item) or (read <= known.keys() and not apart)
        if not plain:
            return None
    return combination(known.values(), {})


@functools.lru_cache(maxsize=64)
def made_of_reductions(items: tuple[Item, ...]) -> frozenset[str]:
    """The values of a row, by name, that reductions along it give, or that are made of those; not a row's place."""
    found = set[str]()
    for item in items:
        if isinstance(item, Reduction):
            of_row = not item.over_rows
        else:
            of_row = _is_of_row(item) and any(name.removesuffix(BEFORE) in found for name in item.reads)
        found.update([item.name] if of_row else ())
    return frozenset(found)


def _is_of_row(item: Item) -> bool:
    return isinstance(item, Statement) and item.spans == _ROW


def combination_of(program: TileProgram) -> Combination | None:
    """How the parts of a tile program's loop come together; None where they cannot, or are products' sums alone."""
    factors = {op.id.subject: op.inputs[0].subject for op in program.of(OpKind.RESCALE)}
    products = {name: factors.get(name) for name in program.summed}
    return combination(program.items, products) if program.work else None
