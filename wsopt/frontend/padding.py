"""Elements that K-blocks hold beyond the end of the streamed axis: where they would count, a choice leaves them out.

TMA fills a box beyond a tensor's end with zeros. Zeros add nothing to a product of loaded rows, but a score
of zero takes part in a maximum, and its exponential in a sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from wsopt.frontend.algebra import factor, is_number
from wsopt.frontend.kinds import Kind
from wsopt.frontend.needed import end_is_masked
from wsopt.frontend.over_rows import is_carried
from wsopt.frontend.types import End
from wsopt.frontend.values import OVER_ROWS, REDUCTIONS, SINKS, Draft, Rewriter, Term, Value
from wsopt.graph.types import DType
from wsopt.primitives import PRIMITIVES, Family, family_of
from wsopt.tensors.views import TMA_BITS, Bound, Role, pow2

_FINITE = "finite"
_ANY = "any"

State = float | str
"""A value beyond the end: a number that it is known to be, some finite number, or anything, nan included."""


@dataclass(slots=True)
class _Padder(Rewriter):
    """Makes every maximum and sum ignore what lies beyond the end. `states` are of the new values."""

    states: dict[str, State] = field(default_factory=dict)
    unmasked: dict[str, Term] = field(default_factory=dict)
    padded: dict[str, tuple[float, str]] = field(default_factory=dict)

    def _visit(self, name: str, value: Value, args: tuple[Term, ...]) -> Term:
        if value.primitive in SINKS:
            args = (self._neutral(value.primitive, args[0]), *args[1:])
        elif value.primitive == "exp2":
            args = (self._exponent(args[0]),)
        return self.copy(value, args)

    @property
    def along(self) -> Role:
        """The axis beyond whose end elements lie."""
        return self.pool.along

    # --- where it would count -----------------------------------------------------------------------

    def _neutral(self, sink: str, term: Term) -> Term:
        """A sink's operand with what it ignores beyond the end; the other operand of a product is zero there. Of
        magnitudes zero is the least.
        """
        largest = sink == "reduce_max" or (sink == "reduce_largest" and not self.pool.match(term, "abs"))
        state, neutral = self.state(term), -math.inf if largest else 0.0
        ignored = state == neutral or (sink == "contract" and _is_finite(state))
        return term if ignored else self._inside(term, neutral)

    def _inside(self, term: Term, other: float) -> Term:
        assert isinstance(term, str), "what is summed along the stream is no number"
        value = self.pool[term]
        if family_of(value.primitive) is Family.ROUNDING and isinstance(value.args[0], str):
            return self.copy(value, (self._inside(value.args[0], other),))
        along = self.along
        inside = self.pool.make(f"inside_{along}", (), DType.BOOL, value.node, spans=frozenset({along}))
        chosen = self.pool.apply(value.node, "where", inside, term, other)
        if isinstance(chosen, str) and self.pool.match(chosen, "where"):
            self.unmasked[chosen] = term
            if other == -math.inf:
                scale, base = factor(self.pool, term)
                self.padded[str(base)] = (scale, chosen)
        return chosen

    def _exponent(self, term: Term) -> Term:
        """x - r with the x that the maximum in r was taken of, so that one choice serves both."""
        args = self.pool.match(term, "sub")
        k, x = factor(self.pool, args[0]) if args else (0.0, term)
        scale, chosen = self.padded.get(str(x), (0.0, ""))
        if args is None or k * scale <= 0:
            return term
        node = self.pool[str(term)].node
        return self.pool.apply(node, "sub", self.pool.apply(node, "mul", chosen, k / scale), args[1])

    # --- what stands there --------------------------------------------------------------------------

    def state(self, term: Term) -> State:
        """The state of a value beyond the end: a number, or whether it is finite."""
        for name in [*self.pool.values][len(self.states) :]:
            self.states[name] = self._state(self.pool[name])
        return self._known(term)

    def _known(self, term: Term) -> State:
        return self.states[term] if isinstance(term, str) else float(term)

    def _state(self, value: Value) -> State:
        primitive, family = value.primitive, family_of(value.primitive)
        if primitive == "product" or (primitive == "source" and self.along in value.spans):
            return 0.0
        if primitive not in PRIMITIVES or family in (Family.INDEX, Family.INSIDE):
            return _FINITE
        facts, states = PRIMITIVES[primitive], [self._known(a) for a in value.args]
        finite = all(map(_is_finite, states))
        match primitive, states:
            case "where", [_, x, y]:
                if family_of(self.pool[str(value.args[0])].primitive) is Family.INSIDE:
                    return y
                return x if x == y else _FINITE if _is_finite(x) and _is_finite(y) else _ANY
            case _ if family is Family.ROUNDING:
                return states[0]
            case "mul", [_, _] if 0.0 in states:
                return 0.0 if finite else _ANY
            case (("add" | "sub"), [x, "finite"]) if x == -math.inf:
                return -math.inf
            case "mul", [x, float(k)] if x == -math.inf and is_number(value.args[1]):
                return -math.inf if k > 0 else _ANY
            case _, [x] if x == -math.inf and facts.at_low is not None:
                return facts.at_low
            case _ if set(states) == {0.0} and facts.at_zero is not None:
                return facts.at_zero
        return (
            _FINITE if (facts.finite and finite) or value.dtype in (DType.BOOL, DType.I32, DType.I8) else _ANY
        )


def _is_finite(state: State) -> bool:
    """Whether what stands beyond the end is some finite number."""
    return math.isfinite(state) if isinstance(state, float) else state == _FINITE


def pad_stream(draft: Draft) -> Draft:
    """An equal draft for K-blocks that reach beyond the end of the streamed axis.

    Where what lies there would count, the end is one more bound of the loop, unless bounds end every row before.
    """
    rows, stream = draft.axes.extent(Role.ROW), draft.axes.extent(Role.STREAM)
    padder = _Padder(draft)
    padded = padder.run()
    if padder.unmasked and end_is_masked(draft.bounds, rows, stream):
        return replace(draft, end=End.MASKS)
    if not padder.unmasked:
        return padded
    bounds = (*draft.bounds, Bound(0, -1, stream - 1))
    return replace(padded, bounds=bounds, unmasked={**padded.unmasked, **padder.unmasked}, end=End.BOUND)


_LEAST_COLUMNS = 64
"""Columns of a product's tile at least."""

