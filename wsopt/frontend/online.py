"""The online form: a maximum that feeds exp(x - max) that feeds linear reductions needs one pass.

With r the running maximum (times a positive number, plus what is fixed for a row), every sum of values in
proportion to exp2(x - r) is multiplied by exp2(r before - r now) before a K-block's own is added; then it is
always what it would be had the last r been known from the start.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from wsopt.errors import LoweringError
from wsopt.frontend.algebra import is_number
from wsopt.frontend.values import Draft, Pool, Rewriter, Term, Value, reachable

Shifts = tuple[str, ...]
"""The running terms r that a value is in proportion to exp2(-r) of, sorted; their sum counts."""


_SEES_ZERO = frozenset({"div", "mul", "where", "equal"})
"""What does the right thing with a sum of zero in a row of nothing but -inf: a quotient of zeros is not a number, and
the others are how a graph asks for such rows.
"""


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why a value of the loop cannot be summed up in one pass."""

    node: str
    reason: str


def running_maximum(pool: Pool, term: Term) -> str | None:
    """The running maximum in a row term, which may be scaled by positive numbers and shifted by row constants."""
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
            case "where", (_, 0 | 0.0, m) if value.args == _safe_args(pool, m, value.args[0]):
                term = m
            case _:
                return None
    return None


def _safe_args(pool: Pool, maximum: Term, condition: Term) -> tuple[Term, ...] | None:
    """The operands of where(max == -inf, 0, max), if that is what stands here."""
    found = pool.match(condition, "equal")
    return (condition, 0.0, maximum) if found == (maximum, -math.inf) else None


