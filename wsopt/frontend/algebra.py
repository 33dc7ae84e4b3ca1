"""Algebraic identities, applied to every value of a loop when it is made.

They gather positive numbers and what is constant along the stream on the outside (of masks, of maxima), put
-inf into the second branch of a choice, and turn exp into exp2 of one multiplication, so that a softmax costs
one fused multiply-subtract and one exp2 an element. What a row subtracts is taken to be finite, as `online`
makes it; only roundings change.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from wsopt.frontend.expand import Term
from wsopt.frontend.values import Pool, Rule
from wsopt.graph.types import DType
from wsopt.primitives import Family, comparison_of, family_of


def is_number(term: Term, number: float | None = None) -> bool:
    """Whether a term is a number; with a second argument, whether it is that number."""
    return not isinstance(term, str) and (number is None or term == number)


def factor(pool: Pool, term: Term) -> tuple[float, Term]:
    """A term as a number times another term."""
    args = pool.match(term, "mul")
    if args is not None and pool.is_f32(term) and not isinstance(args[1], str) and isinstance(args[0], str):
        return float(args[1]), args[0]
    return 1.0, term


def _not(pool: Pool, args: tuple[Term, ...], dtype: DType, node: str) -> Term | None:
    """Comparisons of whole numbers are turned round (others may meet nan); `or` becomes `and`."""
    (condition,) = args
    if not isinstance(condition, str):
        return None
    value = pool[condition]
    if value.primitive == "logical_not":
        return value.args[0]
    facts = comparison_of(value.primitive)
    if facts is not None and all(_is_whole(pool, a) for a in value.args):
        return pool.make(facts.negated, value.args, dtype, value.node)
    if value.primitive == "logical_or":
        opposites = tuple(pool.make("logical_not", (a,), dtype, node) for a in value.args)
        return pool.make("logical_and", opposites, dtype, value.node)
    return None


def _is_whole(pool: Pool, term: Term) -> bool:
    return pool[term].dtype is DType.I32 if isinstance(term, str) else isinstance(term, int)


def _is_finite(pool: Pool, term: Term, depth: int = 16) -> bool:
    """Whether a term is surely finite: of numbers, indices and scalars; a row's tensor may hold -inf."""
    if not isinstance(term, str):
        return math.isfinite(term)
    value = pool[term]
    if family_of(value.primitive) is Family.INDEX or (value.primitive == "source" and not value.spans):
        return True
    kept = value.primitive in ("add", "sub", "mul", "neg", "round_f32")
    return kept and depth > 0 and all(_is_finite(pool, a, depth - 1) for a in value.args)


def _size(pool: Pool, term: Term) -> float:
    """How large a finite term is at most, where indices and what tensors hold count as one."""
    if not isinstance(term, str):
        return abs(term)
    value = pool[term]
    sizes = [_size(pool, a) for a in value.args] if value.primitive in ("add", "sub", "mul", "neg") else []
    if value.primitive in ("add", "sub"):
        return sum(sizes)
    return math.prod(sizes)


def _is_small(pool: Pool, off: Term) -> bool:
    """Whether something of order one may be added before this is: with a large number it would lose its digits.

    `s + (mask - 1) * 1e9` must not become `(s + mask * 1e9) - 1e9`.
    """
    return _size(pool, off) <= _LARGE


_LARGE = 2.0**10
"""From here on f32 has less than fourteen bits left for what is of order one, and bf16 keeps eight of them."""


@dataclass(frozen=True, slots=True)
class Offset:
    """A term as `base` plus or minus something constant along the stream (`sign` is the primitive)."""

    base: Term
    sign: str
    off: Term

    def on(self, pool: Pool, base: Term, node: str) -> Term:
        """This offset added to another base."""
        return pool.make(self.sign, (base, self.off), DType.F32, node)


