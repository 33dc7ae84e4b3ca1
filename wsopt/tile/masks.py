"""Affine predicates of the loop: which elements count at all, and what is computed where all of them do.

A condition is a conjunction of comparisons of indices. Where every sum and maximum of the loop ignores what
one of them excludes, it is a bound of the loop: slabs outside are skipped, and slabs inside need no mask.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from wsopt.graph.types import DType
from wsopt.tile.algebra import is_number
from wsopt.tile.expand import Term
from wsopt.tile.types import Bound
from wsopt.tile.values import SINKS, Flow, Pool, Rewriter, Value

HUGE = 1e9
"""A score of minus this or less has no weight beside any other: exp of the difference is zero in f32."""

Bounds = frozenset[Bound]


# --- affine expressions ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Affine:
    """row * i + stream * j + constant."""

    row: int = 0
    stream: int = 0
    constant: int = 0

    @property
    def fixed(self) -> bool:
        """Whether it is a number alone."""
        return self.row == 0 and self.stream == 0

    def times(self, k: int) -> _Affine:
        return _Affine(self.row * k, self.stream * k, self.constant * k)

    def plus(self, other: _Affine) -> _Affine:
        return _Affine(self.row + other.row, self.stream + other.stream, self.constant + other.constant)


def affine(pool: Pool, term: Term) -> _Affine | None:
    """A term as an affine function of the row and the streamed index, with whole numbers; None if it is none."""
    if not isinstance(term, str):
        whole = not isinstance(term, bool) and math.isfinite(term) and term == int(term)
        return _Affine(constant=int(term)) if whole else None
    value = pool[term]
    match value.primitive, value.args:
        case "iota_row", _:
            return _Affine(row=1)
        case "iota_stream", _:
            return _Affine(stream=1)
        case "round_f32", (x,):  # whole numbers below 2**24 are f32 numbers
            return affine(pool, x)
        case "neg", (x,):
            found = affine(pool, x)
            return found and found.times(-1)
        case (("add" | "sub"), (x, y)):
            first, second = affine(pool, x), affine(pool, y)
            if first is None or second is None:
                return None
            return first.plus(second.times(1 if value.primitive == "add" else -1))
        case "mul", (x, y):
            first, second = affine(pool, x), affine(pool, y)
            if first is None or second is None:
                return None
            if first.fixed:
                return second.times(first.constant)
            return first.times(second.constant) if second.fixed else None
    return None


def _bound(expression: _Affine) -> Bound:
    """expression >= 0, with the coefficients' common divisor taken out."""
    common = math.gcd(expression.row, expression.stream) or 1
    return Bound(expression.row // common, expression.stream // common, expression.constant // common)


def _at_most(pool: Pool, low: Term, high: Term, slack: int) -> tuple[Bound, ...] | None:
    """low <= high + slack; a magnitude is below two bounds."""
    inside = pool.match(low, "abs")
    if inside is not None:
        below, above = affine(pool, inside[0]), affine(pool, high)
        if below is None or above is None:
            return None
        return tuple(_bound(above.plus(below.times(sign)).plus(_Affine(constant=slack))) for sign in (-1, 1))
    below, above = affine(pool, low), affine(pool, high)
    if below is None or above is None:
        return None
    return (_bound(above.plus(below.times(-1)).plus(_Affine(constant=slack))),)


def bounds_of(pool: Pool, condition: Term) -> tuple[Bound, ...] | None:
    """The bounds that a comparison is, all of which have to hold; None if it is none of indices.

    Only bounds whose coefficients are -1, 0 and 1 are given: those that slabs are split by.
    """
    if not isinstance(condition, str):
        return None
    match pool[condition].primitive, pool[condition].args:
        case "less_equal", (x, y):
            found = _at_most(pool, x, y, 0)
        case "less", (x, y):
            found = _at_most(pool, x, y, -1)
        case "greater_equal", (x, y):
            found = _at_most(pool, y, x, 0)
        case "greater", (x, y):
            found = _at_most(pool, y, x, -1)
        case "equal", (x, y):
            low, high = _at_most(pool, x, y, 0), _at_most(pool, y, x, 0)
            found = None if low is None or high is None else low + high
        case _:
            return None
    if found is None or any(abs(b.row) > 1 or abs(b.stream) > 1 for b in found):
        return None
    return found


def conjuncts(pool: Pool, condition: Term) -> tuple[Term, ...]:
    """The conditions that hold together where this one does."""
    args = pool.match(condition, "logical_and")
    return (condition,) if args is None else tuple(c for a in args for c in conjuncts(pool, a))


def condition_bounds(pool: Pool, condition: Term) -> Bounds:
    """The bounds that a condition implies."""
    return frozenset(b for c in conjuncts(pool, condition) for b in bounds_of(pool, c) or ())


def every_row_counts(bounds: Iterable[Bound], rows: int, stream: int) -> bool:
    """Whether every row has an element of the streamed axis inside all bounds.

    The range of j that is left is at its shortest at the first or the last row: it is a concave function.
    """
    for row in (0, rows - 1):
        low, high = 0, stream - 1
        for b in bounds:
            edge = b.row * row + b.constant
            if b.stream == 0 and edge < 0:
                return False
            low = max(low, -edge) if b.stream > 0 else low
            high = min(high, edge) if b.stream < 0 else high
        if low > high:
            return False
    return True


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


def _scores(flow: Flow) -> frozenset[str]:
    """The values that nothing but maxima and exponentials read, through sums and positive factors."""
    found: set[str] = set()
    other = {output for output in flow.outputs if isinstance(output, str)}
    for name, value in reversed(list(flow.live())):
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


def replace_huge_numbers(flow: Flow, rows: int, stream: int) -> Flow:
    """The same outputs with -inf for huge negative scores, if that is the same.

    It is not in a row of nothing but such scores, whose softmax is even; so every row has to have an element
    that all conditions leave in.
    """
    pool, scores = flow.pool, _scores(flow)
    choices = [(name, value) for name, value in flow.live() if value.primitive == "where"]
    masks = [(name, value) for name, value in choices if any(map(_is_low, value.args[1:]))]
    if not any(_is_huge(a) for _, value in masks for a in value.args[1:]):
        return flow
    bounds: set[Bound] = set()
    for name, value in masks:
        condition, _, y = value.args
        if not _is_low(y):
            condition = pool.make("logical_not", (condition,), DType.BOOL, value.node)
        found = [bounds_of(pool, part) for part in conjuncts(pool, condition)]
        if name not in scores or None in found:
            return flow
        bounds.update(b for part in found for b in part or ())
    return _HugeMasks(flow).run() if every_row_counts(bounds, rows, stream) else flow


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


def neutral_bounds(flow: Flow, neutral: float) -> dict[str, Bounds]:
    """For every value the bounds outside of which it is the neutral number: 0 of sums, -inf of maxima."""
    pool = flow.pool
    low = neutral_bounds(flow, -math.inf) if neutral == 0 else {}
    found: dict[str, Bounds] = {}

    def of(term: Term) -> Bounds:
        return found.get(term, frozenset()) if isinstance(term, str) else frozenset()

    for name, value in flow.live():
        args = value.args
        match value.primitive:
            case "where":
                found[name] = _choice(pool, value, [of(a) for a in args[1:]], neutral)
            case "mul" if neutral == 0:
                found[name] = of(args[0]) | of(args[1])
            case "mul" if _is_positive(args[1]):
                found[name] = of(args[0])
            case "div" if neutral == 0:
                found[name] = of(args[0])
            case "exp2" if neutral == 0 and isinstance(args[0], str):
                found[name] = low.get(args[0], frozenset())
            case "neg" | "abs" if neutral == 0:
                found[name] = of(args[0])
            case "add" | "sub" if neutral == 0:
                found[name] = of(args[0]) & of(args[1])
            case "sub":
                found[name] = of(args[0])
            case "add" | "minimum" if neutral != 0:
                found[name] = of(args[0]) | of(args[1])
            case "maximum" | "minimum":
                found[name] = of(args[0]) & of(args[1])
            case primitive if primitive.startswith("round_"):
                found[name] = of(args[0])
    return {name: bounds for name, bounds in found.items() if bounds}


def end_is_masked(bounds: Iterable[Bound], rows: int, stream: int) -> bool:
    """Whether bounds leave every row without elements beyond the end of the streamed axis."""
    last = max(rows - 1, 0)
    return any(b.stream < 0 and max(b.constant, b.row * last + b.constant) < stream for b in bounds)


def loop_bounds(flow: Flow) -> tuple[Bound, ...]:
    """The bounds outside of which no sum and no maximum of the loop takes anything."""
    zero, low = neutral_bounds(flow, 0.0), neutral_bounds(flow, -math.inf)
    common: Bounds | None = None
    for _, value in flow.live():
        if value.primitive not in SINKS:
            continue
        known = low if value.primitive == "reduce_max" else zero
        (name, *_) = value.args
        own = known.get(str(name), frozenset())
        common = own if common is None else common & own
    return tuple(sorted(common or (), key=lambda b: (b.row, b.stream, b.constant)))


# --- splitting choices ----------------------------------------------------------------------------------


@dataclass(slots=True)
class _MaskSplitter(Rewriter):
    """Cuts every choice into one by the loop's bounds and one by what is left of its condition."""

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


def split_masks(flow: Flow, bounds: Iterable[Bound]) -> tuple[Flow, dict[str, Term]]:
    """The same outputs, and for each choice by the loop's bounds what it is where they hold."""
    splitter = _MaskSplitter(flow, bounds=frozenset(bounds))
    return splitter.run(), splitter.unmasked
