"""Facts of tensors that are in the text of every kernel of a region: extents at which they differ share no kernel.

A kernel serves a class of extents only if it is written alike at the first and the last of them. How tensors lie
along the kernel's axes, which of them TMA moves, and how long rows are that it reduces, is in the text whatever the
structure. So it is asked before anything is searched.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from wsopt.emit.recipe import Check
from wsopt.emit.recipe_views import view_checks
from wsopt.errors import LoweringError
from wsopt.graph.extents import Extent
from wsopt.graph.symbolic import said
from wsopt.lowering.fixed import fixed_of
from wsopt.lowering.refused import problems
from wsopt.ranges.points import Grid, Point
from wsopt.ranges.price import Extents
from wsopt.tensors.views import TMA_BITS, Role, View, is_slice

_NUMBERS = "give such an extent as a number, in a graph for each"


@dataclass(frozen=True, slots=True)
class Form:
    """The length of rows that are reduced, 0 if none are, and what is asked of each tensor's view, with whether TMA
    moves it.
    """

    row: int
    views: frozenset[tuple[str, bool, tuple[Role, ...], tuple[tuple[object, str, object], ...]]]


def _form(extents: Extents, point: Point) -> Form:
    fixed = fixed_of(extents.region(point))
    tiles = ((view, view.is_aligned) for view in fixed.tiles)
    views = (*tiles, *((view, False) for view in fixed.others))
    own = ((view.tensor, copied, view.roles, _asked(view, copied=copied)) for view, copied in views)
    return Form(fixed.row, frozenset(own))


def _asked(view: View, *, copied: bool) -> tuple[tuple[object, str, object], ...]:
    """The conditions of a view, without their words."""
    checks: Iterable[Check] = view_checks(view, whole=copied, aligned=copied)
    return tuple((one.left, one.relation, one.right) for one in checks)


def check_forms(extents: Extents, grid: Grid, cells: Iterable[Point]) -> None:
    """Raise LoweringError, with the extents, where one of these cells can have no kernel for all of it."""
    for cell in cells:
        first = grid.first(cell)
        if first != cell:
            _check_indices(extents, first, cell)
        for point in dict.fromkeys((first, cell)):
            problem = next(problems(extents.region(point), extents.machine), None)
            if problem is not None:
                raise LoweringError(
                    f"with {said(extents.values(point))}: {problem}{_or_else(extents, point)}"
                )
        if first != cell and _form(extents, first) != _form(extents, cell):
            raise LoweringError(_told(extents, first, cell))


def _told(extents: Extents, first: Point, last: Point) -> str:
    """Why two extents have no kernel in common, and what to do."""
    one, other = (said(extents.values(point)) for point in (first, last))
    head = f"graph {extents.symbolic.name}: no kernel takes both {one} and {other}: "
    rows = [_form(extents, point).row for point in (first, last)]
    if rows[0] != rows[1]:
        return (
            f"{head}rows that are reduced have {rows[0]} elements and {rows[1]}, and a kernel has one length of "
            f"them; {_NUMBERS}"
        )
    uneven = _uneven(extents, first), _uneven(extents, last)
    for tensor in sorted(uneven[0].keys() ^ uneven[1].keys()):
        return (
            f"{head}rows of tensor {tensor} begin at multiples of {TMA_BITS // 8} bytes with one of them alone; "
            f"{_product((uneven[0] | uneven[1])[tensor])}, or {_NUMBERS}"
        )
    parts = _parts(extents, first), _parts(extents, last)
    for tensor in sorted({name for name, *_ in parts[0] ^ parts[1]}):
        return f"{head}{_of_a_part(tensor, parts[0] | parts[1])}"
    begin = next(_alike_from(extents, first, last), "")
    if begin:
        return f"{head}short rows are read several as one, and others are not; {begin}"
    return f"{head}tensors lie otherwise along the axes of a kernel, which has that in its text; {_NUMBERS}"


_Parts = frozenset[tuple[str, tuple[tuple[int, int, int] | None, ...], bool]]
"""Tensors with where the part of each lies that is read, and whether zeros are around it."""


def _parts(extents: Extents, point: Point) -> _Parts:
    """The parts of tensors that are not read whole."""
    fixed = fixed_of(extents.region(point))
    views = (view for view in (*fixed.tiles, *fixed.others) if any(view.cutouts))
    return frozenset((view.tensor, view.cutouts, _has_zeros(view)) for view in views)


def _has_zeros(view: View) -> bool:
    pairs = zip(view.cutouts, view.extents, strict=True)
    return any(cutout is not None and not is_slice(cutout, extent) for cutout, extent in pairs)


def _of_a_part(tensor: str, parts: _Parts) -> str:
    """That a kernel has the place of a part, or the number of zeros around it, as numbers, and what to do."""
    if any(zeros for name, _, zeros in parts if name == tensor):
        return (
            f"the zeros before or behind tensor {tensor} are of another number, which is in a kernel's text; let an "
            f"input hold the zeros too, without the pad, or {_NUMBERS}"
        )
    return (
        f"a slice of tensor {tensor} lies elsewhere in it, or in another length of it, and a kernel's text has both "
        f"as numbers; let an input be that slice alone, or {_NUMBERS}"
    )


def _read_by(extents: Extents, name: str) -> frozenset[str]:
    """The tensors from which a node is computed."""
    graph, seen, left = extents.symbolic.generic, set[str](), [name]
    nodes = {node.name: node for node in graph.nodes}
    while left:
        found = left.pop()
        if found not in seen:
            seen.add(found)
            left += (one for one in (nodes[found].inputs if found in nodes else ()) if isinstance(one, str))
    return frozenset(seen)


def _check_indices(extents: Extents, first: Point, last: Point) -> None:
    """Raise LoweringError for an index that begins elsewhere at each extent: where one begins is in the text."""
    graph, points = extents.symbolic.generic, (first, last)
    inputs = {one.name for one in graph.inputs}
    for node in graph.nodes:
        start = dict(node.attrs).get("start")
        if node.op != "slice" or not isinstance(start, Extent) or inputs & _read_by(extents, node.name):
            continue
        if len({start.at(extents.values(point)) for point in points}) > 1:
            one, other = (said(extents.values(point)) for point in points)
            raise LoweringError(
                f"graph {graph.name}: no kernel takes both {one} and {other}: node {node.name} begins at {start}, "
                "and a kernel's text has as a number where an index begins; add a scalar to it instead, an input of "
                f"shape [] and dtype i32, or {_NUMBERS}"
            )


def _or_else(extents: Extents, point: Point) -> str:
    """What a range can do beside what is told of a graph of numbers with rows that begin anywhere."""
    uneven = _uneven(extents, point)
    return f"; or {_product(max(uneven.values()))}" if uneven else ""


def _product(multiple: int) -> str:
    return f"let the extent be a product, such as {multiple} times a dimension"


def _uneven(extents: Extents, point: Point) -> dict[str, int]:
    """The tensors with tiles whose rows do not begin as TMA takes them, with the multiples of elements that would."""
    found, graph = dict[str, int](), extents.graph(point)
    for name in {view.tensor for view in fixed_of(extents.region(point)).tiles}:
        own = graph.type_of(name)
        if math.prod(own.shape[:-1]) > 1 and own.shape[-1] * own.dtype.bits % TMA_BITS:
            found[name] = TMA_BITS // own.dtype.bits
    return found


def _alike_from(extents: Extents, first: Point, last: Point) -> Iterator[str]:
    """The dimensions that let these extents have one form, if their range begins later, and where that is."""
    for place, dim in enumerate(extents.symbolic.dims):
        least, most = dim.least, dim.most
        while least < most:
            middle = (least + most) // 2
            alike = _alike_with(extents, (first, last), place, middle)
            least, most = (least, middle) if alike else (middle + 1, most)
        if most < dim.most:
            yield f"let the range of {dim.name} begin with {most}"


def _alike_with(extents: Extents, points: Sequence[Point], place: int, extent: int) -> bool:
    """Whether these extents have one form, and one with those where a dimension has its largest, if it has so many
    elements or more.
    """
    raised = [(*one[:place], max(extent, one[place]), *one[place + 1 :]) for one in points]
    largest = (*raised[-1][:place], extents.symbolic.dims[place].most, *raised[-1][place + 1 :])
    with suppress(LoweringError):
        return len({_form(extents, one) for one in (*raised, largest)}) == 1
    return False
