"""From rewritten values to a region: tensors along axes, names, what the loop computes, the epilogue, outputs.

Axes that always lie next to each other in memory are merged. So a batch of products with one weight matrix is one
product with more rows: wherever the batch axis and the row axis occur, they occur together and contiguously.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.frontend.axes import Axes, Dim, RawDim, RawView
from wsopt.frontend.expand import OUTPUTS
from wsopt.frontend.kinds import Kind, producer
from wsopt.frontend.types import Contraction, Region
from wsopt.frontend.values import REDUCTIONS, SINKS, Draft, Term, Value, reachable
from wsopt.graph.types import DType
from wsopt.tensors.views import (
    BEFORE,
    FULL,
    K_BLOCK,
    Item,
    Output,
    Reduction,
    Role,
    Scalar,
    Share,
    Source,
    Statement,
    View,
)

_READS = {
    "source": ("",),
    "contract": (":1",),
    "product": (":0", ":1"),
}
"""Primitives that read tensors, with the endings of the names under which a node uses them."""

_SHORT_SUMS = (DType.F8E4M3, DType.F8E5M2)
"""Element types of operands whose sums the tensor cores keep in less than f32."""

Extent = tuple[str, int] | tuple[Share | int, ...] | int
_WHOLE = (0, 1)

# --- merging axes --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of tensors along axes after merging: views by key, roles of the axes that are left, extents of roles."""

    views: dict[str, View]
    roles: dict[Dim, Role]
    extents: tuple[tuple[Role, int], ...]


def _find(dims: tuple[RawDim, ...], axis: Dim) -> RawDim | None:
    return next((dim for dim in dims if dim.axis == axis), None)


def _mergeable(
    views: Sequence[tuple[RawDim, ...]], outer: Dim, inner: Dim, singles: Sequence[Dim] = ()
) -> bool:
    """Whether two axes lie together in every tensor, at these extents and at others.

    Of two of a tensor's dimensions all between has to be in them: one of one element would part them if it had more.
    """
    for dims in views:
        first, second = _find(dims, outer), _find(dims, inner)
        if (first is None) != (second is None):
            return False
        if first and second:
            neighbours = first.origin[-1] == second.origin[0] or (first.part[1] == 1 and second.part[0] == 0)
            apart = first.stride != second.extent * second.stride or not neighbours
            between = range(first.origin[-1] + 1, second.origin[0])
            ones = [dim for dim in dims if dim.extent == 1 and dim.axis not in singles]
            if apart or any(dim.stride == first.stride and dim.origin[0] in between for dim in ones):
                return False
    return True


def _merged(dims: tuple[RawDim, ...], outer: Dim, inner: Dim) -> tuple[RawDim, ...]:
    """The dimensions with those of two axes as one; two parts of one dimension grow together."""
    first, second = _find(dims, outer), _find(dims, inner)
    if first is None or second is None:
        return dims
    (take, _), (inner_take, step), parts = first.part, second.part, first.origin[-1] == second.origin[0]
    joined = RawDim(
        inner,
        first.extent * second.extent,
        second.stride,
        first.origin + second.origin[parts:],
        (take * inner_take if parts and len(first.origin) == 1 else take, step),
    )
    return tuple(joined if dim is second else dim for dim in dims if dim is not first)


def _view(raw: RawView, dims: tuple[RawDim, ...], roles: Mapping[Dim, Role]) -> View:
    """Dimensions as TMA wants them: the contiguous one last; the batch first, wherever it lies in memory.

    What repeats the same elements, at a stride of zero, is not contiguous, and comes before what is.
    """
    outer = {Role.BATCH: 0, Role.GROUP: 1}
    ordered = sorted(dims, key=lambda dim: (outer.get(roles[dim.axis], 2), dim.stride > 0, -dim.stride))
    parts = tuple(dim.part for dim in ordered)
    return View(
        tensor=raw.tensor,
        dtype=raw.dtype,
        roles=tuple(roles[dim.axis] for dim in ordered),
        extents=tuple(dim.extent for dim in ordered),
        strides=tuple(dim.stride for dim in ordered),
        origin=tuple(dim.origin for dim in ordered),
        rank=raw.rank,
        constant=raw.constant,
        parts=parts if any(part != _WHOLE for part in parts) else (),
    )


def _merge_views(axes: Axes, raws: Mapping[str, RawView], counted: Container[Dim]) -> Layout:
    """Merge batch axes into each other and into the rows where memory allows it.

    Axes that are `counted` stay as they are, for an index along a merged one would be another. Batch axes of one
    element that memory allows to be merged may have any extent at run time. Where values are reduced or feed
    products, a second batch axis may be left, which becomes the group. LoweringError where more are left.
    """
    roles, groups = axes.roles, not axes.kind.plain
    singles = [axis for axis in axes.singles if axis not in counted]

    def carries(dim: RawDim) -> bool:
        """Dimensions of extent one are broadcast, but for those that TMA has to see and those that are nowhere."""
        wide = dim.axis in roles and (dim.extent > 1 or roles[dim.axis] is not Role.BATCH)
        return wide or dim.axis in singles

    views = [raw.along(carries).dims for raw in raws.values()]
    sizes = dict(axes.extents)
    rows = Role.COLUMN if axes.exchanged else Role.ROW
    row = next(axis for axis, role in roles.items() if role is rows)
    left = list(axes.batches)
    inner: Dim = row
    for outer in reversed(axes.batches):
        if outer not in counted and inner not in counted and _mergeable(views, outer, inner, singles):
            views = [_merged(dims, outer, inner) for dims in views]
            sizes[inner] *= sizes[outer]
            left.remove(outer)
        else:
            inner = outer
    views = _with_singles(views, singles, [axis for axis in (*left, row) if axis not in counted])
    if len(left) > 1 + groups:
        raise LoweringError(
            f"the products have {len(left)} batch axes that do not lie contiguously in every tensor; "
            f"a kernel takes {'two' if groups else 'one'}: {remedies.ALIKE}"
        )
    roles = {axis: role for axis, role in roles.items() if axis not in axes.batches or axis in left}
    if len(left) > 1:
        roles[_group(left, views, roles)] = Role.GROUP
    found = {roles[axis]: sizes[axis] for axis in roles if axis in sizes}
    merged = {key: _view(raw, dims, roles) for (key, raw), dims in zip(raws.items(), views, strict=True)}
    return Layout(merged, roles, tuple((role, found[role]) for role in Role if role in found))


