"""Graphs of pieces whose extents change from call to call, in dimensions that have ranges."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from wsopt.errors import InputError
from wsopt.graph.dims import Dim, told_by
from wsopt.graph.extents import Extent, Monomial, value_at
from wsopt.graph.parse import parse_graph
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.symbolic import SymbolicGraph, said
from wsopt.graph.types import AttrValue, Graph, Input, Node, TensorType
from wsopt.torch.joining import joined
from wsopt.torch.symbols import LARGEST, Symbol, Symbols
from wsopt.torch.untaken import Untaken

Point = tuple[int, ...]
"""An extent of every dimension, in the graph's order."""
NAMES = ("k", "l", "m", "n")
"""The dimensions that a piece's graph is in, the last of these names, whatever torch calls them: so pieces that are
alike have one kernel. They are in alphabetical order, which no file of a graph changes.
"""
_LARGEST_PRODUCT = 16 * LARGEST
"""The largest product of dimensions that change by themselves where torch knows no bound of some: larger than that of
extents that are one dimension, since its range has a corner in which all are at their largest.
"""


@dataclass(frozen=True)
class Changing:
    """A piece's graph with the dimensions that it is in, and each of these as a product of torch's symbols."""

    graph: SymbolicGraph
    symbols: tuple[Monomial, ...]

    @property
    def dims(self) -> tuple[Dim, ...]:
        """The dimensions, with their ranges and what each typically is."""
        return self.graph.dims

    @property
    def typically(self) -> Point:
        """What the dimensions typically are."""
        return tuple(dim.typical[0][0] for dim in self.dims)

    @cached_property
    def typical(self) -> Graph:
        """The graph of numbers where the dimensions are what they typically are."""
        return self.at(self.typically)

    @property
    def ends(self) -> tuple[tuple[int, int], ...]:
        """The least and the largest that each dimension is."""
        return tuple((dim.least, dim.most) for dim in self.dims)

    @property
    def corners(self) -> tuple[Point, ...]:
        """Every combination of the least and the largest extents, the least of all first, the largest of all last."""
        return tuple(dict.fromkeys(itertools.product(*self.ends)))

    def holds(self, extents: Point) -> bool:
        """Whether extents are in the ranges."""
        return all(least <= one <= most for (least, most), one in zip(self.ends, extents, strict=True))

    def values(self, extents: Sequence[Any]) -> dict[str, Any]:
        """Extents by the dimensions' names."""
        return dict(zip((dim.name for dim in self.dims), extents, strict=True))

    def at(self, extents: Point) -> Graph:
        """The graph of numbers at these extents, in the ranges or not. Untaken where that is none."""
        values = self.values(extents)
        try:
            fields = graph_to_json(self.graph.generic, lambda one: value_at(one, values))
            return parse_graph(fields, "piece")
        except InputError as error:
            raise Untaken(f"with {said(values)}: {error}") from error

    def cell(self, ends: Mapping[str, Sequence[int]], extents: Point) -> int:
        """The number of the cell that extents are in, where each dimension is cut into classes with these ends. Cells
        are combinations of classes, those of the last dimension next to each other.
        """
        number, values = 0, self.values(extents)
        for name, own in ends.items():
            number = number * len(own) + bisect_left(own, values[name])
        return number

    def __str__(self) -> str:
        return ", ".join(f"{dim.name} from {dim.least:,} to {dim.most:,}" for dim in self.dims)


def changing(graph: Graph, symbols: Symbols) -> tuple[Changing, Graph] | None:
    """A graph with extents of torch's symbols as one in named dimensions, and as it is in the symbols then: with axes
    joined where two of them change together. None if nothing changes.

    One dimension stands for all symbols where they change together alone, else there is one for each. Raises Untaken
    where that would be too many, and where no input tells one.
    """
    names = tuple(dict.fromkeys(name for extent in _extents(graph) for name in sorted(extent.names)))
    if not names:
        return None
    graph, bases = _based(graph, names)
    if len(bases) > len(NAMES):
        raise Untaken(
            f"its extents {' and '.join(sorted(names))} change by themselves, and those are too many"
        )
    named = dict(zip(NAMES[-len(bases) :], bases, strict=True))
    dims = _dims(named, symbols)

    def renamed(extent: int) -> int:
        if not isinstance(extent, Extent):
            return extent
        terms = [(_renamed(product, named), times) for product, times in extent.terms]
        return Extent(tuple(sorted(terms, key=lambda term: (not term[0], term[0]))), int(extent))

    generic = _mapped(graph, renamed)
    told = {one.dim for one in told_by(generic.inputs, dims)}
    for dim, base in zip(dims, bases, strict=True):
        if dim.name not in told:
            raise Untaken(f"no input that it reads has an extent that tells {'*'.join(base)}")
    return Changing(SymbolicGraph(generic, dims), bases), graph


