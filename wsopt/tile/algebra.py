"""Identities that every value of a loop is brought through when it is made.

They gather positive numbers on the outside (of masks, of maxima), put -inf into the second branch of a
choice, and turn exp into exp2 of one multiplication, so that a softmax costs one fused multiply-subtract and
one exp2 an element. What a row subtracts is taken to be finite, as `online` makes it; only roundings change.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from wsopt.graph.types import DType
from wsopt.tile.expand import Term
from wsopt.tile.values import Pool

NEGATED = {
    "less": "greater_equal",
    "less_equal": "greater",
    "greater": "less_equal",
    "greater_equal": "less",
    "equal": "not_equal",
    "not_equal": "equal",
}

Rule = Callable[[Pool, tuple[Term, ...], DType, str], Term | None]


def is_number(term: Term, number: float | None = None) -> bool:
    """Whether a term is a number, or this one."""
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
    if value.primitive in NEGATED and all(_is_whole(pool, a) for a in value.args):
        return pool.make(NEGATED[value.primitive], value.args, dtype, value.node)
    if value.primitive == "logical_or":
        opposites = tuple(pool.make("logical_not", (a,), dtype, node) for a in value.args)
        return pool.make("logical_and", opposites, dtype, value.node)
    return None


def _is_whole(pool: Pool, term: Term) -> bool:
    return pool[term].dtype is DType.I32 if isinstance(term, str) else isinstance(term, int)


def _mul(pool: Pool, args: tuple[Term, ...], dtype: DType, node: str) -> Term | None:
    """Numbers last and only one; into a difference of which one side is constant along the stream."""
    x, k = args
    if is_number(x) and isinstance(k, str):
        return pool.make("mul", (k, x), dtype, node)
    if dtype is not DType.F32 or not isinstance(x, str) or isinstance(k, str):
        return None
    if k == 1 and pool.is_f32(x):
        return x
    inner, rest = factor(pool, x)
    if inner != 1.0:
        return pool.make("mul", (rest, inner * float(k)), dtype, node)
    for primitive in ("sub", "add"):
        terms = pool.match(x, primitive)
        if terms and pool.is_f32(x) and pool.streams(terms[0]) != pool.streams(terms[1]):
            first, second = (pool.make("mul", (t, float(k)), dtype, node) for t in terms)
            return pool.make(primitive, (first, second), dtype, node)
    return None


def _div(pool: Pool, args: tuple[Term, ...], dtype: DType, node: str) -> Term | None:
    x, k = args
    if dtype is DType.F32 and isinstance(x, str) and not isinstance(k, str) and k != 0 and math.isfinite(k):
        return pool.make("mul", (x, 1.0 / float(k)), dtype, node)
    return None


def _neg(pool: Pool, args: tuple[Term, ...], dtype: DType, node: str) -> Term | None:
    return pool.make("mul", (args[0], -1.0), dtype, node) if dtype is DType.F32 else None


def _add(pool: Pool, args: tuple[Term, ...], dtype: DType, node: str) -> Term | None:
    """A mask that is added becomes one that is chosen; adding what is negated subtracts."""
    if dtype is not DType.F32:
        return None
    for x, y in (args, args[::-1]):
        if is_number(y, 0) and pool.is_f32(x):
            return x
        choice = pool.match(y, "where")
        if choice and is_number(choice[2], -math.inf):
            return pool.make("where", (choice[0], _sum(pool, x, choice[1], node), -math.inf), dtype, node)
    for x, y in (args, args[::-1]):
        k, rest = factor(pool, y)
        if k < 0 and pool.streams(x) and not pool.streams(y):
            return pool.make("sub", (x, pool.make("mul", (rest, -k), dtype, node)), dtype, node)
    return None


def _sum(pool: Pool, x: Term, y: Term, node: str) -> Term:
    if isinstance(x, str) or isinstance(y, str):
        return pool.make("add", (x, y), DType.F32, node)
    return float(x) + float(y)


def _sub(pool: Pool, args: tuple[Term, ...], dtype: DType, node: str) -> Term | None:
    del node, dtype
    return args[0] if is_number(args[1], 0) and pool.is_f32(args[0]) else None


def _where(pool: Pool, args: tuple[Term, ...], dtype: DType, node: str) -> Term | None:
    """-inf comes last; a positive factor, and what is constant along the stream, goes past it."""
    condition, x, y = args
    if is_number(x, -math.inf) and not is_number(y, -math.inf):
        opposite = pool.make("logical_not", (condition,), DType.BOOL, node)
        return pool.make("where", (opposite, y, x), dtype, node)
    if not is_number(y, -math.inf) or dtype is not DType.F32 or not isinstance(x, str):
        return None
    k, rest = factor(pool, x)
    if k > 0 and k != 1.0:
        return pool.make("mul", (pool.make("where", (condition, rest, y), dtype, node), k), dtype, node)
    terms = pool.match(x, "sub")
    if terms and pool.streams(terms[0]) and not pool.streams(terms[1]):
        masked = pool.make("where", (condition, terms[0], y), dtype, node)
        return pool.make("sub", (masked, terms[1]), dtype, node)
    return None


def _exp(pool: Pool, args: tuple[Term, ...], dtype: DType, node: str) -> Term | None:
    """exp(x) = exp2(x log2(e))."""
    return pool.make("exp2", (pool.make("mul", (args[0], math.log2(math.e)), dtype, node),), dtype, node)


def _reduce_max(pool: Pool, args: tuple[Term, ...], dtype: DType, node: str) -> Term | None:
    k, rest = factor(pool, args[0])
    if k <= 0 or k == 1.0:
        return None
    return pool.make("mul", (pool.make("reduce_max", (rest,), dtype, node), k), dtype, node)


_RULES: dict[str, Rule] = {
    "mul": _mul,
    "div": _div,
    "neg": _neg,
    "add": _add,
    "sub": _sub,
    "where": _where,
    "exp": _exp,
    "reduce_max": _reduce_max,
    "logical_not": _not,
}


def simplify(pool: Pool, primitive: str, args: tuple[Term, ...], dtype: DType, node: str) -> Term | None:
    """What a primitive on these operands is equal to, made anew; None if nothing is simpler."""
    rule = _RULES.get(primitive)
    return None if rule is None else rule(pool, args, dtype, node)
