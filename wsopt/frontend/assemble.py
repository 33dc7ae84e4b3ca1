"""From rewritten values to a region: names, what the loop computes, the epilogue, sources and outputs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from wsopt.errors import LoweringError
from wsopt.frontend.axes import Dim, RawView
from wsopt.frontend.expand import OUTPUTS
from wsopt.frontend.kinds import Kind, producer
from wsopt.frontend.merge import Layout, merge_views
from wsopt.frontend.types import Contraction, Region
from wsopt.frontend.values import REDUCTIONS, SINKS, Draft, Term, Value, reachable
from wsopt.graph.types import DType
from wsopt.tensors.statements import BEFORE, Reduction, Scalar, Statement
from wsopt.tensors.views import FULL, K_BLOCK, Output, Role, Share, Source

_PER_ROW = frozenset({Role.ROW})
_SHORT_SUMS = (DType.F8E4M3, DType.F8E5M2)
"""Element types of operands whose sums the tensor cores keep in less than f32."""

Item = Statement | Reduction | Contraction
Extent = tuple[str, int] | tuple[Share | int, ...] | int


# --- tensors --------------------------------------------------------------------------------------------


def _output_view(draft: Draft, name: str, value: Term) -> RawView:
    """View of an output. Raises LoweringError for an output that is neither a tile nor one value a row."""
    axes, kind, spans = draft.axes, draft.axes.graph.type_of(name), draft.pool.spans(value)
    if kind.dtype not in OUTPUTS:
        raise LoweringError(f"output {name} is {kind.dtype.value}; add a cast to a floating-point type")
    if Role.STREAM in spans:
        raise LoweringError(
            f"output {name} varies along the streamed axis, which a kernel never holds whole; it can only "
            "be reduced or contracted along it"
        )
    raw = axes.raw_view(name)
    if (
        spans != FULL
        and axes.kind is Kind.PRODUCTS
        and not {axes.roles.get(dim.axis) for dim in raw.dims} >= FULL
    ):
        raise LoweringError(f"output {name} has not the rows and columns of a product; compute it outside")
    if spans not in ((FULL,) if axes.kind is Kind.PRODUCTS else (FULL, _PER_ROW)):
        raise LoweringError(
            f"output {name} is the same along the rows or columns of the product; compute it outside"
        )
    if not {axes.roles.get(dim.axis) for dim in raw.dims if dim.extent > 1} <= {Role.BATCH, *spans}:
        raise LoweringError(f"output {name} repeats its values along an axis; store them once")
    return raw.along(lambda dim: axes.roles.get(dim.axis) in {None, Role.BATCH, *spans})


def _uses(live: Mapping[str, Value]) -> frozenset[str]:
    """The uses of inputs that live values read."""
    read = {"source": ("",), "contract": (":1",), "product": (":0", ":1")}
    return frozenset(
        value.label[0] + operand for value in live.values() for operand in read.get(value.primitive, ())
    )


def _shape(draft: Draft, raw: RawView, layout: Layout) -> tuple[Extent, ...]:
    """For each dimension of an output an input's dimension of the same axes; else the product of its axes."""
    inputs = [raw for use, raw in draft.raw.items() if use in layout.views]
    known = [((raw.tensor, dim), raw.atoms(dim)) for raw in inputs for dim in range(raw.rank)]
    seen = {dim for dims in layout.views[f"out:{raw.tensor}"].origin for dim in dims}

    def extent(dim: int) -> Extent:
        atoms = raw.atoms(dim)
        named = next((place for place, other in known if other == atoms), None)
        if draft.axes.shapes[raw.tensor][dim] == 1 and not (named and dim in seen):
            return 1
        return named or tuple(_share(draft, atom, known) for atom in atoms)

    return tuple(map(extent, range(raw.rank)))


def _share(draft: Draft, atom: Dim, known: list[tuple[tuple[str, int], tuple[Dim, ...]]]) -> Share | int:
    """Run-time extent of an axis: for a dimension's outermost axis, the dimension's over its inner axes'."""
    for (tensor, dim), atoms in sorted(known, key=lambda one: len(one[1])):
        if atoms[:1] == (atom,):
            return Share(tensor, dim, math.prod(draft.axes.extents[a] for a in atoms[1:]))
    return draft.axes.extents[atom]


