"""Lazy rescaling: a row's maximum that has grown by little is left as it was, and its sums need no factor.

Sums over exponentials of differences to a running maximum are exact whatever stands for the maximum, as long as one
number does for all of a row, and what is made of them in the end does not depend on it. So a row keeps the maximum of
the K-block before while the factor that the new one would bring is `LEAST` at least: exponentials are then 1 / LEAST
at most, far from the end of bf16, f16 and f32. Where all rows of a tile keep theirs nobody multiplies its sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from wsopt.tensors.statements import BEFORE, Item, Reduction, Statement
from wsopt.tensors.views import Role

LEAST = 2.0**-8
"""Factor that is not worth a rescaling: flash-attn-4 leaves a maximum that has grown by 8 in the exponent of 2."""

MOVED = 0.1
"""Share of the K-blocks in which some row of a tile moves. Reported: of flash-attn-4's rescalings a tenth are left,
by its authors, and by Modal, who took it apart (modal.com/blog, 2025-09). It depends on the data.
"""

_RATIOS, _ALIKE = {"mul": 1, "div": -1}, frozenset({"add", "sub", "minimum", "maximum"})


@dataclass(frozen=True, slots=True)
class Lazy:
    """The running `maximum` that a row may keep, the `factor` that says whether it moves, and the row's values that
    are computed `again` from what it keeps, in order.
    """

    maximum: str
    factor: str
    again: tuple[str, ...]


def lazy_of(
    items: Sequence[Item], sums: Mapping[str, str | None], after: Sequence[Item], outputs: Iterable[str]
) -> Lazy | None:
    """How a loop's maximum can be kept, or None where it cannot. `items` are the loop's, `sums` its products of sums
    with their factors; `after` and `outputs` are what is made of them.

    All sums have one factor, of one maximum, which nothing but that factor's own row values read; and what is stored
    is the same whatever the sums were multiplied by.
    """
    factors = {*sums.values()} | {i.rescale for i in items if isinstance(i, Reduction) and i.kind == "sum"}
    known = {item.name: item for item in items}
    if len(factors) != 1 or None in factors:
        return None
    (factor,) = (one for one in factors if one is not None)
    needed = set(_needed(factor, known))
    maxima = [i for i in items if isinstance(i, Reduction) and i.name in needed]
    rows = [i for i in items if isinstance(i, Statement) and i.name in needed and i.spans == _ROWS]
    if [i.kind for i in maxima] != ["max"] or factor not in {i.name for i in rows}:
        return None
    name, own = maxima[0].name, {i.name for i in rows}
    others = [item for item in items if item.name not in own]
    read = {one for item in (*others, *after) for one in item.reads} | {*outputs}
    if {name, name + BEFORE} & read or not _indifferent(items, sums, after, outputs):
        return None
    moved = {i.name for i in rows if name in _needed(i.name, known, before=False)} - {factor}
    wanted = {one for left in moved & read for one in _needed(left, known, before=False)}
    return Lazy(name, factor, tuple(i.name for i in rows if i.name in wanted & moved))


_ROWS = frozenset({Role.ROW})


def _needed(name: str, known: Mapping[str, Item], *, before: bool = True) -> Iterator[str]:
    """What a value is computed from, itself first, up to reductions; what those were `before` counts as they do."""
    waiting, seen = [name], set[str]()
    while waiting:
        one = waiting.pop()
        if one.endswith(BEFORE) and not before:
            continue
        one = one.removesuffix(BEFORE)
        if one in seen or one not in known:
            continue
        seen.add(one)
        yield one
        item = known[one]
        waiting += item.reads if isinstance(item, Statement) else ()


def _indifferent(
    items: Iterable[Item], sums: Iterable[str], after: Iterable[Item], outputs: Iterable[str]
) -> bool:
    """Whether outputs are the same when all of a row's sums are multiplied by one positive number."""
    degrees: dict[str, int | None] = dict.fromkeys(sums, 1)
    degrees |= {i.name: 1 for i in items if isinstance(i, Reduction) and i.kind == "sum"}
    for item in after:
        degrees[item.name] = _degree(item, degrees) if isinstance(item, Statement) else None
    return all(degrees.get(name, 0) == 0 for name in outputs)


def _degree(item: Statement, degrees: Mapping[str, int | None]) -> int | None:
    """With which power of the sums' factor a value grows; None where it does otherwise."""
    own = [degrees.get(arg, 0) if isinstance(arg, str) else 0 for arg in item.args]
    if None in own:
        return None
    of = [one for one in own if one is not None]
    match item.primitive:
        case "mul" | "div":
            return of[0] + _RATIOS[item.primitive] * of[1]
        case "equal" if item.args[1] == 0.0:  # of zero every multiple is zero
            return 0
        case "where" if of[0] == 0 and _guards(item, of):
            return max(of[1:])
        case one if one in _ALIKE and len({*of}) == 1:
            return of[0]
        case _:
            return 0 if not any(of) else None


def _guards(item: Statement, degrees: Sequence[int]) -> bool:
    """Whether a selection is of values that grow alike, or of a number that stands for sums of zero."""
    return degrees[1] == degrees[2] or not isinstance(item.args[1], str)
