"""Masks by index conditions: the elements that count at all, and the values where all elements count.

A condition is a conjunction of comparisons of indices. Where every sum and maximum of the loop ignores what
one of them excludes, it is a bound of the loop: K-blocks outside are skipped, and K-blocks inside need no mask.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from wsopt.frontend.affine import Bounds, bounds_of, condition_bounds, conjuncts, every_row_counts
from wsopt.frontend.algebra import is_number
from wsopt.frontend.values import SINKS, Draft, Pool, Rewriter, Term, Value
from wsopt.graph.types import DType
from wsopt.primitives import Family, family_of
from wsopt.tensors.views import Bound, Role

HUGE = 1e9
"""A score of minus this or less has no weight beside any other: exp of the difference is zero in f32."""

# --- huge negative scores -------------------------------------------------------------------------------


@dataclass(slots=True)
class _HugeMasks(Rewriter):
    """Puts -inf for huge negative numbers in choices."""

    def visit(self, name: str, value: Value, args: tuple[Term, ...]) -> Term:
        if value.primitive == "where" and value.dtype is DType.F32:
            args = (args[0], *(-math.inf if _is_huge(a) else a for a in args[1:]))
        return self.copy(value, args)


def _is_huge(term: Term) -> bool:
    return _is_low(term) and term != -math.inf


def _is_low(term: Term) -> bool:
    return not isinstance(term, str) and term <= -HUGE


def _is_positive(term: Term, least: float = 0.0) -> bool:
    return not isinstance(term, str) and term > least


def _scores(draft: Draft) -> frozenset[str]:
    """The values that nothing but maxima and exponentials read, through sums and positive factors."""
    found: set[str] = set()
    other = {output for output in draft.outputs if isinstance(output, str)}
    for name, value in reversed(draft.live().items()):
        if name not in other:
            found.add(name)
        args = [a for a in value.args if isinstance(a, str)]
        match value.primitive:
            case "reduce_max" | "exp2":
                continue
            case "mul" if name in found and _is_positive(value.args[1], 2**-10):
                continue
            case "add" if name in found:
                continue
            case "where" if name in found:
                other.update(args[:1])
            case "sub" if name in found:
                other.update(args[1:])
            case _:
                other.update(args)
    return frozenset(found)


def replace_huge_numbers(draft: Draft) -> Draft:
    """An equal draft with -inf in place of huge negative scores, where the two are equal.

    It is not in a row of nothing but such scores, whose softmax is even; so every row has to have an element
    that all conditions leave in.
    """
    pool, scores = draft.pool, _scores(draft)
    choices = {name: value for name, value in draft.live().items() if value.primitive == "where"}
    masks = {name: value for name, value in choices.items() if any(map(_is_low, value.args[1:]))}
    if not any(_is_huge(a) for value in masks.values() for a in value.args[1:]):
        return draft
    bounds: set[Bound] = set()
    for name, value in masks.items():
        condition, _, y = value.args
        if not _is_low(y):
            condition = pool.make("logical_not", (condition,), DType.BOOL, value.node)
        found = [bounds_of(pool, part) for part in conjuncts(pool, condition)]
        if name not in scores or None in found:
            return draft
        bounds.update(b for part in found for b in part or ())
    if not every_row_counts(bounds, draft.axes.extent(Role.ROW), draft.axes.extent(Role.STREAM)):
        return draft
    return replace(_HugeMasks(draft).run(), full_rows=True)


# --- what counts ----------------------------------------------------------------------------------------


def _choice(pool: Pool, value: Value, branches: list[Bounds | None], neutral: float) -> Bounds:
    """Outside what a choice's result is neutral: a neutral branch adds its condition."""
    found: list[Bounds] = []
    condition, *terms = value.args
    for place, (term, inner) in enumerate(zip(terms, branches, strict=True)):
        if is_number(term, neutral):
            continue
        own = (
            condition_bounds(pool, condition) if place == 0 and is_number(terms[1], neutral) else frozenset()
        )
        found.append((inner or frozenset()) | own)
    return frozenset.intersection(*found) if found else frozenset()


def neutral_bounds(draft: Draft, neutral: float) -> dict[str, Bounds]:
    """For every value the bounds outside of which it is the neutral number: 0 of sums, -inf of maxima."""
    pool = draft.pool
    low = neutral_bounds(draft, -math.inf) if neutral == 0 else {}
    found: dict[str, Bounds] = {}

    def of(term: Term) -> Bounds:
        return found.get(term, frozenset()) if isinstance(term, str) else frozenset()

    for name, value in draft.live().items():
        args = value.args
        match value.primitive, neutral == 0:
            case "where", _:
                found[name] = _choice(pool, value, [of(a) for a in args[1:]], neutral)
            case ("mul", True) | ("add" | "minimum", False):
                found[name] = of(args[0]) | of(args[1])
            case ("add" | "sub", True) | ("maximum" | "minimum", _):
                found[name] = of(args[0]) & of(args[1])
            case ("div" | "neg" | "abs", True) | ("sub", False):
                found[name] = of(args[0])
            case "mul", False if _is_positive(args[1]):
                found[name] = of(args[0])
            case "exp2", True if isinstance(args[0], str):
                found[name] = low.get(args[0], frozenset())
            case primitive, _ if family_of(primitive) is Family.ROUNDING:
                found[name] = of(args[0])
    return {name: bounds for name, bounds in found.items() if bounds}


def loop_bounds(draft: Draft) -> tuple[Bound, ...]:
    """The bounds outside of which no sum and no maximum of the loop takes anything."""
    zero, low = neutral_bounds(draft, 0.0), neutral_bounds(draft, -math.inf)
    found = [
        (low if value.primitive == "reduce_max" else zero).get(str(value.args[0]), frozenset())
        for value in draft.live().values()
        if value.primitive in SINKS
    ]
    common = frozenset.intersection(*found) if found else frozenset()
    return tuple(sorted(common, key=lambda b: (b.row, b.stream, b.constant)))


# --- splitting choices ----------------------------------------------------------------------------------


@dataclass(slots=True)
class _MaskSplitter(Rewriter):
    """Cuts every choice into one by the loop's bounds and one by the rest of its condition."""

    bounds: Bounds = frozenset()
    unmasked: dict[str, Term] = field(default_factory=dict)

    def visit(self, name: str, value: Value, args: tuple[Term, ...]) -> Term:
        if value.primitive != "where":
            return self.copy(value, args)
        condition, x, y = args
        inside: list[Term] = []
        rest: list[Term] = []
        for part in conjuncts(self.pool, condition):
            found = bounds_of(self.pool, part)
            (inside if found is not None and set(found) <= self.bounds else rest).append(part)
        if not inside:
            return self.copy(value, args)
        inner = self._choose(value, rest, x, y)
        outer = self._choose(value, inside, inner, y)
        if isinstance(outer, str) and outer != inner and self.pool.match(outer, "where"):
            self.unmasked[outer] = inner
        return outer

    def _choose(self, value: Value, conditions: list[Term], x: Term, y: Term) -> Term:
        if not conditions:
            return x
        whole = conditions[0]
        for condition in conditions[1:]:
            whole = self.pool.make("logical_and", (whole, condition), DType.BOOL, value.node)
        return self.pool.make("where", (whole, x, y), value.dtype, value.node)


def bound_loop(draft: Draft) -> Draft:
    """An equal draft with the bounds of its loop, and the value of each choice by them where they hold."""
    bounds = loop_bounds(draft)
    splitter = _MaskSplitter(draft, bounds=frozenset(bounds))
    return replace(splitter.run(), bounds=bounds, unmasked=splitter.unmasked)
