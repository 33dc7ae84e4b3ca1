"""The online form: a maximum that feeds exp(x - max) that feeds linear reductions needs one pass.

With r the running maximum (times a positive number, plus what is fixed for a row, or the larger of both), every sum
of values in proportion to exp2(x - r) is multiplied by exp2(r before - r now) before a K-block's own is added; then
it is always what it would be had the last r been known from the start.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.frontend.algebra import is_number
from wsopt.frontend.values import Pool, Rewriter, Term, Value, reachable
from wsopt.primitives import Family, family_of
from wsopt.tensors.views import Role

Shifts = tuple[str, ...]
"""The running terms r that a value is in proportion to exp2(-r) of, sorted; their sum counts."""


_SEES_ZERO = frozenset({"div", "mul", "where", "equal"})
"""What does the right thing with a sum of zero in a row of nothing but -inf: a quotient of zeros is not a number, and
the others are how a graph asks for such rows.
"""


def _running_maximum(pool: Pool, term: Term) -> str | None:
    """The running maximum in a row term, which may be scaled by positive numbers, shifted by row constants, and no
    less than one.
    """
    while isinstance(term, str):
        value = pool[term]
        match value.primitive, value.args:
            case "reduce_max", _:
                return term
            case "mul", (x, k) if is_number(k) and not isinstance(k, str) and k > 0:
                term = x
            case (("add" | "sub"), (x, y)) if not pool.needs(y):
                term = x
            case "add", (x, y) if not pool.needs(x):
                term = y
            case "maximum", (x, y) if not pool.needs(y):
                term = x
            case "maximum", (x, y) if not pool.needs(x):
                term = y
            case "where", (condition, 0 | 0.0, m) if pool.match(condition, "equal") == (m, -math.inf):
                term = m
            case _:
                return None
    return None


@dataclass(slots=True)
class OnlineSums(Rewriter):
    """Makes one pass enough for the sums of a draft: gives `contract` and `reduce_sum` their rescale factor, if any.

    Raises LoweringError where a value of the loop depends on a reduction that only the whole axis gives. `shifts` are
    of the old values that vary along the stream.

    A value that cannot be summed up in one pass has, instead of shifts, the text that says why.
    """

    shifts: dict[str, Shifts | str] = field(default_factory=dict)

    def _visit(self, name: str, value: Value, args: tuple[Term, ...]) -> Term:
        if self.draft.pool.streams(name):
            self.shifts[name] = self._shifts(value)
            found = self._difference(value)
            if found is not None:
                change = self.pool.apply(value.node, "sub", self.term(found[0]), self._with(found[1], "safe"))
                return self.copy(value, (change,))
        begins_anew = len(value.args) > 1  # where the largest that it depends on grows
        if value.primitive in ("reduce_max", "reduce_largest") and value.needs and not begins_anew:
            raise LoweringError(
                f"node {value.node}: the maximum is of values that depend on a reduction along the same axis "
                f"({self._last_sink(value.needs)[1]}); that takes a second pass over the axis"
            )
        if value.primitive in ("contract", "reduce_sum"):
            rescale = self._rescale(value)
            return self.copy(value, args if rescale is None else (*args, rescale))
        if value.primitive not in _SEES_ZERO:
            args = tuple(self._undefined(*pair) for pair in zip(value.args, args, strict=True))
        return self.copy(value, args)

    # --- what a value is in proportion to -----------------------------------------------------------

    def _shifts(self, value: Value) -> Shifts | str:
        pool = self.draft.pool
        if not value.needs:
            return ()
        word, node = self._last_sink(value.needs)
        refusal = (
            f"node {value.node}: {value.primitive} of what depends on the {word} of {node} "
            "is not in proportion to exp(x - max)"
        )
        if value.primitive == "exp2":
            found = self._difference(value)
            return refusal if found is None else (found[1],)
        shifts: list[Shifts] = []
        for one in map(self._of, value.args):
            if isinstance(one, str):
                return one
            shifts.append(one)
        match value.primitive, value.args:
            case "mul", _:
                return tuple(sorted(shifts[0] + shifts[1]))
            case "div", (_, k) if not pool.needs(k):
                return shifts[0]
            case primitive, _ if family_of(primitive) is Family.ROUNDING:
                return shifts[0]
            case "where", (condition, *terms) if not pool.needs(condition):
                pairs = zip(terms, shifts[1:], strict=True)
            case (("add" | "sub"), terms):
                pairs = zip(terms, shifts, strict=True)
            case _:
                return refusal
        common = {shift for term, shift in pairs if not is_number(term, 0)}  # zeros agree with any
        return common.pop() if len(common) == 1 else refusal

    def _of(self, term: Term) -> Shifts | str:
        needs = self.draft.pool.needs(term)
        if not needs or term in self.shifts:
            return self.shifts.get(str(term), ())
        word, node = self._last_sink(needs)
        return f"{node}: its {word} is complete only after the loop"

    def _difference(self, value: Value) -> tuple[Term, str] | None:
        """x and r of exp2(x - r) with a running maximum in r alone."""
        pool = self.draft.pool
        args = pool.match(value.args[0], "sub") if value.primitive == "exp2" else None
        if args is None or pool.needs(args[0]) or _running_maximum(pool, args[1]) is None:
            return None
        return args[0], str(args[1])

    def _last_sink(self, needs: frozenset[str]) -> tuple[str, str]:
        """What the last one of sinks gives, and its node, in words."""
        value = self.draft.pool[max(needs, key=lambda name: int(name[1:]))]
        words = {"reduce_max": "maximum", "reduce_largest": "maximum", "reduce_sum": "sum"}
        return words.get(value.primitive, "product"), f"node {value.node}"

    # --- rescale factor --------------------------------------------------------------------------------------

    def _rescale(self, value: Value) -> Term | None:
        """The rescale factor of the sums so far when a K-block is added; None where no running maximum is in them."""
        found = self._of(value.args[0])
        if isinstance(found, str):
            raise LoweringError(
                f"node {value.node}: cannot be summed in one pass along the "
                + (
                    f"streamed axis; {found}"
                    if self.pool.along is Role.STREAM
                    else f"reduced axis, which no SM holds; {found}: {remedies.OWN_SUMS}"
                )
            )
        rescale: Term | None = None
        for shift in found:
            before, now = self._with(shift, "before"), self._with(shift, "safe")
            one = self.pool.apply(value.node, "exp2", self.pool.apply(value.node, "sub", before, now))
            rescale = one if rescale is None else self.pool.apply(value.node, "mul", rescale, one)
        return rescale

    def _undefined(self, old: Term, new: Term) -> Term:
        """A complete sum of exp(x - max), not a number where it is meant to be none: in a row of nothing but -inf.

        The safe maximum makes that sum zero, which is meant only where the graph itself made its maximum safe; no
        other row's is, for the maximum itself adds one.
        """
        args = self.draft.pool.match(old, "reduce_sum")
        found = self._of(args[0]) if args else ()
        if isinstance(found, str) or not any(map(self._is_unsafe, found)):
            return new
        node = self.draft.pool[str(old)].node
        return self.pool.apply(node, "where", self.pool.apply(node, "equal", new, 0.0), math.nan, new)

    def _is_unsafe(self, term: Term) -> bool:
        """Whether a running term may be -inf, as the maximum of a masked row, without a choice that replaces it."""
        if not isinstance(term, str) or not self.draft.pool.needs(term):
            return False
        value = self.draft.pool[term]
        if value.primitive == "reduce_max":
            behind = reachable(self.draft.pool, value.args)
            return any(-math.inf in self.draft.pool[name].args for name in behind)
        if value.primitive == "maximum":  # what else it may be is no masked row's
            return all(map(self._is_unsafe, value.args))
        return value.primitive != "where" and any(map(self._is_unsafe, value.args))

    def _with(self, term: Term, form: str) -> Term:
        """A running term with its maximum as it was before the K-block, or made safe where it is -inf.

        Before the first element that counts the maximum is -inf. As it was, it makes the rescale factor zero; now, it
        has to be some number, for -inf - -inf is nan.
        """
        if not isinstance(term, str) or not self.draft.pool.needs(term):
            return self.term(term)
        value = self.draft.pool[term]
        if value.primitive == "where":  # made safe by the graph itself
            return self._with(value.args[2], form)
        if value.primitive != "reduce_max":
            return self.copy(value, tuple(self._with(a, form) for a in value.args))
        maximum = self.term(term)
        if form == "before":
            return self.pool.apply(value.node, "before", maximum)
        nothing = self.pool.apply(value.node, "equal", maximum, -math.inf)
        return self.pool.apply(value.node, "where", nothing, 0.0, maximum)
