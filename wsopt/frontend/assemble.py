"""From rewritten values to a region: names, the loop's body, the epilogue, sources and outputs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from wsopt.errors import LoweringError
from wsopt.frontend.axes import Dim
from wsopt.frontend.chain import Chain
from wsopt.frontend.expand import Term
from wsopt.frontend.merge import RawView, merge_views
from wsopt.frontend.nodes import OUTPUTS
from wsopt.frontend.types import Contraction, End, Region
from wsopt.frontend.values import REDUCTIONS, SINKS, Flow, Value, reachable
from wsopt.graph.types import row_major_strides
from wsopt.tensors.statements import Reduction, Scalar, Statement
from wsopt.tensors.views import FULL, K_BLOCK, Bound, Output, Role, Share, Source, View

_PER_ROW = frozenset({Role.ROW})


@dataclass(slots=True)
class _Names:
    """Names of values: the node's with a number; a value that both loop and epilogue compute has two names."""

    flow: Flow
    counts: Counter[str] = field(default_factory=Counter)
    known: dict[str, str] = field(default_factory=dict)

    def add(self, name: str) -> str:
        """A new name for a value: a product has its node's, a source its use's."""
        value = self.flow.pool[name]
        if value.primitive in ("product", "contract", "source"):
            self.known[name] = value.label[0]
        elif value.primitive == "before":
            self.known[name] = f"{self.known[str(value.args[0])]}.before"
        else:
            self.known[name] = f"{value.node}${self.counts[value.node]}"
            self.counts[value.node] += 1
        return self.known[name]

    def term(self, term: Term) -> str | Scalar:
        return self.known[term] if isinstance(term, str) else term


@dataclass(frozen=True, slots=True)
class _Layout:
    """Memory layout of the region's tensors: views by use and by output, axes after merging, and their extents."""

    views: dict[str, View]
    roles: dict[Dim, Role]
    extents: tuple[tuple[Role, int], ...]


def _output_view(chain: Chain, name: str, value: Term, flow: Flow) -> RawView:
    """View of an output. Raises LoweringError for an output that is neither a tile nor one value a row."""
    kind = chain.axes.graph.type_of(name)
    if kind.dtype not in OUTPUTS:
        raise LoweringError(f"output {name} is {kind.dtype.value}; add a cast to a floating-point type")
    spans = flow.pool.spans(value)
    if Role.STREAM in spans:
        raise LoweringError(
            f"output {name} varies along the streamed axis, which a kernel never holds whole; it can only "
            "be reduced or contracted along it"
        )
    if spans not in (FULL, _PER_ROW):
        raise LoweringError(
            f"output {name} is the same along the rows or columns of the product; compute it outside"
        )
    raw = chain.axes.output_view(name, row_major_strides(kind.shape))
    roles = {chain.axes.roles.get(a) for a, e in zip(raw.axes, raw.extents, strict=True) if e > 1}
    if not roles <= {Role.BATCH, *spans}:
        raise LoweringError(f"output {name} repeats its values along an axis; store them once")
    kept = {None, Role.BATCH, *spans}
    return raw.along([chain.axes.roles.get(axis) in kept for axis in raw.axes])


def _output_views(chain: Chain, flow: Flow) -> dict[str, RawView]:
    """Views of the outputs, under keys that no use of an input has."""
    pairs = zip(chain.axes.graph.outputs, flow.outputs, strict=True)
    return {f"out:{name}": _output_view(chain, name, value, flow) for name, value in pairs}


def _layout(chain: Chain, flow: Flow, outputs: dict[str, RawView], live: frozenset[str]) -> _Layout:
    """Views of the tensors that live values read; axes along which an index is used are not merged."""
    uses = _uses(flow, live)
    raws = {**{use: raw for use, raw in chain.raw.items() if use in uses}, **outputs}
    axes = chain.axes
    counted = {v.label for v in map(flow.pool.__getitem__, live) if v.primitive.startswith("iota_")}
    views, roles, extents = merge_views(
        list(raws.values()),
        axes.roles,
        axes.batches,
        axes.extents,
        frozenset(counted),
        singles=[axis for axis in axes.singles if axis not in counted],
        groups=True,
    )
    return _Layout(dict(zip(raws, views, strict=True)), roles, extents)