LONGEST_PART = 8192
"""Elements of the longest part of a row that is not held whole; others are powers of two as well."""

SHORT_ROW = 16
"""Columns that tiles of rows with fewer elements may have at most, where neighbours in memory are of different rows:
a consumer's warps share the columns then, and take so many at a time.
"""


@dataclass(slots=True)
class _RowPadder(_Padder):
    """Makes reductions over rows ignore the rows of a tile that lie beyond the end: inputs are zeros there."""

    @property
    def along(self) -> Role:
        return Role.ROW

    def _visit(self, name: str, value: Value, args: tuple[Term, ...]) -> Term:
        if is_carried(value.primitive):
            state, neutral = self.state(args[0]), -math.inf if OVER_ROWS[value.primitive] == "max" else 0.0
            args = args if state == neutral else (self._inside(args[0], neutral),)
        return self.copy(value, args)

    def _state(self, value: Value) -> State:
        states = [self._known(a) for a in value.args]
        if value.primitive in REDUCTIONS:
            return states[0] if states[0] == 0.0 or not _is_finite(states[0]) else _FINITE
        known = super(_RowPadder, self)._state(value)
        if known not in (_FINITE, _ANY) or value.dtype is not DType.F32 or not all(map(_is_number, states)):
            return known
        return self._computed(value, states)

    def _computed(self, value: Value, states: list[State]) -> State:
        """What a primitive makes of numbers that are known."""
        if value.primitive not in PRIMITIVES or not PRIMITIVES[value.primitive].numpy or not states:
            return _FINITE
        with np.errstate(all="ignore"):
            found = float(PRIMITIVES[value.primitive].function(*map(np.float32, states)))
        return found if math.isfinite(found) else _ANY


def _is_number(state: State) -> bool:
    return isinstance(state, float) and math.isfinite(state)


def pad_rows(draft: Draft) -> Draft:
    """An equal draft for tiles with rows beyond the end, where reductions over rows would count them."""
    carried = any(is_carried(value.primitive) for value in draft.live().values())
    return _RowPadder.of(draft) if carried else draft


def pad_columns(draft: Draft) -> Draft:
    """An equal draft for tiles whose rows reach beyond the end of the reduced axis.

    Of rows in parts the last part may reach there, unless parts of any length end with the row.
    """
    extent = draft.axes.extent(Role.COLUMN)
    if draft.axes.kind is Kind.LONG_ROWS:
        return _Padder.of(draft) if extent % LONGEST_PART else draft
    return draft if extent == max(pow2(extent), _least_columns(draft)) else _Padder.of(draft)


def _least_columns(draft: Draft) -> int:
    """Columns that a tile of whole rows has at least: no row that TMA copies is shorter than 16 bytes."""
    if draft.axes.kind is Kind.REDUCED:
        return _LEAST_COLUMNS
    if _lies_outside(draft):
        return SHORT_ROW
    graph = draft.axes.graph
    types = (
        *(raw.dtype for raw in draft.raw.values()),
        *(graph.type_of(name).dtype for name in graph.outputs),
    )
    return TMA_BITS // min(dtype.bits for dtype in types)


def _lies_outside(draft: Draft) -> bool:
    """Whether the reduced axis lies outside of that of the rows in memory: neighbours are of different rows then."""
    roles = draft.axes.roles
    dims = (dim for raw in draft.raw.values() for dim in raw.dims if dim.stride == 1 < dim.extent)
    return any(roles.get(dim.axis) is Role.ROW for dim in dims)
