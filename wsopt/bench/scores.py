"""Expressions of a recorded region: sums of terms, masks peeled off them, bounds that masks are, text in torch.

A score before a softmax may be written in many ways; as a sum of terms with number factors it has one form in
which a library's parameters (scale, cap, bias) can be looked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from wsopt.bench.eager_source import Inapplicable
from wsopt.bench.raw_region import RawRegion
from wsopt.primitives import PRIMITIVES, Family, family_of

LN2 = math.log(2)
_ROUNDED = ("round_bf16", "round_f16")
"""Roundings for which torch code is written."""


@dataclass(frozen=True, slots=True)
class Expr:
    """A primitive on expressions and numbers. Leaves are `scores`, indices (`iota_row`, ...), a `source` and what
    is `reduced` along a row, the last two with their name.
    """

    op: str
    args: tuple[Term, ...] = ()
    name: str = ""


Term = Expr | int | float
Names = Callable[[Expr], str]
"""What a leaf is called in the text."""


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of terms, each times a number, and a constant."""

    terms: tuple[tuple[int | float, Expr], ...]
    constant: int | float = 0

    def times(self, factor: float) -> Sum:
        """Every part times a number."""
        return Sum(tuple((k * factor, x) for k, x in self.terms), self.constant * factor)

    def in_base_e(self, factor: float = 1.0) -> Sum:
        """An exponent of base 2 as one of base e, times a number; rounded, for log2(e) was put in before."""
        terms = tuple((neat(k * LN2 * factor), x) for k, x in self.terms)
        return Sum(terms, neat(self.constant * LN2 * factor))

    def plus(self, other: Sum) -> Sum:
        """The terms of both."""
        return Sum(self.terms + other.terms, self.constant + other.constant)


def neat(x: float) -> float:
    """A number rounded to 14 significant digits."""
    return float(f"{x:.14g}")


def expression(region: RawRegion, name: object, scores: str) -> Term:
    """Expression of a loop value in the product `scores`, sources, indices and row values."""
    if not isinstance(name, str):
        assert isinstance(name, int | float)
        return name
    if name == scores:
        return Expr("scores")
    if name in region.sources:
        return Expr("source", name=name)
    item = region.item(name)
    if item is None or item.op in ("max", "sum", "product"):
        return Expr("reduced", name=name)
    return Expr(item.op, tuple(expression(region, arg, scores) for arg in item.args))


def leaves(term: Term) -> tuple[Expr, ...]:
    """Every leaf of an expression, as often as it stands there."""
    if not isinstance(term, Expr):
        return ()
    return tuple(leaf for arg in term.args for leaf in leaves(arg)) if term.args else (term,)


# --- sums -----------------------------------------------------------------------------------------------


def linear(term: Term) -> Sum:
    """A term as a sum. 1 / (1 + 2**z), by which a loop computes tanh, becomes a tanh again."""
    if not isinstance(term, Expr):
        return Sum((), term)
    match term.op, term.args:
        case (("add" | "sub"), (a, b)):
            return linear(a).plus(linear(b).times(1 if term.op == "add" else -1))
        case "neg", (a,):
            return linear(a).times(-1)
        case "round_f32", (a,):
            return linear(a)
        case "mul", (a, b):
            return _product(linear(a), linear(b), term)
        case "div", (a, b) if not isinstance(b, Expr):
            return linear(a).times(1 / b)
        case "div", (a, Expr("add", (Expr(("exp" | "exp2") as base, (z,)), one))) if a == one == 1:
            half = linear(z).times(0.5) if base == "exp" else linear(z).in_base_e(0.5)
            return Sum(((-0.5, Expr("tanh", (_folded(half),))),), 0.5)
    return Sum(((1, term),))


def _product(a: Sum, b: Sum, whole: Expr) -> Sum:
    for one, other in ((a, b), (b, a)):
        if not other.terms:
            return one.times(other.constant)
    if len(a.terms) == len(b.terms) == 1 and a.constant == b.constant == 0:
        ((k, x),), ((m, y),) = a.terms, b.terms
        return Sum(((k * m, Expr("mul", (x, y))),))
    return Sum(((1, whole),))


