"""From rewritten values to a region: tensors along axes, names, what the loop computes, the epilogue, outputs.

Which axes are merged on the way stands in `merging.py`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from wsopt.errors import LoweringError
from wsopt.frontend.axes import Dim, RawView
from wsopt.frontend.expand import STORED
from wsopt.frontend.kinds import F8, Kind, producer
from wsopt.frontend.merging import Layout, merge_views
from wsopt.frontend.over_rows import ending, is_carried
from wsopt.frontend.segments import offsets_use
from wsopt.frontend.types import Contraction, Region
from wsopt.frontend.values import OVER_ROWS, REDUCTIONS, SINKS, Draft, Term, Value, reachable
from wsopt.tensors.statements import BEFORE, Item, Reduction, Scalar, Statement
from wsopt.tensors.views import FULL, K_BLOCK, Output, Role, Share, Source

_READS = {
    "source": ("",),
    "contract": (":1",),
    "product": (":0", ":1"),
}
"""Primitives that read tensors, with the endings of the names under which a node uses them."""

Extent = tuple[str, int] | tuple[Share | int, ...] | int

# --- tensors --------------------------------------------------------------------------------------------


def _output_view(draft: Draft, name: str, piece: int, value: Term) -> RawView:
    """View of an output. Raises LoweringError for an output that is neither a tile nor one value a row."""
    axes, kind, spans = draft.axes, draft.axes.graph.type_of(name), draft.pool.spans(value)
    if kind.dtype not in STORED:
        raise LoweringError(f"output {name} is {kind.dtype.value}; add a cast to a floating-point type")
    if Role.STREAM in spans:
        raise LoweringError(
            f"output {name} varies along the streamed axis, which a kernel never holds whole; it can only "
            "be reduced or contracted along it"
        )
    raw = axes.raw_view(name, piece)
    if spans != FULL and axes.kind.plain and not {axes.roles.get(dim.axis) for dim in raw.dims} >= FULL:
        raise LoweringError(f"output {name} has not the rows and columns of a product; compute it outside")
    over_rows = spans == {Role.COLUMN} and _sums_rows(draft, value)
    if not over_rows and spans not in ((FULL,) if axes.kind.plain else (FULL, {Role.ROW})):
        raise LoweringError(
            f"output {name} is the same along the rows or columns of the product; compute it outside"
        )
    if not {axes.roles.get(dim.axis) for dim in raw.dims if dim.extent > 1} <= {Role.BATCH, *spans}:
        raise LoweringError(f"output {name} repeats its values along an axis; store them once")
    return raw.along(lambda dim: axes.roles.get(dim.axis) in {None, Role.BATCH, *spans})


def _sums_rows(draft: Draft, value: Term) -> bool:
    """Whether a value depends on a reduction over all rows."""
    return any(is_carried(draft.pool[name].primitive) for name in reachable(draft.pool, [value]))


def _shape(draft: Draft, raw: RawView, layout: Layout) -> tuple[Extent, ...]:
    """For each dimension of an output an input's dimension of the same axes; else the product of its axes."""
    inputs = [raw for use, raw in draft.raw.items() if use in layout.views]
    known = [((raw.tensor, dim), raw.atoms(dim)) for raw in inputs for dim in range(raw.rank)]
    known += [known for raw in inputs for known in _as_long(raw)]
    seen = {dim for dims in layout.views[f"out:{raw.tensor}:0"].origin for dim in dims}
    joined = {dim for one in raw.dims if one.cutout for dim in one.origin} | raw.alone

    def extent(dim: int) -> Extent:
        if dim in joined:
            return draft.axes.shapes[raw.tensor][dim]
        atoms = raw.atoms(dim)
        named = next((place for place, other in known if other == atoms), None)
        each = next((one.each for one in raw.dims if one.origin == (dim,)), 1)
        if each > 1:
            return (Share(*named, each),) if named else draft.axes.shapes[raw.tensor][dim]
        if draft.axes.shapes[raw.tensor][dim] == 1 and not (named and dim in seen):
            return 1
        return named or tuple(_beside_slice(inputs, atom) or _share(draft, atom, known) for atom in atoms)

    return tuple(map(extent, range(raw.rank)))