@dataclass(slots=True)
class _Onliner(Rewriter):
    """Gives sums their rescale factor. `shifts` are of the old values that vary along the stream, or a refusal."""

    shifts: dict[str, Shifts | _Refusal] = field(default_factory=dict)

    def visit(self, name: str, value: Value, args: tuple[Term, ...]) -> Term:
        if self.draft.pool.streams(name):
            self.shifts[name] = self._shifts(value)
            found = self._difference(value)
            if found is not None:
                change = self.pool.apply(value.node, "sub", self.term(found[0]), self._with(found[1], "safe"))
                return self.copy(value, (change,))
        if value.primitive == "reduce_max" and value.needs:
            raise LoweringError(
                f"node {value.node}: the maximum is of values that depend on a reduction along the same axis "
                f"(node {self.draft.pool.node(self._last_need(value.needs))}); that takes a second pass over the axis"
            )
        if value.primitive in ("contract", "reduce_sum"):
            rescale = self._rescale(value)
            return self.copy(value, args if rescale is None else (*args, rescale))
        if value.primitive not in _SEES_ZERO:
            args = tuple(self._undefined(*pair) for pair in zip(value.args, args, strict=True))
        return self.copy(value, args)

    # --- what a value is in proportion to -----------------------------------------------------------

    def _shifts(self, value: Value) -> Shifts | _Refusal:
        pool = self.draft.pool
        if not value.needs:
            return ()
        parts = [self._of(a) for a in value.args if isinstance(a, str)]
        refusal = next((part for part in parts if isinstance(part, _Refusal)), None)
        match value.primitive, value.args:
            case "exp2", _:
                found = self._difference(value)
                return self._refusal(value) if found is None else (found[1],)
            case _ if refusal is not None:
                return refusal
            case "mul", (x, y):
                return tuple(sorted((*self._known(x), *self._known(y))))
            case "div", (x, y) if not pool.needs(y):
                return self._known(x)
            case "where", (condition, *branches) if not pool.needs(condition):
                return self._common(value, branches)
            case (("add" | "sub"), branches):
                return self._common(value, list(branches))
            case _ if value.primitive.startswith("round_"):
                return self._known(value.args[0])
        return self._refusal(value)

    def _of(self, term: Term) -> Shifts | _Refusal:
        if not isinstance(term, str) or not self.draft.pool.needs(term):
            return ()
        if term in self.shifts:
            return self.shifts[term]
        sink = self._last_need(self.draft.pool.needs(term))
        return _Refusal(self.draft.pool.node(sink), f"its {self._word(sink)} is complete only after the loop")

    def _known(self, term: Term) -> Shifts:
        found = self._of(term)
        assert not isinstance(found, _Refusal), "refusals are looked for first"
        return found

    def _common(self, value: Value, branches: list[Term]) -> Shifts | _Refusal:
        """The common running maxima of the terms of one sum; zeros agree with any."""
        found = {self._known(branch) for branch in branches if not is_number(branch, 0)}
        return found.pop() if len(found) == 1 else self._refusal(value)

    def _difference(self, value: Value) -> tuple[Term, str] | None:
        """x and r of exp2(x - r) with a running maximum in r alone."""
        pool = self.draft.pool
        if value.primitive != "exp2":
            return None
        args = pool.match(value.args[0], "sub")
        if args is None or pool.needs(args[0]) or running_maximum(pool, args[1]) is None:
            return None
        return args[0], str(args[1])

    def _refusal(self, value: Value) -> _Refusal:
        sink = self._last_need(value.needs)
        return _Refusal(
            value.node,
            f"{value.primitive} of what depends on the {self._word(sink)} of node {self.draft.pool.node(sink)} "
            "is not in proportion to exp(x - max)",
        )

    def _last_need(self, needs: frozenset[str]) -> str:
        return max(needs, key=lambda name: int(name[1:]))

    def _word(self, sink: str) -> str:
        return {"reduce_max": "maximum", "reduce_sum": "sum"}.get(self.draft.pool[sink].primitive, "product")

    # --- rescale factor --------------------------------------------------------------------------------------

    def _rescale(self, value: Value) -> Term | None:
        """The rescale factor of the sums so far when a K-block is added; None where no running maximum is in them."""
        found = self._of(value.args[0])
        if isinstance(found, _Refusal):
            raise LoweringError(
                f"node {value.node}: cannot be summed in one pass along the streamed axis; node {found.node}: "
                f"{found.reason}"
            )
        rescale: Term | None = None
        for shift in found:
            change = self.pool.apply(
                value.node, "sub", self._with(shift, "before"), self._with(shift, "safe")
            )
            one = self.pool.apply(value.node, "exp2", change)
            rescale = one if rescale is None else self.pool.apply(value.node, "mul", rescale, one)
        return rescale

    def _undefined(self, old: Term, new: Term) -> Term:
        """A complete sum of exp(x - max), not a number where it is meant to be none: in a row of nothing but -inf.

        The safe maximum makes that sum zero, which is meant only where the graph itself made its maximum safe; no
        other row's is, for the maximum itself adds one.
        """
        args = self.draft.pool.match(old, "reduce_sum")
        found = self._of(args[0]) if args else ()
        if isinstance(found, _Refusal) or not any(map(self._is_unsafe, found)):
            return new
        assert isinstance(old, str), "a sum is no number"
        value = self.draft.pool[old]
        nothing = self.pool.apply(value.node, "equal", new, 0.0)
        return self.pool.apply(value.node, "where", nothing, math.nan, new)

    def _is_unsafe(self, term: Term) -> bool:
        """Whether a running term may be -inf, as the maximum of a masked row, without a choice that replaces it."""
        if not isinstance(term, str) or not self.draft.pool.needs(term):
            return False
        value = self.draft.pool[term]
        if value.primitive == "reduce_max":
            behind = reachable(self.draft.pool, value.args)
            return any(-math.inf in self.draft.pool[name].args for name in behind)
        return value.primitive != "where" and any(map(self._is_unsafe, value.args))

    def _with(self, term: Term, form: str) -> Term:
        """A running term with its maximum as it was before the K-block, or made safe where it is -inf.

        Before the first element that counts the maximum is -inf. As it was, it makes the rescale factor zero; now, it
        has to be some number, for -inf - -inf is nan.
        """
        if not isinstance(term, str) or not self.draft.pool.needs(term):
            return self.term(term)
        value = self.draft.pool[term]
        if value.primitive != "reduce_max":
            if value.primitive == "where":  # made safe by the graph itself
                return self._with(value.args[2], form)
            return self.copy(value, tuple(self._with(a, form) for a in value.args))
        maximum = self.term(term)
        if form == "before":
            return self.pool.apply(value.node, "before", maximum)
        nothing = self.pool.apply(value.node, "equal", maximum, -math.inf)
        return self.pool.apply(value.node, "where", nothing, 0.0, maximum)


def make_online(draft: Draft) -> Draft:
    """An equal draft whose sums need one pass: each `contract` and `reduce_sum` with its rescale factor, if any.

    Raises LoweringError where a value of the loop depends on a reduction that only the whole axis gives.
    """
    return _Onliner(draft).run()