# --- arithmetic -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Assembly:
    """Writes values down as the region's items. `live` are those that outputs depend on.

    `names` are the node's with a number; a value that both loop and epilogue compute has two names.
    """

    draft: Draft
    live: dict[str, Value]
    layout: Layout
    counts: Counter[str] = field(default_factory=Counter)
    names: dict[str, str] = field(default_factory=dict)

    @property
    def _ends(self) -> tuple[str, ...]:
        """The primitives that only the end of the loop completes."""
        return SINKS if self.draft.axes.kind.along is Role.STREAM else ("contract",)

    def name(self, name: str, value: Value) -> str:
        """A new name for a value: a product has its node's, a source its use's."""
        if value.primitive in ("product", "contract", "source"):
            self.names[name] = value.label[0]
        elif value.primitive == "before":
            self.names[name] = self.names[str(value.args[0])] + BEFORE
        else:
            self.names[name] = f"{value.node}${self.counts[value.node]}"
            self.counts[value.node] += 1
        return self.names[name]

    def term(self, term: Term) -> str | Scalar:
        """A term by name, or the number that it is."""
        return self.names[term] if isinstance(term, str) else term

    def sources(self) -> tuple[Source, ...]:
        """The tensors that arithmetic reads."""
        return tuple(
            Source(self.name(name, value), self.layout.views[value.label[0]], value.spans)
            for name, value in self.live.items()
            if value.primitive == "source"
        )

    def loop(self) -> tuple[Item, ...]:
        """The loop's sums and maxima, and every value that they read."""
        pool, found = self.draft.pool, []
        wanted = reachable(pool, [n for n, value in self.live.items() if value.primitive in self._ends])
        for name, value in self.live.items():
            if value.primitive == "before":
                self.name(name, value)
            elif name in wanted and value.primitive != "source":
                found.append(self._item(name, value))
        return tuple(found)

    def epilogue(self) -> tuple[Statement | Reduction, ...]:
        """The epilogue's statements on the loop's results; values of the loop that they need are computed again."""
        wanted = reachable(self.draft.pool, self.draft.outputs, ends=self._ends)
        found = [
            self._item(name, value)
            for name, value in self.live.items()
            if name in wanted and value.primitive not in (*self._ends, "source")
        ]
        return tuple(item for item in found if not isinstance(item, Contraction))

    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The pairs of the loop's statements by name; where a number would stand the choice is kept."""
        names = self.names
        return tuple(
            (names[outer], names[inner])
            for outer, inner in self.draft.unmasked.items()
            if outer in names and isinstance(inner, str)
        )

    def outputs(self, raws: Mapping[str, RawView]) -> tuple[Output, ...]:
        """The values that are stored, and where."""
        return tuple(
            Output(
                raw.tensor,
                str(self.term(value)),
                self.layout.views[key],
                _shape(self.draft, raw, self.layout),
            )
            for value, (key, raw) in zip(self.draft.outputs, raws.items(), strict=True)
        )

    def _item(self, name: str, value: Value) -> Item:
        """A value as an item of the loop or the epilogue, with a new name."""
        args = tuple(self.term(a) for a in value.args)
        own, primitive = self.name(name, value), value.primitive
        if primitive in ("product", "contract"):
            return self._contraction(value, own, args)
        if primitive in REDUCTIONS:
            return Reduction(own, REDUCTIONS[primitive], str(args[0]), *map(str, args[1:]))
        if primitive == "iota_batch":
            primitive = f"iota_{self.layout.roles[value.label]}"
        return Statement(own, primitive, args, value.spans, value.dtype)

    def _contraction(self, value: Value, name: str, args: tuple[str | Scalar, ...]) -> Contraction:
        views, right = self.layout.views, self.layout.views[f"{name}:1"]
        if value.primitive == "product":
            left = views[f"{name}:0"]
            if Role.STREAM in left.roles:  # the product is written with its sides exchanged
                left, right = right, left
            return Contraction(name, left, right, False, K_BLOCK)
        tensor = self.live[str(value.args[0])]
        if tensor.primitive == "source":
            return Contraction(name, views[tensor.label[0]], right, self._promotes(name, right.dtype))
        return Contraction(name, str(args[0]), right, False, FULL, *map(str, args[1:]))

    def _promotes(self, name: str, dtype: DType) -> bool:
        """Whether a product asks for sums in f32 that its tensor instruction does not keep."""
        accumulate = producer(self.draft.axes.graph, name).attr("accumulate", str)
        return dtype in _SHORT_SUMS and accumulate != "fast"


def assemble(draft: Draft) -> Region:
    """The region of rewritten values. Raises LoweringError for outputs that a kernel cannot store."""
    graph, live = draft.axes.graph, draft.live()
    stored = zip(graph.outputs, draft.outputs, strict=True)
    outputs = {f"out:{name}": _output_view(draft, name, value) for name, value in stored}
    uses = _uses(live)
    read = {use: raw for use, raw in draft.raw.items() if use in uses}
    counted = {value.label for value in live.values() if value.primitive.startswith("iota_")}
    layout = merge_views(draft.axes, read | outputs, counted)
    assembly = _Assembly(draft, live, layout)
    sources, loop = assembly.sources(), assembly.loop()
    pairs = assembly.pairs()
    beside = tuple(item for item in loop if not isinstance(item, Contraction))
    chained = draft.axes.kind is Kind.CHAIN
    tiles = () if chained else tuple(source for source in sources if Role.STREAM in source.spans)
    return Region(
        name=graph.name,
        doc=graph.doc,
        extents=layout.extents,
        contractions=tuple(item for item in loop if isinstance(item, Contraction)),
        sources=tuple(source for source in sources if source not in tiles),
        statements=assembly.epilogue(),
        outputs=assembly.outputs(outputs),
        body=loop if chained else (),
        bounds=draft.bounds,
        unmasked=pairs,
        beside=() if chained else beside,
        tiles=tiles if beside else (),
        end=draft.end,
        full_rows=draft.full_rows,
    )