def _as_long(raw: RawView) -> Iterator[tuple[tuple[str, int], tuple[Dim, ...]]]:
    """Whole dimensions of which a view has as many elements, moved: behind zeros, others are left out."""
    for dim in raw.dims:
        if (
            dim.cutout
            and dim.cutout[1] == dim.extent
            and len(dim.origin) == 1
            and dim.part == (dim.extent, 1)
        ):
            yield (raw.tensor, dim.origin[0]), (dim.axis,)


def _beside_slice(inputs: list[RawView], atom: Dim) -> Share | None:
    """Run-time extent of an axis that is the outermost of a dimension of which another axis is a slice, or of which
    one element is seen.
    """
    for raw in inputs:
        cut = {dim.origin[:1] for dim in raw.dims if dim.cutout} | {(dim,) for dim in raw.alone}
        for dim in (dim for dim in raw.dims if dim.axis == atom and dim.origin in cut):
            if not dim.cutout and not dim.part[0]:
                return Share(raw.tensor, dim.origin[0], dim.part[1])
    return None


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
        return SINKS if self.draft.axes.kind.runs_on else ("contract",)

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
        """The tensors that values read element by element, each with a name."""
        return tuple(
            Source(self.name(name, value), self.layout.views[value.label[0]], value.spans)
            for name, value in self.live.items()
            if value.primitive == "source"
        )

    def loop(self) -> tuple[Item | Contraction, ...]:
        """The loop's sums and maxima, and every value that they read."""
        pool, found = self.draft.pool, []
        wanted = reachable(pool, [n for n, value in self.live.items() if value.primitive in self._ends])
        for name, value in self.live.items():
            if value.primitive == "before":
                self.name(name, value)
            elif name in wanted and value.primitive != "source":
                found.append(self._item(name, value))
        return tuple(found)

    def epilogue(self) -> tuple[Item, ...]:
        """The epilogue's statements on the loop's results; values of the loop that they need are computed again."""
        wanted = reachable(self.draft.pool, self.draft.outputs, ends=self._ends)
        found = [
            self._item(name, value)
            for name, value in self.live.items()
            if name in wanted and value.primitive not in (*self._ends, "source")
        ]
        return tuple(item for item in found if not isinstance(item, Contraction))

    def _item(self, name: str, value: Value) -> Item | Contraction:
        """A value as an item of the loop or the epilogue, with a new name."""
        args = tuple(self.term(a) for a in value.args)
        own, primitive = self.name(name, value), value.primitive
        if primitive in ("product", "contract"):
            return self._contraction(value, own, args)
        if primitive in OVER_ROWS:
            return Reduction(own, OVER_ROWS[primitive], str(args[0]), over_rows=True)
        if primitive in REDUCTIONS:
            rescale = str(args[1]) if len(args) > 1 else None
            return Reduction(own, REDUCTIONS[primitive], str(args[0]), rescale, primitive == "reduce_largest")
        if primitive == "iota_batch":
            primitive = f"iota_{self.layout.roles[value.label]}"
        return Statement(own, primitive, args, value.spans, value.dtype)

    def _contraction(self, value: Value, name: str, args: tuple[str | Scalar, ...]) -> Contraction:
        views = self.layout.views
        if self.draft.axes.kind is Kind.FACTORED:
            right = views[self.live[str(value.args[1])].label[0]]
        else:
            right = views[f"{name}:1"]
        if value.primitive == "product":
            left = views[f"{name}:0"]
            if Role.STREAM in left.roles:  # the product is written with its sides exchanged
                left, right = right, left
            return Contraction(name, left, right, False, K_BLOCK)
        operand, factored = self.live[str(value.args[0])], self.draft.axes.kind is Kind.FACTORED
        if operand.primitive != "source":
            rescale = str(args[1]) if len(args) > 1 else None
            return Contraction(name, str(args[0]), right, False, FULL, rescale)
        factors = tuple(map(str, args[2:])) if factored else ()
        accumulate = producer(self.draft.axes.graph, name).attr("accumulate", str)
        promote = accumulate == "promoted" or (right.dtype in F8 and accumulate != "fast") or bool(factors)
        return Contraction(name, views[operand.label[0]], right, promote, factors=factors)


