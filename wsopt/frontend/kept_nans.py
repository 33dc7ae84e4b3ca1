"""Maxima that keep what is not a number, where it would be missed.

The largest of a row is no number where one of its elements is none. The hardware drops such elements unless asked;
where it may, the parts of a row come together in more ways. It may where a maximum is subtracted from a row whose
exponentials are added up, as softmax does: that sum is not a number then, nor is what it divides. So a maximum keeps
them only if it reaches an output some other way.

What is told of a row here is under the hypothesis that one element of what a maximum reduces is not a number, and the
maximum the largest of the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from wsopt.frontend.values import Pool, Rewriter, Term, Value
from wsopt.graph.types import DType
from wsopt.primitives import Family, comparison_of, family_of

_WHOLE = (DType.I32, DType.I8, DType.I4, DType.BOOL)
_CARRY_ON = frozenset({Family.ARITHMETIC, Family.REAL, Family.ROUNDING})
"""Primitives that make a not-a-number of one."""
_SUM_UP = frozenset({"reduce_sum", "contract", "reduce_largest"})
"""What is no number for a row of which one element is none."""


@dataclass(slots=True)
class KeptNans(Rewriter):
    """Makes maxima whose not-a-numbers would be missed of those that keep them."""

    def _visit(self, name: str, value: Value, args: tuple[Term, ...]) -> Term:
        if value.primitive == "reduce_max" and self._is_missed(name, value):
            return self.pool.make("reduce_largest", args, value.dtype, value.node)
        return self.copy(value, args)

    def _is_missed(self, name: str, value: Value) -> bool:
        pool = self.draft.pool
        if _is_number(pool, value.args[0]):
            return False
        row = _Row(pool, {name})
        row.begin(value.args[0])
        for other, made in self.draft.live().items():
            row.enter(other, made)
        return any(output in row.reached for output in self.draft.outputs)


def _is_number(pool: Pool, term: Term) -> bool:
    """Whether a term is never a not-a-number: a whole number, a number, or a choice of such."""
    if not isinstance(term, str):
        return not math.isnan(term)
    value = pool[term]
    if value.dtype in _WHOLE:
        return True
    if value.primitive == "where":
        return all(_is_number(pool, one) for one in value.args[1:])
    passed = _passed(value)
    return passed is not None and _is_number(pool, passed)


def _passed(value: Value) -> Term | None:
    """The operand that a value is not a number with, and only with: what it negates, rounds, or multiplies by a
    number; None where there is none.
    """
    match value.primitive, value.args:
        case "neg", (x,):
            return x
        case "mul", (x, k) if not isinstance(k, str) and math.isfinite(k) and k != 0:
            return x
        case primitive, (x,) if family_of(primitive) is Family.ROUNDING:
            return x
    return None


@dataclass(slots=True)
class _Row:
    """A row one of whose elements is not a number: the values that its maximum has `reached`, those that are not
    numbers at that `element`, those that are none in the `whole` row, and conditions that are known at that element
    (`there`), or in the whole row (`everywhere`).
    """

    pool: Pool
    reached: set[str]
    element: set[str] = field(default_factory=set)
    whole: set[str] = field(default_factory=set)
    there: dict[str, bool] = field(default_factory=dict)
    everywhere: dict[str, bool] = field(default_factory=dict)

    def begin(self, term: Term | None) -> None:
        """What the maximum reduces is not a number at the element, nor is what it is chosen or passed on from."""
        while isinstance(term, str):
            self.element.add(term)
            value = self.pool[term]
            if value.primitive == "where" and not isinstance(value.args[2], str):
                self.there[str(value.args[0])] = True
                term = value.args[1]
            elif value.primitive == "where" and not isinstance(value.args[1], str):
                self.there[str(value.args[0])] = False
                term = value.args[2]
            else:
                term = _passed(value)

    def enter(self, name: str, value: Value) -> None:
        """Find what a value is, after those that it is made of."""
        none_there, none_at_all = self._of(value)
        if none_at_all:
            self.whole.add(name)
        if none_there or none_at_all:
            self.element.add(name)
        if comparison_of(value.primitive):
            self._compare(name, value)
        if not none_at_all and any(one in self.reached for one in value.args):
            self.reached.add(name)

    def _of(self, value: Value) -> tuple[bool, bool]:
        """Whether a value is not a number at the element, and whether it is none in the whole row."""
        if value.primitive in _SUM_UP:
            found = self._any(self.element, value.args)
            return found, found
        if value.primitive == "where":
            return self._chosen(value)
        if family_of(value.primitive) in _CARRY_ON and value.dtype not in _WHOLE:
            return self._any(self.element, value.args), self._any(self.whole, value.args)
        return False, False

    def _chosen(self, value: Value) -> tuple[bool, bool]:
        """Of a choice that is known the one that it takes; of another both, or the one beside a number, which stands
        for what the graph's own condition leaves out.
        """
        condition, *terms = value.args
        either: Mapping[bool, Term] = dict(zip((True, False), terms, strict=True))
        if condition in self.everywhere:
            taken = (either[self.everywhere[str(condition)]],)
            return self._any(self.element, taken), self._any(self.whole, taken)
        values = tuple(one for one in terms if isinstance(one, str))
        whole = bool(values) and all(one in self.whole for one in values)
        at = (either[self.there[str(condition)]],) if condition in self.there else values
        return bool(at) and all(one in self.element for one in at), whole

    def _compare(self, name: str, value: Value) -> None:
        """Nothing compares with a not-a-number, but that it is not equal."""
        for none, known in ((self.element, self.there), (self.whole, self.everywhere)):
            if self._any(none, value.args):
                known[name] = value.primitive == "not_equal"

    @staticmethod
    def _any(none: set[str], terms: tuple[Term, ...]) -> bool:
        return any(one in none for one in terms)