def _folded(found: Sum) -> Term:
    """A sum as a term again."""
    parts: list[Term] = [x if k == 1 else Expr("mul", (x, k)) for k, x in found.terms]
    if found.constant or not parts:
        parts.append(found.constant)
    whole = parts[0]
    for part in parts[1:]:
        whole = Expr("add", (whole, part))
    return whole


def peel_masks(score: Sum) -> tuple[Sum, tuple[Term, ...]]:
    """A score without the choices that make it -inf, and the conditions under which it counts."""
    conditions: list[Term] = []
    kept = Sum((), score.constant)
    waiting = list(score.terms)
    while waiting:
        k, x = waiting.pop(0)
        match x:
            case Expr("where", (condition, inner, low)) if k > 0 and low == -math.inf:
                conditions += _conjuncts(condition)
            case Expr("where", (condition, low, inner)) if k > 0 and low == -math.inf:
                conditions += _conjuncts(Expr("logical_not", (condition,)))
            case _:
                kept = Sum((*kept.terms, (k, x)), kept.constant)
                continue
        found = linear(inner).times(k)
        waiting = [*found.terms, *waiting]
        kept = Sum(kept.terms, kept.constant + found.constant)
    return kept, tuple(dict.fromkeys(conditions))


def _conjuncts(condition: Term) -> list[Term]:
    match condition:
        case Expr("inside_stream"):  # padding of the last K-block: no element of the tensors is outside
            return []
        case Expr("logical_and", args):
            return [part for arg in args for part in _conjuncts(arg)]
        case _:
            return [condition]


def take_scale(score: Sum) -> tuple[float, Sum]:
    """The factor on the product of queries and keys, and the score as an expression of the scaled product.

    Where the product stands more than once, or is multiplied by what is no number, the scale is 1.
    """
    if sum(leaf.op == "scores" for _, x in score.terms for leaf in leaves(x)) != 1:
        return 1.0, score
    found: list[float] = []

    def of(parts: Sum) -> Sum:
        terms: list[tuple[int | float, Expr]] = []
        for k, x in parts.terms:
            if x.op == "scores" or (x.op == "mul" and Expr("scores") in x.args):
                found.append(float(k))
                terms.append((1, x))
            elif x.op == "tanh":
                terms.append((k, Expr("tanh", (_folded(of(linear(x.args[0]))),))))
            else:
                terms.append((k, x))
        return Sum(tuple(terms), parts.constant)

    scaled = of(score)
    return (found[0], scaled) if found else (1.0, score)


# --- bounds ---------------------------------------------------------------------------------------------

Bound = tuple[int, int, int]
"""(row, stream, constant): row * i + stream * j + constant >= 0 for query i and key j."""


def bounds_of(condition: Term) -> tuple[Bound, ...] | None:
    """The bounds on indices that a condition is, all of which hold where it does; None if it is no such."""
    match condition:
        case Expr("logical_not", (Expr(("less" | "less_equal" | "greater" | "greater_equal") as op, args),)):
            facts = PRIMITIVES[op].comparison
            assert facts is not None
            return bounds_of(Expr(facts.negated, args))
        case Expr(("less" | "less_equal") as op, (Expr("abs", (x,)), b)):
            found = [_difference(sign, x, b, op == "less") for sign in (1, -1)]
        case Expr(("less" | "less_equal") as op, (a, b)):
            found = [_difference(1, a, b, op == "less")]
        case Expr(("greater" | "greater_equal") as op, (a, b)):
            found = [_difference(1, b, a, op == "greater")]
        case Expr("equal", (a, b)):
            found = [_difference(1, a, b, False), _difference(1, b, a, False)]
        case _:
            return None
    return None if None in found else tuple(bound for bound in found if bound is not None)