def offset(pool: Pool, term: Term) -> Offset | None:
    """The offset of a term that varies along the stream, or None."""
    for sign in ("add", "sub"):
        terms = pool.match(term, sign)
        if terms and pool.is_f32(term) and pool.streams(terms[0]) and not pool.streams(terms[1]):
            return Offset(terms[0], sign, terms[1])
    return None


def _stays_outside(pool: Pool, off: Term) -> bool:
    """Whether a mask is put on the base of an offset like this: it is finite, or a maximum made so."""
    return not pool.streams(off) and (_is_finite(pool, off) or bool(pool.needs(off)))


def _finite_offset(pool: Pool, term: Term) -> Offset | None:
    found = offset(pool, term)
    return found if found is not None and _is_finite(pool, found.off) else None


def _mul(pool: Pool, args: tuple[Term, ...], dtype: DType, node: str) -> Term | None:
    """Normal form of a product: factors constant along the stream last, numbers merged, distributed over offsets."""
    x, k = args
    if is_number(x) and is_number(k) and dtype is DType.F32:
        return float(x) * float(k)
    if is_number(x) or (isinstance(k, str) and pool.streams(k) and not pool.streams(x)):
        return pool.make("mul", (k, x), dtype, node)
    if dtype is not DType.F32 or not isinstance(x, str) or pool.streams(k):
        return None
    if k == 1 and pool.is_f32(x):
        return x
    inner, rest = factor(pool, x)
    if inner != 1.0:
        return pool.make("mul", (rest, pool.make("mul", (k, inner), dtype, node)), dtype, node)
    found = offset(pool, x)
    if found is None or pool.spans(k) or pool.needs(k) or not _stays_outside(pool, found.off):
        return None
    first, second = (pool.make("mul", (t, k), dtype, node) for t in (found.base, found.off))
    return pool.make(found.sign, (first, second), dtype, node)


def _div(pool: Pool, args: tuple[Term, ...], dtype: DType, node: str) -> Term | None:
    x, k = args
    if dtype is DType.F32 and isinstance(x, str) and not isinstance(k, str) and k != 0 and math.isfinite(k):
        return pool.make("mul", (x, 1.0 / float(k)), dtype, node)
    if is_number(x) and x != 1 and pool.streams(k):
        return pool.make("mul", (pool.make("div", (1.0, k), dtype, node), x), dtype, node)
    return None


def _neg(pool: Pool, args: tuple[Term, ...], dtype: DType, node: str) -> Term | None:
    return pool.make("mul", (args[0], -1.0), dtype, node) if dtype is DType.F32 else None


def _add(pool: Pool, args: tuple[Term, ...], dtype: DType, node: str) -> Term | None:
    """A mask that is added becomes one that is chosen; offsets go outside; adding a negative subtracts."""
    if dtype is not DType.F32:
        return None
    if all(map(is_number, args)):
        return float(args[0]) + float(args[1])
    for x, y in (args, args[::-1]):
        if is_number(y, 0) and pool.is_f32(x):
            return x
        choice = pool.match(y, "where")
        if choice and is_number(choice[2], -math.inf) and not _stays_outside(pool, x):
            total = pool.make("add", (x, choice[1]), dtype, node)
            return pool.make("where", (choice[0], total, -math.inf), dtype, node)
    x, y = args
    if pool.streams(y) and not pool.streams(x):
        return pool.make("add", (y, x), dtype, node)
    if pool.streams(x) and not pool.streams(y):
        k, rest = factor(pool, y)
        if k < 0:
            return pool.make("sub", (x, pool.make("mul", (rest, -k), dtype, node)), dtype, node)
        return None
    for x, y in (args, args[::-1]):
        found = _finite_offset(pool, y)
        if found is not None and pool.streams(x) and _is_small(pool, found.off):
            return found.on(pool, pool.make("add", (x, found.base), dtype, node), node)
    return None


