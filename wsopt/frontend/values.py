"""Values of a loop and its epilogue as a graph of scalar primitives in which equal values are one.

So a maximum that is written out beside a softmax is the softmax's own, and a rewrite needs no search for
copies.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from wsopt.frontend.axes import Axes, RawView
from wsopt.frontend.types import End
from wsopt.graph.types import DType
from wsopt.primitives import comparison_of
from wsopt.tensors.views import FULL, K_BLOCK, Bound, Role

Term = str | int | float
"""A value by name, or a number."""

REDUCTIONS: Mapping[str, str] = MappingProxyType(
    {"reduce_max": "max", "reduce_largest": "max", "reduce_sum": "sum"}
)
"""Primitives that reduce a value along the pool's axis, one result a row. Where one element is not a number the
largest is none either; the maximum leaves that open.
"""

OVER_ROWS: Mapping[str, str] = MappingProxyType({"sum_of_rows": "sum", "max_of_rows": "max"})
"""Primitives that reduce a value over all rows of a kernel, one result a column."""

SINKS = (*REDUCTIONS, "contract")
"""Primitives whose result is complete only after the loop; a sum or a product may have a rescale factor, last."""

_FIXED = {
    "product": K_BLOCK,
    "contract": FULL,
    **dict.fromkeys(REDUCTIONS, frozenset({Role.ROW})),
    **dict.fromkeys(OVER_ROWS, frozenset({Role.COLUMN})),
}


@dataclass(frozen=True, slots=True)
class Value:
    """One primitive applied to values and numbers.

    `label` tells leaves apart: the node of a `product` or `contract`, the use of a `source`, the axis of an
    iota. `node` is the graph's node that it was made for. `needs` are the sinks that it depends on.
    """

    primitive: str
    args: tuple[Term, ...]
    spans: frozenset[Role]
    dtype: DType
    label: tuple[str, int]
    node: str
    needs: frozenset[str]


Rule = Callable[["Pool", tuple[Term, ...], DType, str], Term | None]
"""What a primitive on these operands, of this type and for this node, is equal to; None if to nothing simpler."""


@dataclass(slots=True)
class Pool:
    """Values by name, every one after those it reads. `along` is the axis that reductions go along.

    `rules` are the identities that are applied to a primitive when a value of it is made.
    """

    rules: Mapping[tuple[str, DType], Rule]
    values: dict[str, Value] = field(default_factory=dict)
    _known: dict[object, str] = field(default_factory=dict)
    along: Role = Role.STREAM

    def __getitem__(self, name: str) -> Value:
        return self.values[name]

    def make(
        self,
        primitive: str,
        args: tuple[Term, ...],
        dtype: DType,
        node: str,
        label: tuple[str, int] = ("", 0),
        spans: frozenset[Role] = frozenset(),
    ) -> Term:
        """The value of a primitive, simplified; an older one if it is the same.

        `spans` are given for leaves; others vary along what their operands vary along.
        """
        rule = self.rules.get((primitive, dtype))
        simpler = None if rule is None else rule(self, args, dtype, node)
        if simpler is not None:
            return simpler
        key = (primitive, tuple((type(a), repr(a)) for a in args), dtype, label)
        if key not in self._known:
            found = _FIXED.get(primitive, spans.union(*map(self.spans, args)))
            needs: frozenset[str] = frozenset().union(*map(self.needs, args))
            name = f"%{len(self.values)}"
            self._known[key] = name
            self.values[name] = Value(primitive, args, found, dtype, label, node, needs)
        return self._known[key]

    def apply(self, node: str, primitive: str, *args: Term) -> Term:
        """The value of an f32 primitive or a comparison on operands, made for a node."""
        return self.make(primitive, args, DType.BOOL if comparison_of(primitive) else DType.F32, node)

    def needs(self, term: Term) -> frozenset[str]:
        """The sinks that a term depends on, itself among them."""
        if not isinstance(term, str):
            return frozenset()
        own = {term} if self.values[term].primitive in SINKS else set()
        return self.values[term].needs | own

    def spans(self, term: Term) -> frozenset[Role]:
        """The axes that a term varies along."""
        return self.values[term].spans if isinstance(term, str) else frozenset()

    def streams(self, term: Term) -> bool:
        """Whether a term varies along the axis that is reduced: the streamed one, or a row held whole."""
        return self.along in self.spans(term)

    def is_f32(self, term: Term) -> bool:
        """Whether a term is a value of type f32."""
        return isinstance(term, str) and self.values[term].dtype is DType.F32

    def match(self, term: Term, *primitives: str) -> tuple[Term, ...] | None:
        """The operands of a term that one of these primitives makes, or None."""
        if isinstance(term, str) and self.values[term].primitive in primitives:
            return self.values[term].args
        return None


@dataclass(frozen=True, slots=True)
class Draft:
    """A region on its way: a graph's values and the tensors that they read, as the passes hand them on.

    `raw` are the tensors by use of an input, `outputs` the values that are stored, `pieces` the graph's output that
    each is, and which of the tensors that lie one behind the other there. What passes find out of the loop
    is as in a region: its `bounds`, the value of each choice by them where they hold (`unmasked`), why nothing beyond
    its `end` counts, and whether a number was taken for minus infinity (`full_rows`).
    """

    axes: Axes
    raw: Mapping[str, RawView]
    pool: Pool
    outputs: tuple[Term, ...]
    pieces: tuple[tuple[str, int], ...]
    bounds: tuple[Bound, ...] = ()
    unmasked: Mapping[str, Term] = field(default_factory=dict)
    end: End = End.NOTHING
    full_rows: bool = False

    def live(self) -> dict[str, Value]:
        """The values that an output depends on, each after those it reads."""
        wanted = reachable(self.pool, self.outputs)
        return {name: value for name, value in self.pool.values.items() if name in wanted}


def reachable(pool: Pool, terms: Iterable[Term], *, ends: Container[str] = ()) -> frozenset[str]:
    """Names of all values that terms depend on, and their own; no further than primitives that are `ends`."""
    found = {term for term in terms if isinstance(term, str)}
    for name, value in reversed(pool.values.items()):
        if name in found and value.primitive not in ends:
            found.update(a for a in value.args if isinstance(a, str))
    return frozenset(found)


@dataclass(slots=True)
class Rewriter:
    """Copies a draft into a new pool, value by value; subclasses' `_visit` changes some on the way."""

    draft: Draft
    pool: Pool = field(init=False)
    new: dict[str, Term] = field(default_factory=dict)

    @classmethod
    def of(cls, draft: Draft) -> Draft:
        """The rewritten draft."""
        return cls(draft).run()

    def term(self, old: Term) -> Term:
        """The new term for an old one."""
        return self.new[old] if isinstance(old, str) else old

    def run(self) -> Draft:
        """The rewritten draft."""
        self.pool = Pool(self.draft.pool.rules, along=self.draft.pool.along)
        for name, value in self.draft.live().items():
            self.new[name] = self._visit(name, value, tuple(map(self.term, value.args)))
        outputs = tuple(map(self.term, self.draft.outputs))
        return replace(self.draft, pool=self.pool, outputs=outputs, unmasked=dict(self._unmasked()))

    def _unmasked(self) -> Iterator[tuple[str, Term]]:
        """The choices by bounds that are left, by their new names."""
        for choice, value in self.draft.unmasked.items():
            if isinstance(made := self.new.get(choice), str):
                yield made, self.term(value)

    def _visit(self, name: str, value: Value, args: tuple[Term, ...]) -> Term:
        """The new value for an old one, whose operands have become `args`."""
        return self.copy(value, args)

    def copy(self, value: Value, args: tuple[Term, ...]) -> Term:
        """A value's primitive on new operands."""
        spans = frozenset() if value.args and value.primitive != "source" else value.spans
        return self.pool.make(value.primitive, args, value.dtype, value.node, value.label, spans)