def _shape(
    chain: Chain, raw: RawView, layout: _Layout
) -> tuple[tuple[str, int] | tuple[Share | int, ...] | int, ...]:
    """For each dimension of an output an input's dimension of the same axes; else the product of its axes."""
    found: list[tuple[str, int] | tuple[Share | int, ...] | int] = []
    known = _dimensions(chain, layout)
    seen = {dim for dims in layout.views[f"out:{raw.tensor}"].origin for dim in dims}
    for dim in range(raw.rank):
        atoms = tuple(a for a, origin in zip(raw.axes, raw.origin, strict=True) if origin == dim)
        named = next((place for place, other in known if other == atoms), None)
        if chain.axes.shapes[raw.tensor][dim] == 1 and not (named and dim in seen):
            found.append(1)
        else:
            found.append(named or tuple(_share(chain, atom, known) for atom in atoms))
    return tuple(found)


def _share(chain: Chain, atom: Dim, known: list[tuple[tuple[str, int], tuple[Dim, ...]]]) -> Share | int:
    """Run-time extent of an axis: for a dimension's outermost axis, the dimension's over its inner axes'."""
    for (tensor, dim), atoms in sorted(known, key=lambda one: len(one[1])):
        if atoms[:1] == (atom,):
            return Share(tensor, dim, math.prod(chain.axes.extents[a] for a in atoms[1:]))
    return chain.axes.extents[atom]


def _dimensions(chain: Chain, layout: _Layout) -> list[tuple[tuple[str, int], tuple[Dim, ...]]]:
    """The dimensions of the inputs, with their atoms."""
    found = []
    for use, raw in chain.raw.items():
        if use not in layout.views:
            continue
        for dim in range(raw.rank):
            atoms = tuple(a for a, origin in zip(raw.axes, raw.origin, strict=True) if origin == dim)
            found.append(((raw.tensor, dim), atoms))
    return found


@dataclass(slots=True)
class _Assembly:
    """Writes values down as the region's items."""

    chain: Chain
    flow: Flow
    layout: _Layout
    names: _Names

    def item(self, name: str) -> Statement | Reduction | Contraction:
        """A value as an item of the loop or the epilogue, with a new name."""
        value = self.flow.pool[name]
        args = tuple(self.names.term(a) for a in value.args)
        own = self.names.add(name)
        if value.primitive in ("product", "contract"):
            return self._contraction(value, own, args)
        if value.primitive in REDUCTIONS:
            rescale = str(args[1]) if len(args) > 1 else None
            return Reduction(own, REDUCTIONS[value.primitive], str(args[0]), rescale)
        return Statement(own, self._primitive(value), args, value.spans, value.dtype)

    def _primitive(self, value: Value) -> str:
        if value.primitive != "iota_batch":
            return value.primitive
        return f"iota_{self.layout.roles[value.label]}"

    def _contraction(self, value: Value, name: str, args: tuple[str | Scalar, ...]) -> Contraction:
        views = [self.layout.views.get(f"{name}:{operand}") for operand in (0, 1)]
        right = views[1]
        assert right is not None, "the second operand of a product is an input"
        tensor = str(value.args[0]) if value.args else ""
        if value.primitive == "contract" and self.flow.pool[tensor].primitive == "source":
            return Contraction(name, self.layout.views[self.flow.pool[tensor].label[0]], right, False)
        if value.primitive == "contract":
            return Contraction(
                name, str(args[0]), right, False, FULL, str(args[1]) if len(args) > 1 else None
            )
        left = views[0]
        assert left is not None, "both operands of a product in the loop are inputs"
        if Role.STREAM in left.roles:  # the product is written with its sides exchanged
            left, right = right, left
        return Contraction(name, left, right, False, K_BLOCK)


def _uses(flow: Flow, live: frozenset[str]) -> frozenset[str]:
    """The uses of inputs that live values read."""
    found: set[str] = set()
    for name in live:
        value = flow.pool[name]
        if value.primitive == "source":
            found.add(value.label[0])
        elif value.primitive == "contract":
            found.add(f"{value.label[0]}:1")
        elif value.primitive == "product":
            found.update((f"{value.label[0]}:0", f"{value.label[0]}:1"))
    return frozenset(found)


def _sources(assembly: _Assembly, live: list[str]) -> tuple[Source, ...]:
    pool = assembly.flow.pool
    return tuple(
        Source(assembly.names.add(name), assembly.layout.views[pool[name].label[0]], pool[name].spans)
        for name in live
        if pool[name].primitive == "source"
    )


