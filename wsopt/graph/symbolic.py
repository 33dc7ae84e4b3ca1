"""Graphs with named dimensions: read, written, and bound to numbers, which gives ordinary graphs.

Shapes are inferred once over expressions (`extents.py`), so that what has to be equal is equal whatever the numbers;
limits of sizes are judged at both ends of the ranges.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, product
from typing import Any

from wsopt.errors import InputError, Problem
from wsopt.graph.dims import Dim, Told, read_dims, told_by, with_extents
from wsopt.graph.extents import value_at
from wsopt.graph.faults import Faults, join, quote
from wsopt.graph.jsontext import decode, read_text
from wsopt.graph.parse import parse_graph, read_graph
from wsopt.graph.serialize import canonical_json, graph_to_json
from wsopt.graph.types import Graph

Values = Mapping[str, int]
"""Dimensions by name, each with the extent that it is bound to."""


@dataclass(frozen=True, slots=True)
class SymbolicGraph:
    """A checked graph with named dimensions. `generic` has expressions (`Extent`) where it names them."""

    generic: Graph
    dims: tuple[Dim, ...]

    @property
    def name(self) -> str:
        """The graph's name."""
        return self.generic.name

    @property
    def told(self) -> tuple[Told, ...]:
        """How a call's inputs tell the dimensions, in the order in which they are found."""
        return told_by(self.generic.inputs, self.dims)

    def dim(self, name: str) -> Dim:
        """The dimension of this name. KeyError if there is none."""
        return {dim.name: dim for dim in self.dims}[name]


_BOTH_ENDS = 2
AnyGraph = Graph | SymbolicGraph


def load_any(path: str | os.PathLike[str]) -> AnyGraph:
    """The graph in a file, with named dimensions or without. Raises InputError with every fault of it."""
    return parse_any(read_text(path), os.fspath(path))


def parse_any(text_or_obj: str | dict[str, Any], source: str) -> AnyGraph:
    """The graph in a JSON text or its values: a `SymbolicGraph` where it has `dims`. Raises as `parse_graph`."""
    value = decode(text_or_obj, source) if isinstance(text_or_obj, str) else text_or_obj
    if not isinstance(value, dict) or "dims" not in value:
        return parse_graph(value, source)
    faults = Faults(source)
    dims = read_dims(value["dims"], "/dims", faults)
    named = isinstance(value["dims"], dict) and len(dims) == len(value["dims"])
    # Where a dimension is faulty, expressions that name it are not also unknown.
    fields = with_extents(value, dims) if named else value
    generic = read_graph(fields, faults) if named else None
    for pointer, message in chain(_clashes(dims, value), _untold(dims, generic)):
        faults.add(pointer, message)
    faults.raise_any()
    assert generic is not None, "a graph without faults is read whole"
    graph = SymbolicGraph(generic, dims)
    _check_ends(graph, source)
    return graph


def _clashes(dims: tuple[Dim, ...], fields: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Dimensions that are called as a tensor is."""
    for section in ("inputs", "nodes"):
        entries = fields.get(section)
        for place, entry in enumerate(entries if isinstance(entries, list) else ()):
            name = entry.get("name") if isinstance(entry, dict) else None
            if any(dim.name == name for dim in dims):
                told = f"the name {quote(str(name))} is taken by /{section}/{place}"
                yield join("/dims", str(name)), f"{told}; a dimension has a name of its own"


def _untold(dims: tuple[Dim, ...], generic: Graph | None) -> Iterator[tuple[str, str]]:
    """Dimensions that no input's shape tells."""
    if generic is None:
        return
    told = {one.dim for one in told_by(generic.inputs, dims)}
    for dim in dims:
        if dim.name not in told:
            yield (
                join("/dims", dim.name),
                f"no input's shape tells {quote(dim.name)} at a call: let it be an extent of an input",
            )


def _check_ends(graph: SymbolicGraph, source: str) -> None:
    """Raise InputError where the least or the largest extents give no graph, with those extents."""
    problems: dict[Problem, None] = {}
    for number, values in enumerate(_ends(graph)):
        if number >= _BOTH_ENDS and problems:
            break  # the same told of other extents
        try:
            bound(graph, values)
        except InputError as error:
            at = f" (with {said(values)})"
            problems |= dict.fromkeys(Problem(one.pointer, one.message + at) for one in error.problems)
    if problems:
        raise InputError(source, list(problems))


def _ends(graph: SymbolicGraph) -> Iterator[Values]:
    """The least and the largest extents. Where a slice ends at named ones, whether it ends within its axis is told by
    all combinations of those; sizes are the largest at the largest.
    """
    yield {dim.name: dim.least for dim in graph.dims}
    yield {dim.name: dim.most for dim in graph.dims}
    if any(node.op == "slice" for node in graph.generic.nodes):
        for ends in product(*((dim.least, dim.most) for dim in graph.dims)):
            yield {dim.name: end for dim, end in zip(graph.dims, ends, strict=True)}


def said(values: Values) -> str:
    """Bound dimensions in words: `batch = 2, tokens = 512`."""
    return ", ".join(f"{name} = {extent}" for name, extent in values.items())


def bound(graph: SymbolicGraph, values: Values) -> Graph:
    """The ordinary graph where the dimensions have these extents.

    Raises InputError for a dimension that is not given or unknown, an extent outside its range, and a graph that is
    none at these extents.
    """
    unknown = sorted(values.keys() - {dim.name for dim in graph.dims})
    problems = [Problem(f"/dims/{name}", "is no dimension of the graph") for name in unknown]
    for dim in graph.dims:
        extent = values.get(dim.name)
        if extent is None:
            problems.append(Problem(f"/dims/{dim.name}", "is not bound"))
        elif not dim.least <= extent <= dim.most:
            told = f"{extent} is outside of its range, {dim.least} to {dim.most}"
            problems.append(Problem(f"/dims/{dim.name}", told))
    if problems:
        raise InputError(f"graph {graph.name}", problems)
    data = graph_to_json(graph.generic, lambda extent: value_at(extent, values))
    return parse_graph(data, f"graph {graph.name}")


def symbolic_to_json(graph: SymbolicGraph) -> dict[str, Any]:
    """JSON values that `parse_any` turns into an equal graph."""
    data = graph_to_json(graph.generic)
    head: dict[str, Any] = {
        key: data.pop(key) for key in ("format", "name", "doc", "deterministic") if key in data
    }
    return {**head, "dims": {dim.name: dim.to_json() for dim in graph.dims}, **data}


def any_to_json(graph: AnyGraph) -> dict[str, Any]:
    """JSON values of a graph with named dimensions or without."""
    return symbolic_to_json(graph) if isinstance(graph, SymbolicGraph) else graph_to_json(graph)


def any_canonical_bytes(graph: AnyGraph) -> bytes:
    """As `canonical_bytes`, of a graph with named dimensions or without."""
    return canonical_json(any_to_json(graph))
