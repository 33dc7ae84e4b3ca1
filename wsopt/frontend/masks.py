"""Masks by index conditions: the elements that count at all, and the values where all elements count.

A condition is a conjunction of comparisons of indices. Where every sum and maximum of the loop ignores what
one of them excludes, it is a bound of the loop: K-blocks outside are skipped, and K-blocks inside need no mask.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass, field, replace

from wsopt.frontend.affine import bounds_of
from wsopt.frontend.algebra import is_number
from wsopt.frontend.needed import every_row_counts
from wsopt.frontend.values import SINKS, Draft, Pool, Rewriter, Term, Value
from wsopt.graph.types import DType
from wsopt.primitives import Family, family_of
from wsopt.tensors.views import Bound, Role

HUGE = 1e9
"""A score of minus this or less has no weight beside any other: exp of the difference is zero in f32."""

Bounds = frozenset[Bound]
_NOWHERE: Bounds = frozenset()

# --- conditions -----------------------------------------------------------------------------------------


def conjuncts(pool: Pool, condition: Term) -> tuple[Term, ...]:
    """The conjuncts of a condition."""
    args = pool.match(condition, "logical_and")
    return (condition,) if args is None else tuple(c for a in args for c in conjuncts(pool, a))


# --- huge negative scores -------------------------------------------------------------------------------


@dataclass(slots=True)
class _HugeMasks(Rewriter):
    """Puts -inf for huge negative numbers in choices."""

    def _visit(self, name: str, value: Value, args: tuple[Term, ...]) -> Term:
        if value.primitive == "where" and value.dtype is DType.F32:
            args = (args[0], *(-math.inf if _is_low(a) else a for a in args[1:]))
        return self.copy(value, args)


def _is_low(term: Term) -> bool:
    return not isinstance(term, str) and term <= -HUGE


def _is_positive(term: Term, least: float = 0.0) -> bool:
    return not isinstance(term, str) and term > least


def _others(draft: Draft) -> frozenset[Term]:
    """The values that are no scores: these only maxima and exponentials read, through sums and positive factors."""
    found = set(draft.outputs)
    for name, value in reversed(draft.live().items()):
        match value.primitive:
            case "reduce_max" | "exp2":
                continue
            case "add" if name not in found:
                continue
            case "mul" if name not in found and _is_positive(value.args[1], 2**-10):
                continue
            case "where" if name not in found:
                found.add(value.args[0])
            case "sub" if name not in found:
                found.add(value.args[1])
            case _:
                found.update(value.args)
    return frozenset(found)


def replace_huge_numbers(draft: Draft) -> Draft:
    """An equal draft with -inf in place of huge negative scores, where the two are equal.

    It is not in a row of nothing but such scores, whose softmax is even; so every row has to have an element
    that all conditions leave in.
    """
    pool, others = draft.pool, _others(draft)
    masks = {
        name: value
        for name, value in draft.live().items()
        if value.primitive == "where" and any(map(_is_low, value.args[1:]))
    }
    if all(a == -math.inf for value in masks.values() for a in value.args[1:] if _is_low(a)):
        return draft
    bounds: set[Bound] = set()
    for name, value in masks.items():
        condition, _, y = value.args
        if not _is_low(y):
            condition = pool.make("logical_not", (condition,), DType.BOOL, value.node)
        found = [bounds_of(pool, part) for part in conjuncts(pool, condition)]
        if name in others or None in found:
            return draft
        bounds.update(b for part in found for b in part or ())
    if not every_row_counts(bounds, draft.axes.extent(Role.ROW), draft.axes.extent(Role.STREAM)):
        return draft
    return replace(_HugeMasks.of(draft), full_rows=True)


# --- what counts ----------------------------------------------------------------------------------------


def _neutral_bounds(draft: Draft, neutral: float) -> dict[str, Bounds]:
    """For every value the bounds outside of which it is the neutral number: 0 of sums, -inf of maxima."""
    pool = draft.pool
    low = _neutral_bounds(draft, -math.inf) if neutral == 0 else {}
    found: dict[str, Bounds] = {}

    def of(term: Term) -> Bounds:
        return found.get(str(term), _NOWHERE)

    for name, value in draft.live().items():
        args = value.args
        match value.primitive, neutral == 0:
            case "where", _:
                condition, x, y = args
                own = [bounds_of(pool, c) or () for c in conjuncts(pool, condition) if is_number(y, neutral)]
                sides = (x, of(x).union(*own)), (y, of(y))
                found[name] = _common([bounds for term, bounds in sides if not is_number(term, neutral)])
            case ("mul", True) | ("add" | "minimum", False):
                found[name] = of(args[0]) | of(args[1])
            case ("add" | "sub", True) | ("maximum" | "minimum", _):
                found[name] = of(args[0]) & of(args[1])
            case ("div" | "neg" | "abs", True) | ("sub", False):
                found[name] = of(args[0])
            case "mul", False if _is_positive(args[1]):
                found[name] = of(args[0])
            case "exp2", True:
                found[name] = low.get(str(args[0]), _NOWHERE)
            case primitive, _ if family_of(primitive) is Family.ROUNDING:
                found[name] = of(args[0])
    return found


def _common(found: list[Bounds]) -> Bounds:
    return frozenset.intersection(*found) if found else _NOWHERE


# --- splitting choices ----------------------------------------------------------------------------------


@dataclass(slots=True)
class _MaskSplitter(Rewriter):
    """Cuts every choice into one by the loop's bounds and one by the rest of its condition."""

    bounds: Bounds = _NOWHERE
    unmasked: dict[str, Term] = field(default_factory=dict)

    def _visit(self, name: str, value: Value, args: tuple[Term, ...]) -> Term:
        if value.primitive != "where":
            return self.copy(value, args)
        condition, x, y = args
        parts = conjuncts(self.pool, condition)
        inside = [part for part in parts if self.bounds.issuperset(bounds_of(self.pool, part) or (None,))]
        if not inside:
            return self.copy(value, args)
        inner = self._choose(value, [part for part in parts if part not in inside], x, y)
        outer = self._choose(value, inside, inner, y)
        if isinstance(outer, str) and outer != inner and self.pool.match(outer, "where"):
            self.unmasked[outer] = inner
        return outer

    def _choose(self, value: Value, conditions: list[Term], x: Term, y: Term) -> Term:
        if not conditions:
            return x
        whole = functools.reduce(
            lambda a, b: self.pool.make("logical_and", (a, b), DType.BOOL, value.node), conditions
        )
        return self.pool.make("where", (whole, x, y), value.dtype, value.node)


def bound_loop(draft: Draft) -> Draft:
    """An equal draft with the bounds of its loop, and the value of each choice by them where they hold.

    Outside of a bound no sum and no maximum of the loop takes anything.
    """
    zero, low = _neutral_bounds(draft, 0.0), _neutral_bounds(draft, -math.inf)
    sinks = [value for value in draft.live().values() if value.primitive in SINKS]
    taken = [
        (low if sink.primitive == "reduce_max" else zero).get(str(sink.args[0]), _NOWHERE) for sink in sinks
    ]
    splitter = _MaskSplitter(draft, bounds=_common(taken))
    bounds = sorted(splitter.bounds, key=dataclasses.astuple)
    return replace(splitter.run(), bounds=tuple(bounds), unmasked=splitter.unmasked)
