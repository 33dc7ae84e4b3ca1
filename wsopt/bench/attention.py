"""Recognizes attention in a build's recorded region: a softmax of scores between two products, with masks and biases.

Nothing is known by a name: weights are exponentials of scores, the second product and a sum of the weights are
carried along the stream together, and after the loop the one is divided by the other.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from wsopt.bench.eager_source import Inapplicable
from wsopt.bench.raw_region import K_BLOCK, PAGE, ROW, STREAM, RawItem, RawOutput, RawRegion, RawView
from wsopt.bench.scores import Bound, Expr, Sum, Term, bounds_of, expression, leaves, linear, neat, peel_masks
from wsopt.primitives import Family, family_of

_SAMPLES = ((0.75, 3.0, 7.0), (-1.5, 5.0, 2.0), (2.25, -3.0, 11.0))
"""A row's maximum, sum of values and sum of weights at which what follows the loop is looked at."""


@dataclass(frozen=True, slots=True)
class Attention:
    """output = softmax(score where all conditions hold) value, and lse the logarithm of the softmax's sum.

    `score` is in the base e, without its constant where no lse needs it. `bounds` are the conditions on indices
    alone that leave something out, `others` those that are no such.
    """

    region: RawRegion
    query: RawView
    key: RawView
    value: RawView
    output: RawOutput
    lse: RawOutput | None
    score: Sum
    conditions: tuple[Term, ...]
    bounds: tuple[Bound, ...]
    others: tuple[Term, ...]

    @property
    def queries(self) -> int:
        """Rows of the block's axis, heads that were merged into it included."""
        return self.region.extents[ROW]

    @property
    def keys(self) -> int:
        """Elements of the streamed axis."""
        return self.region.extents[STREAM]


def find_attention(region: RawRegion | None) -> Attention:
    """Read a region as attention. Raises Inapplicable with the reason if it is none."""
    if region is None:
        raise Inapplicable("the build does not say what its loop computes; compile it again")
    scores, sums = _products(region)
    weights, again = _weights(region, sums)
    exponent, row_part = _exponent(region, weights, scores)
    _check_masks_agree(again, exponent)
    total = _total(region, weights, sums)
    output, lse, constant = _outputs(region, sums, total, row_part)
    score, conditions = peel_masks(exponent)
    score = Sum(score.terms, neat(score.constant + constant) if lse else 0)
    bounds, others = _sorted_out(conditions, region)
    assert scores.left is not None, "a product of the loop is of two tensors"
    assert scores.right is not None, "products stream their right operand"
    assert sums.right is not None, "products stream their right operand"
    return Attention(
        region, scores.left, scores.right, sums.right, output, lse, score, conditions, bounds, others
    )


def _products(region: RawRegion) -> tuple[RawItem, RawItem]:
    products = [item for item in region.body if item.op == "product"]
    if not products:
        raise Inapplicable("its loop computes nothing but products")
    scores = [item for item in products if item.spans == K_BLOCK]
    sums = [item for item in products if item.args]
    if len(scores) != 1 or len(sums) != 1 or len(products) != 2:
        raise Inapplicable(
            f"its loop has {len(products)} products; an attention has one before its softmax, one after"
        )
    if any(view is not None and PAGE in view.roles for one in products for view in (one.left, one.right)):
        raise Inapplicable("its keys and values lie in pages, which a table chooses")
    return scores[0], sums[0]


def _weights(region: RawRegion, sums: RawItem) -> tuple[RawItem, tuple[Term, ...]]:
    """The exponentials that the second product takes, and conditions outside of which it takes zeros."""
    conditions: list[Term] = []
    item = region.item(sums.args[0])
    while item is not None and (family_of(item.op) is Family.ROUNDING or _is_zeroed(item)):
        if item.op == "where":
            conditions.append(expression(region, item.args[0], ""))
        item = region.item(item.args[-1 if family_of(item.op) is Family.ROUNDING else 1])
    if item is None or item.op not in ("exp", "exp2"):
        raise Inapplicable(f"{sums.name} takes no exponentials of scores: there is no softmax")
    return item, tuple(conditions)


def _is_zeroed(item: RawItem) -> bool:
    return item.op == "where" and item.args[2] == 0


def _exponent(region: RawRegion, weights: RawItem, scores: RawItem) -> tuple[Sum, Sum]:
    """The exponent in the base e as two sums: terms that vary along the keys, and terms of one value a row."""
    whole = linear(expression(region, weights.args[0], scores.name))
    whole = whole.in_base_e() if weights.op == "exp2" else whole
    mine = tuple(part for part in whole.terms if _varies(region, part[1]))
    rest = tuple(part for part in whole.terms if part not in mine)
    if any(leaf.op == "reduced" for _, x in mine for leaf in leaves(x)):
        raise Inapplicable("its scores depend on other scores of their row")
    return Sum(mine), Sum(rest, whole.constant)