def _difference(sign: int, low: Term, high: Term, strict: bool) -> Bound | None:
    """sign * low <= high, or <, of whole numbers."""
    found = linear(high).plus(linear(low).times(-sign))
    place = {"iota_row": 0, "iota_stream": 1}
    parts = [0, 0, found.constant - strict]
    for k, x in found.terms:
        if x.op not in place:
            return None
        parts[place[x.op]] += k
    if any(part != int(part) for part in parts):
        return None
    row, stream, constant = map(int, parts)
    return row, stream, constant


# --- text -----------------------------------------------------------------------------------------------


def text_of_sum(found: Sum, names: Names) -> str:
    """A sum in torch: the first term without a sign where it can be."""
    ordered = sorted(found.terms, key=lambda part: part[0] < 0)
    text = ""
    if len(ordered) == 1 and ordered[0][0] == 1 and not found.constant:
        return _plain(ordered[0][1], names)
    for k, x in ordered:
        body, size = _atom(x, names), abs(k)
        part = body if size == 1 else f"{size!r} * {body}"
        sign = "-" if k < 0 else "+"
        text += f" {sign} {part}" if text else ("-" if k < 0 else "") + part
    if not text:
        return repr(found.constant)
    if found.constant:
        text += f" {'-' if found.constant < 0 else '+'} {abs(found.constant)!r}"
    return text


def text_of(term: Term, names: Names) -> str:
    """An expression in torch. Raises Inapplicable for a primitive that has no counterpart."""
    if not isinstance(term, Expr):
        return repr(term) if math.isfinite(term) else f'float("{term}")'
    return text_of_sum(linear(term), names)


def _plain(term: Expr, names: Names) -> str:
    """Text of an expression that is no sum."""
    match family_of(term.op):
        case Family.COMPARISON:
            return PRIMITIVES[term.op].in_torch(*(text_of(x, names) for x in term.args))
        case Family.LOGICAL:
            return PRIMITIVES[term.op].in_torch(*(f"({text_of(x, names)})" for x in term.args))
        case _ if term.op in ("mul", "div"):
            return PRIMITIVES[term.op].in_torch(*(_side(x, names) for x in term.args))
        case _:
            return _atom(term, names)


def _side(term: Term, names: Names) -> str:
    """Text of an operand, in brackets if an operator in it could bind looser than its neighbours."""
    text = text_of(term, names)
    return text if not isinstance(term, Expr) or not term.args or _is_function(term.op) else f"({text})"


def _is_function(op: str) -> bool:
    """Whether torch has a function of one operand for it; `tanh` is what `linear` makes of a loop's."""
    entry = PRIMITIVES.get(op)
    if entry is None or not entry.numpy:
        return op == "tanh"
    return len(entry.operands) == 1 and not entry.symbol


def _atom(term: Expr, names: Names) -> str:
    """An expression that can be multiplied as it stands."""
    match term.op, term.args:
        case (
            ("scores" | "source" | "reduced" | "iota_row" | "iota_stream" | "iota_batch" | "iota_group"),
            (),
        ):
            return names(term)
        case "where", args:
            return PRIMITIVES["where"].in_torch(*(text_of(x, names) for x in args))
        case ("maximum" | "minimum") as op, (a, b):
            word = "min" if op == "maximum" else "max"
            if isinstance(a, Expr) and isinstance(b, Expr):
                return f"torch.{op}({text_of(a, names)}, {text_of(b, names)})"
            x, limit = (a, b) if isinstance(a, Expr) else (b, a)
            return f"torch.clamp({text_of(x, names)}, {word}={text_of(limit, names)})"
        case op, (a,) if op in _ROUNDED:
            return f"({text_of(a, names)}).to(torch.{PRIMITIVES[op].torch})"
        case "tanh", (a,):
            return f"torch.tanh({text_of(a, names)})"
        case op, (a,) if _is_function(op):
            return PRIMITIVES[op].in_torch(text_of(a, names))
        case op, _ if family_of(op) in (Family.COMPARISON, Family.LOGICAL) or op in ("mul", "div"):
            return f"({_plain(term, names)})"
        case _:
            raise Inapplicable(f"no torch code is written for {term.op} of a score")
