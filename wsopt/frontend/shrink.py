"""Numbers of four bits that are multiplied by their scales as they are taken apart, 2**-24 of what they are.

The bits of such a number, in the place of the last of a fraction, are the number times the least of a type's
magnitudes, subnormal or just above: no other bits have to be put before them, and none to be subtracted. One
instruction multiplies that by the scale and by a power of two, and adds what makes the number a signed one, 8 times the
scale, which is exact; its one rounding is the product's. A power of two that makes up for the least magnitude is out of
range, so that 2**-24 of it stays, which the product's sums are divided by.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from wsopt.frontend.kinds import producer
from wsopt.frontend.values import Draft, Rewriter, Term, Value
from wsopt.graph.types import DType
from wsopt.tensors.views import FRAGMENT, SHRUNK

_SIGNED = (None, 8)
"""Zeros whose product with a scale has no more digits than the scale."""


def shrink(draft: Draft) -> Draft:
    """The draft with products of numbers of four bits and scales of groups shrunk, where they feed sums alone."""
    live = draft.live()
    found = {name: raws for name, value in live.items() if (raws := _product(draft, live, name, value))}
    if not found:
        return draft
    uses = {use for raws in found.values() for use in raws}
    raw = {use: replace(one, shrunk=use in uses) for use, one in draft.raw.items()}
    rewriter = _Shrinker(replace(draft, raw=raw), shrunk=frozenset(found))
    return rewriter.run()


def _product(draft: Draft, live: Mapping[str, Value], name: str, value: Value) -> tuple[str, ...]:
    """The uses of the numbers and the scales that a value is the product of; none if it is no such product."""
    if value.primitive != "mul" or value.dtype is not DType.BF16:
        return ()
    sources = [live[term] for term in value.args if isinstance(term, str) and live[term].primitive == "source"]
    if len(sources) != len(value.args):
        return ()
    numbers, scales = sorted(sources, key=lambda one: draft.raw[one.label[0]].dtype is not DType.I4)
    first, second = (draft.raw[one.label[0]] for one in (numbers, scales))
    node = producer(draft.axes.graph, numbers.node)
    four_bits = first.dtype is DType.I4 and first.zero in _SIGNED and second.dtype is DType.BF16
    grouped = node.op == "dequantize" and draft.pool.streams(value.args[1])
    if not (four_bits and grouped and first.constant and second.constant):
        return ()
    if node.attr("group", int) % FRAGMENT[DType.I4]:
        return ()
    readers = [one.primitive for one in live.values() if name in one.args]
    users = [one for one in live.values() for term in value.args if term in one.args]
    alone = set(readers) == {"contract"} and name not in draft.outputs and len(users) == len(value.args)
    return (numbers.label[0], scales.label[0]) if alone else ()


@dataclass(slots=True)
class _Shrinker(Rewriter):
    """Divides the sums of `shrunk` values by what these are multiplied by."""

    shrunk: frozenset[str] = field(kw_only=True)

    def _visit(self, name: str, value: Value, args: tuple[Term, ...]) -> Term:
        made = self.copy(value, args)
        if value.primitive == "contract" and value.args[0] in self.shrunk:
            return self.pool.apply(value.node, "mul", made, 1 / SHRUNK)
        return made