def _tables(layout: Layout, known: tuple[Source, ...]) -> tuple[Source, ...]:
    """What chooses the pages of operands: nothing is computed of it, so that it varies along no axis of a tile."""
    names = dict.fromkeys(view.chosen.source for view in layout.views.values() if view.chosen)
    return tuple(
        Source(name, layout.views[name], frozenset())
        for name in names
        if all(name != source.name for source in known)
    )


def _layout(
    draft: Draft, live: Mapping[str, Value], stored: Mapping[str, RawView], offsets: str | None
) -> Layout:
    """The layout of all tensors that a kernel moves: inputs that live values read, those that choose their places,
    the `offsets` of segments, and outputs as they are `stored`.
    """
    uses = {value.label[0] + end for value in live.values() for end in _READS.get(value.primitive, ())}
    uses |= {raw.chosen[1] for use, raw in draft.raw.items() if use in uses and raw.chosen}
    read = {use: raw for use, raw in draft.raw.items() if use in uses or use == offsets}
    counted = {value.label for value in live.values() if value.primitive.startswith("iota_")}
    return merge_views(draft.axes, {**read, **stored}, counted)


def _outputs(assembly: _Assembly, stored: Mapping[str, RawView]) -> tuple[Output, ...]:
    """The values that are stored, with their views and run-time shapes."""
    draft, layout = assembly.draft, assembly.layout
    return tuple(
        Output(
            raw.tensor + (f".{piece}" if piece else ""),
            str(assembly.term(value)),
            layout.views[key],
            _shape(draft, raw, layout),
            _sums_rows(draft, value),
        )
        for value, (_, piece), (key, raw) in zip(draft.outputs, draft.pieces, stored.items(), strict=True)
    )


def assemble(draft: Draft) -> Region:
    """The region of rewritten values. Raises LoweringError for outputs that a kernel cannot store."""
    graph, live, offsets = draft.axes.graph, draft.live(), offsets_use(draft.axes)
    stored = {
        f"out:{name}:{piece}": _output_view(draft, name, piece, value)
        for (name, piece), value in zip(draft.pieces, draft.outputs, strict=True)
    }
    layout = _layout(draft, live, stored, offsets)
    assembly = _Assembly(draft, live, layout)
    sources = assembly.sources()
    sources += _tables(layout, sources)
    loop, names = assembly.loop(), dict(assembly.names)  # the epilogue gives new ones
    statements, later = ending(assembly.epilogue())
    chained, long_rows = draft.axes.kind in (Kind.CHAIN, Kind.COMPUTED), draft.axes.kind is Kind.LONG_ROWS
    computed = tuple(item for item in loop if not isinstance(item, Contraction) and not chained)
    beside = () if long_rows else computed
    contractions = tuple(item for item in loop if isinstance(item, Contraction))
    factors = {name for one in contractions for name in one.factors}
    streamed = (source for source in sources if Role.STREAM in source.spans and not chained)
    tiles = tuple(source for source in streamed if source.name not in factors)
    return Region(
        name=graph.name,
        doc=graph.doc,
        extents=layout.extents,
        contractions=contractions,
        sources=tuple(source for source in sources if source not in tiles),
        statements=statements,
        outputs=_outputs(assembly, stored),
        body=loop if chained else (),
        bounds=draft.bounds,
        # where a number would stand in place of a choice, the choice is kept
        unmasked=tuple(
            (names[outer], names[inner])
            for outer, inner in draft.unmasked.items()
            if outer in names and isinstance(inner, str)
        ),
        beside=beside,
        running=computed if long_rows else (),
        ending=later,
        tiles=tiles if beside else (),
        end=draft.end,
        full_rows=draft.full_rows,
        deterministic=graph.deterministic,
        offsets=None if offsets is None else Source(offsets, layout.views[offsets], frozenset()),
    )
