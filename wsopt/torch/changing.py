"""Graphs of pieces whose extents change from call to call, in dimensions that have ranges."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
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
from wsopt.torch.joining import joined, runs
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

    One dimension stands for symbols that occur together alone. Raises Untaken where there would be too many, and
    where no input tells one.
    """
    if next(_extents(graph), None) is None:
        return None
    graph, bases = _based(graph, symbols)
    if len(bases) > len(NAMES):
        known = sorted("*".join(base) for base in bases)
        raise Untaken(f"its extents {' and '.join(known)} change by themselves, and those are too many")
    named = dict(zip(NAMES[-len(bases) :], bases, strict=True))
    generic, dims = _generic(graph, named), _dims(named, symbols)
    told = {one.dim for one in told_by(generic.inputs, dims)}
    for dim, base in zip(dims, bases, strict=True):
        if dim.name not in told:
            raise Untaken(f"no input that it reads has an extent that tells {'*'.join(base)}")
    return Changing(SymbolicGraph(generic, dims), bases), graph


def _based(graph: Graph, symbols: Symbols) -> tuple[Graph, tuple[Monomial, ...]]:
    """A graph, with axes joined where inputs tell more of its dimensions then, or fewer are left, and the products of
    symbols that are its dimensions.
    """
    best = _untold(graph, symbols)
    for run in runs(graph) if best > _LEAST else ():
        try:
            found = joined(graph, run)
        except Untaken:
            continue
        if _untold(found, symbols) < best:
            return _based(found, symbols)
    return graph, _bases(graph)


_LEAST = (0, 1)
"""What `_untold` says of a graph of one dimension that an input tells: no axes have to be joined there."""


def _untold(graph: Graph, symbols: Symbols) -> tuple[int, int]:
    """How many dimensions of a graph no input tells, and how many there are."""
    named = {f"d{number}": base for number, base in enumerate(_bases(graph))}
    told = told_by(_generic(replace(graph, nodes=(), outputs=()), named).inputs, _dims(named, symbols))
    return len(named) - len(told), len(named)


def _generic(graph: Graph, named: Mapping[str, Monomial]) -> Graph:
    """The graph in dimensions that are these products of symbols."""

    def renamed(extent: int) -> int:
        if not isinstance(extent, Extent):
            return extent
        terms = [(_renamed(product, named), times) for product, times in extent.terms]
        return Extent(tuple(sorted(terms, key=lambda term: (not term[0], term[0]))), int(extent))

    return _mapped(graph, renamed)


def _bases(graph: Graph) -> tuple[Monomial, ...]:
    """The products of symbols of which all extents of a graph are made: symbols that occur together, each as often
    beside another as ever, are one.
    """
    products = sorted({product for extent in _extents(graph) for product, _ in extent.terms if product})
    together: dict[Point, list[str]] = {}
    for name in dict.fromkeys(name for extent in _extents(graph) for name in sorted(extent.names)):
        counts = [product.count(name) for product in products]
        each = math.gcd(*counts)
        together.setdefault(tuple(count // each for count in counts), []).extend([name] * each)
    return tuple(tuple(sorted(names)) for names in together.values())


def _renamed(product: Monomial, named: Mapping[str, Monomial]) -> Monomial:
    """A product of symbols as one of dimensions, which are products of symbols by name."""
    times = {name: product.count(base[0]) // base.count(base[0]) for name, base in named.items()}
    return tuple(name for name in sorted(times) for _ in range(times[name]))


@dataclass(frozen=True, slots=True)
class _Ends:
    """The least and the largest that a product of symbols is, and what it typically is; `bounded` if torch knows the
    largest.
    """

    least: int
    most: int
    typical: int
    bounded: bool


def _dims(named: Mapping[str, Monomial], symbols: Symbols) -> tuple[Dim, ...]:
    """The dimensions that are these products of symbols: of several each up to its bound, or to so many times what it
    typically is.
    """
    known = {name: _product([symbols.known[one] for one in base]) for name, base in named.items()}
    growth = _growth([*known.values()]) if len(known) > 1 else None
    return tuple(
        Dim(name, one.least, _most(one, growth), ((one.typical, 1.0),)) for name, one in known.items()
    )


def _most(one: _Ends, growth: float | None) -> int:
    """The largest that a dimension is, beside others that grow as much."""
    if one.bounded or growth is None:
        return one.most
    return max(one.typical, min(one.most, int(one.typical * growth)))


def _growth(several: Sequence[_Ends]) -> float:
    """How many times as large as they typically are dimensions without a bound may be, each as many times, so that
    the product of all is at most `_LARGEST_PRODUCT`.
    """
    free = [one for one in several if not one.bounded]
    corner = math.prod(one.most if one.bounded else one.typical for one in several)
    return (_LARGEST_PRODUCT / corner) ** (1 / len(free)) if free else 1.0


def _product(symbols: Sequence[Symbol]) -> _Ends:
    """The ends of a product of symbols."""
    least, most, typical = (
        math.prod(of) for of in zip(*((one.least, one.most, one.typical) for one in symbols), strict=True)
    )
    if len(symbols) > 1:
        most = max(typical, min(most, LARGEST))
    return _Ends(least, most, typical, all(one.bounded for one in symbols))


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
