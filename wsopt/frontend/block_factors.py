"""Factors of both operands of a product, moved past it: such as the scales of groups and of blocks of f8.

A factor that is constant along the contracted axis is applied to the sums after the loop. One that is constant over
aligned blocks of that axis multiplies each block's partial sums (GRAPH.md, 'What a compiler may change'). Both move
past a cast that is exact without them, and what is left are products of the tensors as they lie in memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.frontend.kinds import F8, producer
from wsopt.frontend.values import Rewriter, Term, Value
from wsopt.graph.types import DType
from wsopt.primitives import Family, family_of
from wsopt.tensors.views import Role

_EXACT = (DType.F16, DType.BF16, DType.F32)
"""Types that have every number of f8e4m3 and f8e5m2."""


@dataclass(frozen=True, slots=True)
class _Scaled:
    """A value as a tensor's element, times `over`, divided by `under`; factors are constant over aligned blocks."""

    rest: Term
    over: tuple[Term, ...] = ()
    under: tuple[Term, ...] = ()


@dataclass(slots=True)
class BlockFactors(Rewriter):
    """Makes products of computed operands products of bare tensors, each with the factors of its partial sums.

    Raises LoweringError, naming the node, for operands that are no tensors of f8 times such factors.
    """

    def _visit(self, name: str, value: Value, args: tuple[Term, ...]) -> Term:
        if value.primitive != "contract":
            return self.copy(value, args)
        sides = [self._split(arg) for arg in args]
        for operand, side in enumerate(sides):
            self._check(value, operand, side)
        if len({self._dtype(side) for side in sides}) > 1:
            left, right = (self._dtype(side).value for side in sides)
            raise LoweringError(
                f"node {value.node}: it multiplies a tensor of {left} by one of {right}; a product takes one type"
            )
        over = [term for side in sides for term in side.over]
        under = [term for side in sides for term in side.under]
        blocks = [term for term in over if self.pool.streams(term)]
        self._check_blocks(value, [*blocks, *filter(self.pool.streams, under)])
        found = self.copy(value, (sides[0].rest, sides[1].rest, *blocks))
        for term in over:
            if term not in blocks:
                found = self.pool.apply(value.node, "mul", found, term)
        for term in under:
            found = self.pool.apply(value.node, "div", found, term)
        return found

    def _split(self, term: Term) -> _Scaled:
        """The factors of an operand."""
        if not isinstance(term, str) or not self._varies(term):
            return _Scaled(term)
        value = self.pool[term]
        if family_of(value.primitive) is Family.ROUNDING and value.dtype in _EXACT:
            return self._split(value.args[0])
        if value.primitive in ("mul", "div"):
            first, second = map(self._split, value.args)
            if not self._varies(second.rest):
                more = (second.rest,)
                over, under = (more, ()) if value.primitive == "mul" else ((), more)
                return _Scaled(first.rest, first.over + over, first.under + under)
            if value.primitive == "mul" and not self._varies(first.rest):
                return _Scaled(second.rest, (*second.over, first.rest), second.under)
        return _Scaled(term)

    def _varies(self, term: Term) -> bool:
        """Whether a term varies from element to element of the contracted axis, and not from block to block alone."""
        if not isinstance(term, str):
            return False
        value = self.pool[term]
        if value.primitive == "source":
            atoms = [axis for axis, role in self.draft.axes.roles.items() if role is Role.STREAM]
            return atoms[-1] in {dim.axis for dim in self.draft.raw[value.label[0]].dims}
        if value.primitive == f"iota_{Role.STREAM}":
            return True
        return any(map(self._varies, value.args))

    def _dtype(self, side: _Scaled) -> DType:
        """The element type of an operand that is a tensor."""
        return self.draft.raw[self.pool[str(side.rest)].label[0]].dtype

    def _check(self, value: Value, operand: int, side: _Scaled) -> None:
        """Refuse an operand that is no tensor of f8, and operands of two types."""
        graph = self.draft.axes.graph
        name = producer(graph, value.node).tensors[operand]
        bare = isinstance(side.rest, str) and self.pool[side.rest].primitive == "source"
        if bare and self._dtype(side) in F8:
            return
        made = producer(graph, name)
        raise LoweringError(
            f"node {value.node}: operand {operand} of the matmul is computed by {made.op} node {name}; where both "
            "operands are computed, each has to be a tensor of f8 times factors that are constant along the "
            f"contracted axis or blocks of it: {remedies.computed_operand(graph, name)}"
        )

    def _check_blocks(self, value: Value, terms: list[Term]) -> None:
        """Refuse factors of blocks that are computed: consumers read them from rings."""
        for term in terms:
            found = self.pool[str(term)]
            if found.primitive != "source" or Role.STREAM not in found.spans:
                raise LoweringError(
                    f"node {found.node}: a factor of blocks of the contracted axis is computed in the kernel; it has "
                    "to be an input of the graph that is multiplied: compute it before the call"
                )