def _based(graph: Graph, names: tuple[str, ...]) -> tuple[Graph, tuple[Monomial, ...]]:
    """A graph, with axes joined where that leaves all symbols one dimension, and the products that are dimensions."""
    whole, apart = (tuple(sorted(names)),), tuple((name,) for name in names)
    if _together(graph, frozenset(names)):
        return graph, whole
    try:
        found = joined(graph, frozenset(names))
    except Untaken:
        return graph, apart
    return (found, whole) if _together(found, frozenset(names)) else (graph, apart)


def _together(graph: Graph, names: frozenset[str]) -> bool:
    """Whether every product in the extents of a graph has all of these symbols, each as often."""
    products = [product for extent in _extents(graph) for product, _ in extent.terms if product]
    return all({*product} == names and len({*Counter(product).values()}) == 1 for product in products)


def _renamed(product: Monomial, named: Mapping[str, Monomial]) -> Monomial:
    """A product of symbols as one of dimensions, which are products of symbols by name."""
    return tuple(name for name, base in sorted(named.items()) for _ in range(product.count(base[0])))


def _dims(named: Mapping[str, Monomial], symbols: Symbols) -> tuple[Dim, ...]:
    """The dimensions that are these products of symbols."""
    if len(named) == 1:
        ((name, base),) = named.items()
        return (_product(name, [symbols.known[one] for one in base]),)
    known = {name: symbols.known[base[0]] for name, base in named.items()}
    growth = _growth([*known.values()])
    return tuple(_grown(name, one, growth) for name, one in known.items())


def _grown(name: str, symbol: Symbol, growth: float) -> Dim:
    """A symbol as a dimension, up to its bound, or to so many times what it typically is."""
    most = min(symbol.most, int(symbol.typical * growth))
    most = symbol.most if symbol.bounded else max(symbol.typical, most)
    return Dim(name, symbol.least, most, ((symbol.typical, 1.0),))


def _growth(symbols: Sequence[Symbol]) -> float:
    """How many times as large as they typically are symbols without a bound may be, each as many times, so that the
    product of all is at most `_LARGEST_PRODUCT`.
    """
    free = [one for one in symbols if not one.bounded]
    corner = math.prod(one.most if one.bounded else one.typical for one in symbols)
    return (_LARGEST_PRODUCT / corner) ** (1 / len(free)) if free else 1.0


def _product(name: str, symbols: Sequence[Symbol]) -> Dim:
    """The dimension that is the product of symbols."""
    least, most, typical = (
        math.prod(of) for of in zip(*((one.least, one.most, one.typical) for one in symbols), strict=True)
    )
    if len(symbols) > 1:
        most = max(typical, min(most, LARGEST))
    return Dim(name, least, most, ((typical, 1.0),))


def _extents(graph: Graph) -> Iterator[Extent]:
    """All that changes in a graph."""
    types = [*(one.type for one in graph.inputs), *(one.type for one in graph.nodes)]
    values: list[object] = [extent for one in types for extent in one.shape]
    values += [part for node in graph.nodes for _, value in node.attrs for part in _parts(value)]
    return (one for one in values if isinstance(one, Extent))


def _parts(value: AttrValue) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else (value,)


def _mapped(graph: Graph, of: Callable[[int], int]) -> Graph:
    """A graph with other extents."""

    def typed(one: TensorType) -> TensorType:
        return TensorType(tuple(map(of, one.shape)), one.dtype)

    def attr(value: AttrValue) -> AttrValue:
        return tuple(map(of, value)) if isinstance(value, tuple) else value

    inputs = tuple(Input(one.name, typed(one.type), one.constant, one.strides) for one in graph.inputs)
    nodes = tuple(
        Node(
            node.name,
            node.op,
            node.inputs,
            tuple((name, attr(value)) for name, value in node.attrs),
            typed(node.type),
        )
        for node in graph.nodes
    )
    return replace(graph, inputs=inputs, nodes=nodes)
