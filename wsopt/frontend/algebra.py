"""Algebraic identities, applied to every value of a loop when it is made.

They gather positive numbers and what is constant along the stream on the outside (of masks, of maxima), put
-inf into the second branch of a choice, and turn exp into exp2 of one multiplication, so that a softmax costs
one fused multiply-subtract and one exp2 an element. What a row subtracts is taken to be finite, as `online`
makes it; only roundings change.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from wsopt.frontend.values import Pool, Rule, Term
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
    value = pool[str(args[0])]
    facts = comparison_of(value.primitive)
    if value.primitive == "logical_not":
        return value.args[0]
    if facts is not None and all(_is_whole(pool, a) for a in value.args):
        return pool.make(facts.negated, value.args, dtype, value.node)
    if value.primitive == "logical_or":
        opposites = tuple(pool.make("logical_not", (a,), dtype, node) for a in value.args)
        return pool.make("logical_and", opposites, dtype, value.node)
    return None


def _is_whole(pool: Pool, term: Term) -> bool:
    return pool[term].dtype in (DType.I32, DType.I8) if isinstance(term, str) else isinstance(term, int)


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


_LARGE = 2.0**10
"""From here on f32 has less than fourteen bits left for what is of order one, and bf16 keeps eight of them.

Something of order one is not added before a number that is larger: it would lose its digits. So
`s + (mask - 1) * 1e9` must not become `(s + mask * 1e9) - 1e9`.
"""


def _offset(pool: Pool, term: Term) -> tuple[str, Term, Term] | None:
    """A term that varies along the stream as (sign, base, off): a base plus or minus something constant along it."""
    terms = pool.match(term, "add", "sub")
    if terms and pool.is_f32(term) and pool.streams(terms[0]) and not pool.streams(terms[1]):
        return pool[str(term)].primitive, terms[0], terms[1]
    return None


def _stays_outside(pool: Pool, off: Term) -> bool:
    """Whether a mask is put on the base of an offset like this: it is finite, or a maximum made so."""
    return not pool.streams(off) and (_is_finite(pool, off) or bool(pool.needs(off)))


def _mul(pool: Pool, args: tuple[Term, ...], dtype: DType, node: str) -> Term | None:
    """Normal form of a product: factors constant along the stream last, numbers merged, distributed over offsets."""
    x, k = args
    if is_number(x) and is_number(k):
        return float(x) * float(k)
    if is_number(x) or (pool.streams(k) and not pool.streams(x)):
        return pool.make("mul", (k, x), dtype, node)
    if dtype is not DType.F32 or pool.streams(k):
        return None
    if k == 1 and pool.is_f32(x):
        return x
    inner, rest = factor(pool, x)
    if inner != 1.0:
        return pool.apply(node, "mul", rest, pool.apply(node, "mul", k, inner))
    match _offset(pool, x):
        case sign, base, off if not (pool.spans(k) or pool.needs(k)) and _stays_outside(pool, off):
            return pool.apply(node, sign, *(pool.apply(node, "mul", term, k) for term in (base, off)))
    return None


def _div(pool: Pool, args: tuple[Term, ...], dtype: DType, node: str) -> Term | None:
    x, k = args
    if isinstance(x, str) and not isinstance(k, str) and k != 0 and math.isfinite(k):
        return pool.apply(node, "mul", x, 1.0 / float(k))
    if is_number(x) and x != 1 and pool.streams(k):
        return pool.apply(node, "mul", pool.apply(node, "div", 1.0, k), x)
    return None


def _neg(pool: Pool, args: tuple[Term, ...], dtype: DType, node: str) -> Term:
    return pool.apply(node, "mul", args[0], -1.0)


def _add(pool: Pool, args: tuple[Term, ...], dtype: DType, node: str) -> Term | None:
    """A mask that is added becomes one that is chosen; offsets go outside; adding a negative subtracts."""
    if all(map(is_number, args)):
        return float(args[0]) + float(args[1])
    for x, y in (args, args[::-1]):
        if is_number(y, 0) and pool.is_f32(x):
            return x
        choice = pool.match(y, "where")
        if choice and is_number(choice[2], -math.inf) and not _stays_outside(pool, x):
            return pool.apply(node, "where", choice[0], pool.apply(node, "add", x, choice[1]), -math.inf)
    x, y = args
    if pool.streams(y) and not pool.streams(x):
        return pool.apply(node, "add", y, x)
    if pool.streams(x) and not pool.streams(y):
        k, rest = factor(pool, y)
        return pool.apply(node, "sub", x, pool.apply(node, "mul", rest, -k)) if k < 0 else None
    for x, y in (args, args[::-1]):
        match _offset(pool, y):
            case sign, base, off if _is_finite(pool, off) and pool.streams(x) and _size(pool, off) <= _LARGE:
                return pool.apply(node, sign, pool.apply(node, "add", x, base), off)
    return None


def _sub(pool: Pool, args: tuple[Term, ...], dtype: DType, node: str) -> Term | None:
    """Equal offsets cancel: what all scores of a row have in common does nothing to their softmax."""
    x, y = args
    if is_number(x) and is_number(y):
        return float(x) - float(y)
    if is_number(y, 0) and pool.is_f32(x):
        return x
    if pool.streams(y) and not pool.streams(x) and _is_finite(pool, x):
        return pool.apply(node, "add", pool.apply(node, "mul", y, -1.0), x)
    match _offset(pool, x):
        case sign, base, off if _is_finite(pool, off):
            other = pool.match(y, sign)
            return pool.apply(node, "sub", base, other[0]) if other and other[1] == off else None
    return None


def _where(pool: Pool, args: tuple[Term, ...], dtype: DType, node: str) -> Term | None:
    """-inf and zero come last; past -inf go positive factors and what is constant along the stream."""
    condition, x, y = args
    neutral = is_number(x, -math.inf) or (is_number(x, 0) and pool.streams(y))
    if neutral and not is_number(y, -math.inf):
        opposite = pool.make("logical_not", (condition,), DType.BOOL, node)
        return pool.apply(node, "where", opposite, y, x)
    if not is_number(y, -math.inf) or is_number(x):
        return None
    k, rest = factor(pool, x)
    if k > 0 and k != 1.0:
        return pool.apply(node, "mul", pool.apply(node, "where", condition, rest, y), k)
    match _offset(pool, x):
        case sign, base, off if _stays_outside(pool, off):
            return pool.apply(node, sign, pool.apply(node, "where", condition, base, y), off)
    return None


def _exp(pool: Pool, args: tuple[Term, ...], dtype: DType, node: str) -> Term:
    """exp(x) = exp2(x log2(e))."""
    return pool.apply(node, "exp2", pool.apply(node, "mul", args[0], math.log2(math.e)))


def _reduce_max(pool: Pool, args: tuple[Term, ...], dtype: DType, node: str) -> Term | None:
    k, rest = factor(pool, args[0])
    if k > 0 and k != 1.0:
        return pool.apply(node, "mul", pool.apply(node, "reduce_max", rest), k)
    match _offset(pool, args[0]):
        case sign, base, off if _is_finite(pool, off):
            return pool.apply(node, sign, pool.apply(node, "reduce_max", base), off)
    return None


def _round_f32(pool: Pool, args: tuple[Term, ...], dtype: DType, node: str) -> Term | None:
    """What is computed in f32, or read as that, is what a cast to f32 makes of it."""
    return args[0] if pool.is_f32(args[0]) else None


def _round_short(pool: Pool, args: tuple[Term, ...], dtype: DType, node: str) -> Term | None:
    """The same, and a sum of whole numbers in f32: what is constant along the stream apart, once a row."""
    if (same := _round_f32(pool, args, dtype, node)) is not None:
        return same
    terms = pool.match(args[0], "add", "sub")
    if terms and _is_whole(pool, args[0]) and pool.streams(terms[0]) != pool.streams(terms[1]):
        parts = (pool.apply(node, "round_f32", t) if isinstance(t, str) else float(t) for t in terms)
        return pool.apply(node, pool[str(args[0])].primitive, *parts)
    return None


RULES: Mapping[tuple[str, DType], Rule] = MappingProxyType({
    ("mul", DType.F32): _mul,
    ("mul", DType.I32): _mul,
    ("div", DType.F32): _div,
    ("neg", DType.F32): _neg,
    ("add", DType.F32): _add,
    ("sub", DType.F32): _sub,
    ("where", DType.F32): _where,
    ("exp", DType.F32): _exp,
    ("reduce_max", DType.F32): _reduce_max,
    ("logical_not", DType.BOOL): _not,
    ("round_f32", DType.F32): _round_f32,
})  # fmt: skip
"""For primitives of a type their identities: a simpler value that is equal on these operands, newly made, or None."""

SHORT_RULES: Mapping[tuple[str, DType], Rule] = MappingProxyType(
    {**RULES, ("round_f32", DType.F32): _round_short}
)
"""Identities for graphs whose indices along the axes are below `SHORT`.

Then a sum of indices may be taken apart before it is scaled, as ALiBi's slope times a distance is: its parts are so
small that their roundings in f32 (2**-10 at a slope of one) are below those of bf16.
"""

SHORT = 2**15
"""Elements of an axis up to which indices are so small that sums of them may be taken apart."""
