"""Graphs of pieces whose extents change from call to call: all of them by one dimension with a range."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from wsopt.errors import InputError
from wsopt.graph.dims import Dim, Told, told_by
from wsopt.graph.extents import Extent, Monomial, value_at
from wsopt.graph.parse import parse_graph
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.symbolic import SymbolicGraph
from wsopt.graph.types import AttrValue, Graph, Input, Node, TensorType
from wsopt.torch.joining import joined
from wsopt.torch.symbols import LARGEST, Symbol, Symbols
from wsopt.torch.untaken import Untaken

NAME = "n"
"""The dimension that a piece's graph is in, whatever torch calls it: so pieces that are alike have one kernel."""


@dataclass(frozen=True)
class Changing:
    """A piece's graph with the dimension that it is in, and that dimension as a product of torch's symbols."""

    graph: SymbolicGraph
    symbols: Monomial

    @property
    def dim(self) -> Dim:
        """The dimension, with its range and what it typically is."""
        return self.graph.dims[0]

    @cached_property
    def typical(self) -> Graph:
        """The graph of numbers where the dimension is what it typically is."""
        ((extent, _),) = self.dim.typical
        return self.at(extent)

    @property
    def told(self) -> Told:
        """Where an input's shape tells the dimension."""
        return self.graph.told[0]

    @property
    def ends(self) -> tuple[int, int]:
        """The least and the largest that the dimension is."""
        return self.dim.least, self.dim.most

    def at(self, extent: int) -> Graph:
        """The graph of numbers where the dimension is so much, in its range or not. Untaken where that is none."""
        try:
            fields = graph_to_json(self.graph.generic, lambda one: value_at(one, {NAME: extent}))
            return parse_graph(fields, "piece")
        except InputError as error:
            raise Untaken(f"with {NAME} = {extent}: {error}") from error

    def __str__(self) -> str:
        return f"{NAME} from {self.dim.least:,} to {self.dim.most:,}"


def changing(graph: Graph, symbols: Symbols) -> tuple[Changing, Graph] | None:
    """A graph with extents of torch's symbols as one in a dimension, and as it is in the symbols then: with axes
    joined where two of them change together. None if nothing changes.

    Raises Untaken where they are not all by one symbol, or by one product of symbols, and where no input tells it.
    """
    names = frozenset(name for extent in _extents(graph) for name in extent.names)
    if not names:
        return None
    if len(names) > 1 and not _together(graph, names):
        told = " and ".join(sorted(names))
        try:
            graph = joined(graph, names)
        except Untaken as reason:
            raise Untaken(f"{_APART.format(told)}; {reason}") from reason
        if not _together(graph, names):
            raise Untaken(_APART.format(told))
    dim, base = _dim([symbols.known[name] for name in sorted(names)]), tuple(sorted(names))

    def renamed(extent: int) -> int:
        if not isinstance(extent, Extent):
            return extent
        terms = tuple(((NAME,) * (len(product) // len(base)), times) for product, times in extent.terms)
        return Extent(terms, int(extent))

    generic = _mapped(graph, renamed)
    if not told_by(generic.inputs, (dim,)):
        raise Untaken(f"no input that it reads has an extent that tells {'*'.join(base)}")
    return Changing(SymbolicGraph(generic, (dim,)), base), graph


_APART = "its extents {} change by themselves, and kernels are made for one that does"


def _together(graph: Graph, names: frozenset[str]) -> bool:
    """Whether every product in the extents of a graph has all of these symbols, each as often."""
    products = [product for extent in _extents(graph) for product, _ in extent.terms if product]
    return all({*product} == names and len({*Counter(product).values()}) == 1 for product in products)


def _dim(symbols: Sequence[Symbol]) -> Dim:
    """The dimension that is the product of symbols."""
    least, most, typical = (
        math.prod(of) for of in zip(*((one.least, one.most, one.typical) for one in symbols), strict=True)
    )
    if len(symbols) > 1:
        most = max(typical, min(most, LARGEST))
    return Dim(NAME, least, most, ((typical, 1.0),))


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