def _sub(pool: Pool, args: tuple[Term, ...], dtype: DType, node: str) -> Term | None:
    """Equal offsets cancel: what all scores of a row have in common does nothing to their softmax."""
    x, y = args
    if dtype is not DType.F32:
        return None
    if is_number(x) and is_number(y):
        return float(x) - float(y)
    if is_number(y, 0) and pool.is_f32(x):
        return x
    if pool.streams(y) and not pool.streams(x) and _is_finite(pool, x):
        return pool.make("add", (pool.make("mul", (y, -1.0), dtype, node), x), dtype, node)
    found = _finite_offset(pool, x)
    if found is not None:
        other = pool.match(y, found.sign)
        if other and other[1] == found.off:
            return pool.make("sub", (found.base, other[0]), dtype, node)
    return None


def _where(pool: Pool, args: tuple[Term, ...], dtype: DType, node: str) -> Term | None:
    """-inf and zero come last; past -inf go positive factors and what is constant along the stream."""
    condition, x, y = args
    neutral = is_number(x, -math.inf) or (is_number(x, 0) and pool.streams(y))
    if neutral and dtype is DType.F32 and not is_number(y, -math.inf):
        opposite = pool.make("logical_not", (condition,), DType.BOOL, node)
        return pool.make("where", (opposite, y, x), dtype, node)
    if not is_number(y, -math.inf) or dtype is not DType.F32 or not isinstance(x, str):
        return None
    k, rest = factor(pool, x)
    if k > 0 and k != 1.0:
        return pool.make("mul", (pool.make("where", (condition, rest, y), dtype, node), k), dtype, node)
    found = offset(pool, x)
    if found is not None and _stays_outside(pool, found.off):
        return found.on(pool, pool.make("where", (condition, found.base, y), dtype, node), node)
    return None


def _exp(pool: Pool, args: tuple[Term, ...], dtype: DType, node: str) -> Term | None:
    """exp(x) = exp2(x log2(e))."""
    return pool.make("exp2", (pool.make("mul", (args[0], math.log2(math.e)), dtype, node),), dtype, node)


def _reduce_max(pool: Pool, args: tuple[Term, ...], dtype: DType, node: str) -> Term | None:
    k, rest = factor(pool, args[0])
    if k > 0 and k != 1.0:
        return pool.make("mul", (pool.make("reduce_max", (rest,), dtype, node), k), dtype, node)
    found = _finite_offset(pool, args[0])
    if found is None:
        return None
    return found.on(pool, pool.make("reduce_max", (found.base,), dtype, node), node)


def _round_f32(pool: Pool, args: tuple[Term, ...], dtype: DType, node: str) -> Term | None:
    """A sum of whole numbers in f32: what is constant along the stream apart, once a row."""
    for sign in ("add", "sub"):
        terms = pool.match(args[0], sign)
        if terms and _is_whole(pool, args[0]) and pool.streams(terms[0]) != pool.streams(terms[1]):
            first, second = (
                pool.make("round_f32", (t,), dtype, node) if isinstance(t, str) else float(t) for t in terms
            )
            return pool.make(sign, (first, second), dtype, node)
    return None


RULES: Mapping[str, Rule] = MappingProxyType({
    "mul": _mul,
    "div": _div,
    "neg": _neg,
    "add": _add,
    "sub": _sub,
    "where": _where,
    "exp": _exp,
    "reduce_max": _reduce_max,
    "logical_not": _not,
})  # fmt: skip
"""For each primitive its identities: a simpler value that is equal to it on these operands, newly made, or None."""

SHORT_RULES: Mapping[str, Rule] = MappingProxyType({**RULES, "round_f32": _round_f32})
"""Identities for graphs whose indices along the axes are below `SHORT`.

Then a sum of indices may be taken apart before it is scaled, as ALiBi's slope times a distance is: its parts are so
small that their roundings in f32 (2**-10 at a slope of one) are below those of bf16.
"""

SHORT = 2**15
"""Elements of an axis up to which indices are so small that sums of them may be taken apart."""