def _with_singles(
    views: Sequence[tuple[RawDim, ...]], singles: Sequence[Dim], axes: Sequence[Dim]
) -> list[tuple[RawDim, ...]]:
    """The views with each axis of one element merged into one of `axes`, or left out where it cannot be."""
    found = list(views)
    for single in reversed(singles):
        inner = next((axis for axis in axes if _mergeable(found, single, axis)), None)
        if inner is None:
            found = [tuple(dim for dim in dims if dim.axis != single) for dims in found]
        else:
            found = [_merged(dims, single, inner) for dims in found]
    return found


def _group(left: Sequence[Dim], views: Sequence[tuple[RawDim, ...]], roles: Mapping[Dim, Role]) -> Dim:
    """Of two batch axes the one along which more streamed tensors are broadcast; the inner one of equals."""
    streamed = [dims for dims in views if any(roles.get(dim.axis) is Role.STREAM for dim in dims)]
    outer, inner = (sum(_find(dims, axis) is None for dims in streamed) for axis in left)
    return left[0] if outer > inner else left[1]


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
    if spans != FULL and axes.kind.plain and not {axes.roles.get(dim.axis) for dim in raw.dims} >= FULL:
        raise LoweringError(f"output {name} has not the rows and columns of a product; compute it outside")
    if spans not in ((FULL,) if axes.kind.plain else (FULL, {Role.ROW})):
        raise LoweringError(
            f"output {name} is the same along the rows or columns of the product; compute it outside"
        )
    if not {axes.roles.get(dim.axis) for dim in raw.dims if dim.extent > 1} <= {Role.BATCH, *spans}:
        raise LoweringError(f"output {name} repeats its values along an axis; store them once")
    return raw.along(lambda dim: axes.roles.get(dim.axis) in {None, Role.BATCH, *spans})


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
        operand = self.live[str(value.args[0])]
        if operand.primitive != "source":
            return Contraction(name, str(args[0]), right, False, FULL, *map(str, args[1:]))
        accumulate = producer(self.draft.axes.graph, name).attr("accumulate", str)
        promote = right.dtype in _SHORT_SUMS and accumulate != "fast"
        return Contraction(name, views[operand.label[0]], right, promote)


def assemble(draft: Draft) -> Region:
    """The region of rewritten values. Raises LoweringError for outputs that a kernel cannot store."""
    graph, live = draft.axes.graph, draft.live()
    raws = [_output_view(draft, *pair) for pair in zip(graph.outputs, draft.outputs, strict=True)]
    uses = {value.label[0] + end for value in live.values() for end in _READS.get(value.primitive, ())}
    read = {use: raw for use, raw in draft.raw.items() if use in uses}
    counted = {value.label for value in live.values() if value.primitive.startswith("iota_")}
    layout = _merge_views(draft.axes, read | {f"out:{raw.tensor}": raw for raw in raws}, counted)
    assembly = _Assembly(draft, live, layout)
    sources = tuple(
        Source(assembly.name(name, value), layout.views[value.label[0]], value.spans)
        for name, value in live.items()
        if value.primitive == "source"
    )
    loop, names = assembly.loop(), dict(assembly.names)  # the epilogue gives new ones
    statements = assembly.epilogue()
    chained = draft.axes.kind in (Kind.CHAIN, Kind.COMPUTED)
    beside = tuple(item for item in loop if not isinstance(item, Contraction) and not chained)
    tiles = tuple(source for source in sources if Role.STREAM in source.spans and not chained)
    return Region(
        name=graph.name,
        doc=graph.doc,
        extents=layout.extents,
        contractions=tuple(item for item in loop if isinstance(item, Contraction)),
        sources=tuple(source for source in sources if source not in tiles),
        statements=statements,
        outputs=tuple(
            Output(
                raw.tensor,
                str(assembly.term(value)),
                layout.views[f"out:{raw.tensor}"],
                _shape(draft, raw, layout),
            )
            for value, raw in zip(draft.outputs, raws, strict=True)
        ),
        body=loop if chained else (),
        bounds=draft.bounds,
        # where a number would stand in place of a choice, the choice is kept
        unmasked=tuple(
            (names[outer], names[inner])
            for outer, inner in draft.unmasked.items()
            if outer in names and isinstance(inner, str)
        ),
        beside=beside,
        tiles=tiles if beside else (),
        end=draft.end,
        full_rows=draft.full_rows,
        deterministic=graph.deterministic,
    )
