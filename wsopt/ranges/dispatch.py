"""The kernel.py of a build of several kernels: a `run` that takes the kernel for the extents of its inputs.

A call costs the host a bisection a dimension, and a look-up; everything else is the kernel's own launcher.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from wsopt import __version__
from wsopt.emit.launcher import calls
from wsopt.emit.source import printable_lines
from wsopt.emit.text import environment
from wsopt.graph.dims import Dim, Told
from wsopt.graph.extents import Extent, terms_of
from wsopt.graph.symbolic import SymbolicGraph
from wsopt.ranges.points import Grid


def dispatch_text(graph: SymbolicGraph, grid: Grid, serves: Sequence[int], folders: Sequence[str]) -> str:
    """The text of kernel.py, for kernels in these folders, of which one serves each of the grid's cells."""
    ends, served = merged(grid, serves)
    told = graph.told
    tensors = {name: f"tensor_{number}" for number, name in enumerate(dict.fromkeys(t.tensor for t in told))}
    variables = {dim.name: f"extent_{number}" for number, dim in enumerate(graph.dims)}
    dims = [
        _dim(dim, number, told, tensors, variables) | {"ends": _tuple(own)}
        for number, (dim, own) in enumerate(zip(graph.dims, ends, strict=True))
    ]
    inputs = [one.name for one in graph.generic.inputs]
    template = environment().get_template("dispatch.py.jinja")
    return template.render(
        name=graph.name,
        version=__version__,
        summary=_summary(graph),
        doc=printable_lines(graph.generic.doc),
        folders=folders,
        dims=dims,
        served=_tuple(served),
        tensors=tensors,
        place=_place([one["ends_name"] for one in dims], [*variables.values()], ends),
        outputs=graph.generic.outputs,
        inputs=inputs,
        **calls(inputs),
    )


def merged(grid: Grid, serves: Sequence[int]) -> tuple[list[tuple[int, ...]], tuple[int, ...]]:
    """The ends of intervals, dimension by dimension, and who serves each combination of them: neighbours that nobody
    tells apart are one.
    """
    counts = [len(ends) for ends in grid.ends]
    kept: list[list[int]] = []
    for dim, count in enumerate(counts):
        alike = [_slice(serves, counts, dim, place) for place in range(count)]
        kept.append([p for p in range(count) if p + 1 == count or alike[p] != alike[p + 1]])
    ends = [tuple(grid.ends[dim][p] for p in places) for dim, places in enumerate(kept)]
    served = (serves[_number(places, counts)] for places in itertools.product(*kept))
    return ends, tuple(served)


def _number(places: Sequence[int], counts: Sequence[int]) -> int:
    """The number of the cell with these classes."""
    number = 0
    for place, count in zip(places, counts, strict=True):
        number = number * count + place
    return number


def _slice(serves: Sequence[int], counts: Sequence[int], dim: int, place: int) -> list[int]:
    """Who serves the cells with one class of a dimension."""
    ranges = [range(count) if other != dim else [place] for other, count in enumerate(counts)]
    return [serves[_number(places, counts)] for places in itertools.product(*ranges)]


def _summary(graph: SymbolicGraph) -> str:
    ranges = ", ".join(f"{dim.name} from {dim.least} to {dim.most}" for dim in graph.dims)
    return f"For {ranges}."


def _dim(
    dim: Dim, number: int, every: Sequence[Told], tensors: Mapping[str, str], variables: Mapping[str, str]
) -> dict[str, Any]:
    """What the template says of a dimension: how it is found in the extents of a tensor, its range."""
    order, told = next((place, one) for place, one in enumerate(every) if one.dim == dim.name)
    extent = f"{tensors[told.tensor]}.shape[{told.axis}]"
    rest, factor, plain = _code(told.rest, variables), _code(told.factor, variables), told.factor == 1
    over = extent if told.rest == 0 else f"{extent} - ({rest})" if " " in rest else f"{extent} - {rest}"
    over = over if plain or told.rest == 0 else f"({over})"
    words = f"({told.factor}) * {dim.name}"
    return {
        "name": dim.name,
        "order": order,
        "variable": variables[dim.name],
        "ends_name": f"ENDS_{number}",
        "value": over if plain else f"{over} // ({factor})",
        "exact": "" if plain else f"{over} == {variables[dim.name]} * ({factor})",
        "extent": extent,
        "words": words if told.rest == 0 else f"{words} + {told.rest}",
        "tensor": told.tensor,
        "axis": told.axis,
        "least": dim.least,
        "most": dim.most,
    }


def _code(extent: int, variables: Mapping[str, str]) -> str:
    """An extent as Python, of the variables that hold the dimensions."""
    if not isinstance(extent, Extent):
        return str(extent)
    sums = []
    for product, times in terms_of(extent):
        factors = [str(times)] * (times != 1 or not product)
        sums.append(" * ".join([*factors, *(variables[name] for name in product)]))
    return " + ".join(sums)


def _place(names: Sequence[str], variables: Sequence[str], ends: Sequence[Sequence[int]]) -> str:
    """Where in SERVED the kernel stands."""
    places = []
    for number, (name, variable) in enumerate(zip(names, variables, strict=True)):
        step = math.prod(len(one) for one in ends[number + 1 :])
        found = f"bisect_left({name}, {variable})"
        places.append(found if step == 1 else f"{found} * {step}")
    return " + ".join(places)


def _tuple(values: Sequence[int]) -> str:
    return f"({', '.join(map(str, values))},)"