def _body(assembly: _Assembly, live: list[str]) -> tuple[Statement | Reduction | Contraction, ...]:
    """The loop's body: its sums and maxima, and every value that they read."""
    pool = assembly.flow.pool
    wanted = reachable(pool, [name for name in live if pool[name].primitive in SINKS])
    body = []
    for name in (name for name in live if name in wanted):
        if pool[name].primitive == "before":
            assembly.names.add(name)
        elif pool[name].primitive != "source":
            body.append(assembly.item(name))
    return tuple(body)


def _epilogue(assembly: _Assembly, live: list[str]) -> tuple[Statement, ...]:
    """The epilogue's statements on the loop's results; values of the loop that they need are computed again."""
    pool = assembly.flow.pool
    wanted = reachable(pool, assembly.flow.outputs, through_sinks=False)
    found = [
        assembly.item(name)
        for name in live
        if name in wanted and pool[name].primitive not in (*SINKS, "source")
    ]
    return tuple(item for item in found if isinstance(item, Statement))


def _pairs(names: Mapping[str, str], unmasked: Mapping[str, Term]) -> tuple[tuple[str, str], ...]:
    """The pairs of the loop's statements by name; where a number would stand the choice is kept."""
    return tuple(
        (names[outer], names[inner])
        for outer, inner in unmasked.items()
        if outer in names and isinstance(inner, str)
    )


def _outputs(assembly: _Assembly, outputs: dict[str, RawView]) -> tuple[Output, ...]:
    chain, layout = assembly.chain, assembly.layout
    return tuple(
        Output(name, str(assembly.names.term(value)), layout.views[key], _shape(chain, outputs[key], layout))
        for name, value, key in zip(chain.axes.graph.outputs, assembly.flow.outputs, outputs, strict=True)
    )


def assemble(
    chain: Chain, flow: Flow, bounds: tuple[Bound, ...], unmasked: Mapping[str, Term], end: End
) -> Region:
    """The region of rewritten values. Raises LoweringError for outputs that a kernel cannot store."""
    graph = chain.axes.graph
    outputs = _output_views(chain, flow)
    live = [name for name, _ in flow.live()]
    assembly = _Assembly(chain, flow, _layout(chain, flow, outputs, frozenset(live)), _Names(flow))
    sources = _sources(assembly, live)
    body = _body(assembly, live)
    pairs = _pairs(dict(assembly.names.known), unmasked)
    return Region(
        name=graph.name,
        doc=graph.doc,
        extents=assembly.layout.extents,
        contractions=tuple(item for item in body if isinstance(item, Contraction)),
        sources=sources,
        statements=_epilogue(assembly, live),
        outputs=_outputs(assembly, outputs),
        body=body,
        bounds=bounds,
        unmasked=pairs,
        end=end,
    )


def assemble_tiles(chain: Chain, flow: Flow) -> Region:
    """The region of values that tiles compute: beside products of tensors, or of whole rows without a product.

    What reductions along the stream need is computed in the loop, from the operands' tiles; all else after it,
    and reductions of whole rows with it. Raises as `assemble`.
    """
    graph, pool = chain.axes.graph, flow.pool
    outputs = _output_views(chain, flow)
    live = [name for name, _ in flow.live()]
    assembly = _Assembly(chain, flow, _layout(chain, flow, outputs, frozenset(live)), _Names(flow))
    sources = _sources(assembly, live)
    streams = pool.along is Role.STREAM
    sinks = [name for name in live if streams and pool[name].primitive in REDUCTIONS]
    early = reachable(pool, sinks)
    items = {name: assembly.item(name) for name in live if pool[name].primitive != "source"}
    return Region(
        name=graph.name,
        doc=graph.doc,
        extents=assembly.layout.extents,
        contractions=tuple(item for item in items.values() if isinstance(item, Contraction)),
        sources=tuple(source for source in sources if Role.STREAM not in source.spans),
        statements=tuple(
            item for name, item in items.items() if name not in early and not isinstance(item, Contraction)
        ),
        outputs=_outputs(assembly, outputs),
        beside=tuple(
            item for name, item in items.items() if name in early and not isinstance(item, Contraction)
        ),
        tiles=tuple(source for source in sources if Role.STREAM in source.spans) if early else (),
    )