def _varies(region: RawRegion, term: Expr) -> bool:
    """Whether a term depends on the key."""
    return any(
        leaf.op in ("scores", "iota_stream", "inside_stream")
        or (leaf.op == "source" and STREAM in region.sources[leaf.name].roles)
        for leaf in leaves(term)
    )


def _check_masks_agree(again: tuple[Term, ...], score: Sum) -> None:
    """Raise Inapplicable if weights are put to zero that the softmax's sum counts."""
    known = {leaf for _, x in score.terms for leaf in _conditions(x)}
    for condition in again:
        if condition not in known:
            raise Inapplicable("weights are masked after the softmax")


def _conditions(term: Term) -> tuple[Term, ...]:
    if not isinstance(term, Expr):
        return ()
    own = term.args[:1] if term.op == "where" else ()
    return own + tuple(found for arg in term.args for found in _conditions(arg))


def _total(region: RawRegion, weights: RawItem, sums: RawItem) -> RawItem:
    """The sum of the weights, decayed as the second product is."""
    for item in region.body:
        if item.op == "sum" and item.args == (weights.name,) and item.rescale == sums.rescale:
            return item
    raise Inapplicable("its weights are not divided by their sum")


def _sorted_out(
    conditions: tuple[Term, ...], region: RawRegion
) -> tuple[tuple[Bound, ...], tuple[Term, ...]]:
    """Conditions split into bounds that leave some pair out, and conditions that are no bounds."""
    rows, stream = region.extents[ROW], region.extents[STREAM]
    bounds: list[Bound] = []
    others = []
    for condition in conditions:
        found = bounds_of(condition)
        if found is None:
            others.append(condition)
            continue
        for row, key, constant in found:
            least = min(row * (rows - 1), 0) + min(key * (stream - 1), 0) + constant
            if least < 0:
                bounds.append((row, key, constant))
    return tuple(dict.fromkeys(bounds)), tuple(others)


# --- after the loop -------------------------------------------------------------------------------------


def _outputs(
    region: RawRegion, sums: RawItem, total: RawItem, row_part: Sum
) -> tuple[RawOutput, RawOutput | None, float]:
    """The outputs that are the quotient and, if any, the logarithm of the softmax's sum, with its added constant."""
    quotient: RawOutput | None = None
    lse: RawOutput | None = None
    constant = 0.0
    for one in region.outputs:
        ratios, more = _against(region, one, (sums.name, total.name), row_part)
        if quotient is None and all(math.isclose(ratio, 1.0, rel_tol=1e-9) for ratio in ratios):
            quotient = one
        elif lse is None and all(math.isclose(x, more[0], rel_tol=1e-9, abs_tol=1e-9) for x in more):
            lse, constant = one, float(f"{more[0]:.9g}")
        else:
            raise Inapplicable(f"output {one.name} is more than the quotient of the sums")
    if quotient is None:
        raise Inapplicable("no output is the quotient of the sums")
    return quotient, lse, constant


def _against(
    region: RawRegion, output: RawOutput, names: tuple[str, str], row_part: Sum
) -> tuple[list[float], list[float]]:
    """An output at sample values: ratios to the quotient of the sums, differences from the logarithm of the sum."""
    whole = expression(region, output.value, "")
    ratios, more = [], []
    for maximum, product, total in _SAMPLES:
        known = {item.name: maximum for item in region.body if item.op == "max"}
        known |= dict(zip(names, (product, total), strict=True))
        try:
            value = _at(whole, known)
            row = row_part.constant + sum(k * _at(x, known) for k, x in row_part.terms)
        except KeyError as missing:
            raise Inapplicable(f"output {output.name} is made of {missing.args[0]} too") from missing
        ratios.append(value * total / product)
        more.append(value - math.log(total) + row)
    return ratios, more


def _at(term: Term, known: Mapping[str, float]) -> float:
    """The value of an expression of row values. KeyError, with what it is, for a leaf or primitive not known."""
    if not isinstance(term, Expr):
        return float(term)
    if not term.args:
        if term.name not in known:
            raise KeyError(term.name or term.op)
        return known[term.name]
    if family_of(term.op) is Family.ROUNDING:
        return _at(term.args[0], known)
    x = [_at(arg, known) for arg in term.args]
    match term.op:
        case "add" | "sub" | "mul" | "div":
            return _ARITHMETIC[term.op](x[0], x[1])
        case "equal":
            return float(x[0] == x[1])
        case "where":
            return x[1] if x[0] else x[2]
        case "log" | "log2":
            return math.log(x[0]) if term.op == "log" else math.log2(x[0])
    raise KeyError(term.op)


_ARITHMETIC: Mapping[str, Callable[[float, float], float]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
}
