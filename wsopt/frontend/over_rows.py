"""Reductions over the rows of a kernel without a product: which of a graph's they are, and what follows them.

A tile of rows is reduced along its columns. What is reduced along the rows instead, such as the gradient of a norm's
weight, a block carries from tile to tile, and it is complete when the last block is done. So nothing but values of
columns may follow, and these are stored then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.frontend.axes import Axes, Dim
from wsopt.frontend.joining import one_axis
from wsopt.frontend.kinds import depending, feeding, reduces_rows
from wsopt.frontend.values import OVER_ROWS
from wsopt.graph.types import Node
from wsopt.tensors.statements import Item, Reduction, Statement
from wsopt.tensors.views import FULL, Role

CARRIED = {"reduce_sum": "sum_of_rows", "reduce_max": "max_of_rows", "reduce_min": "max_of_rows"}
"""Operations that blocks carry from tile to tile, with the primitive that does it; a minimum by negation."""


FEW_COLUMNS = 4096
"""Columns of which blocks of 32 each leave few SMs of a large card idle. By the model 16,384 rows of 4,096 take
39.5 us so and 41.3 us if they are carried, 65,536 rows of 256 take 58.7 and 14.2 us (predicted for an H200).
"""


def over_rows(axes: Axes, found: Mapping[Dim, str]) -> tuple[Dim, ...]:
    """Which of the axes that a graph reduces, each with a node that does, are the rows of its kernel.

    Where two axes are reduced it is the one whose elements lie apart in memory, if blocks can carry what is made
    along it. Where a single one is, and its elements lie apart, it is that one if no value of a row follows.
    """
    near = _neighbours(axes)
    apart = tuple(axis for axis in found if axis not in near)
    if not apart or not one_axis(axes, apart) or any(node.op not in CARRIED for node in _nodes(axes, apart)):
        return ()
    if len(apart) < len(found):
        rest = [axis for axis in found if axis in near]
        return apart if one_axis(axes, rest) and not one_axis(axes, list(found)) else ()
    others = {atom for use in axes.paths for atom in axes.all_atoms(use) if axes.extents[atom] > 1} - {*apart}
    plain = len(others) == 1 and others <= near and not any(_refusals(axes, apart))
    return apart if plain and _few_columns(axes, apart[0], next(iter(others))) else ()


def _few_columns(axes: Axes, row: Dim, column: Dim) -> bool:
    """Whether sums over an axis alone are carried: where whole tiles are stored as well, or columns are few, so that
    blocks which have some columns each would leave SMs idle, and rows many, so that the parts' way together is short.
    """
    tiles = any(row in axes.all_atoms(name) for name in axes.graph.outputs)
    return tiles or axes.extents[column] < FEW_COLUMNS <= axes.extents[row]


def _neighbours(axes: Axes) -> set[Dim]:
    """The axes along which elements of the widest inputs lie next to each other."""
    views = [[dim for dim in axes.raw_view(use).dims if dim.extent > 1] for use in axes.paths]
    most = max(map(len, views), default=0)
    return {dim.axis for dims in views if len(dims) == most for dim in dims if dim.stride == 1}


def check_over_rows(axes: Axes, over: Iterable[Dim], others: Iterable[Dim]) -> None:
    """Refuse reductions over rows that others need at once, and those beside several axes of rows."""
    refusal = next(_refusals(axes, over), None)
    if refusal is not None:
        raise LoweringError(refusal)
    nodes = [node.name for node in _nodes(axes, over)]
    if len({*others}) > 1:
        raise LoweringError(
            f"node {nodes[0]}: it reduces one of several axes of rows; a kernel carries sums over all of its rows: "
            "where the axes are neighbours, declare them as one"
        )


def _nodes(axes: Axes, over: Iterable[Dim]) -> list[Node]:
    """The nodes that reduce these axes."""
    known = {axes.same[axis] for axis in over}
    nodes = (node for node in axes.graph.nodes if reduces_rows(node))
    return [node for node in nodes if known & {*axes.atoms(*axes.reduced(node))}]


def _refusals(axes: Axes, over: Iterable[Dim]) -> Iterator[str]:
    """Why reductions over these axes are not carried from tile to tile."""
    known = {axes.same[axis] for axis in over}
    names = {node.name for node in _nodes(axes, over)}
    later = depending(axes.graph.nodes, lambda node: node.name in names) - names
    for node in (node for node in axes.graph.nodes if node.name in later):
        if reduces_rows(node) or known & {*axes.all_atoms(node.name)}:
            before = [name for name in feeding(axes.graph.nodes, [node.name]) if name in names]
            yield (
                f"node {node.name}: it depends on {' and '.join(sorted(before))}, complete when all rows have been "
                f"seen; {remedies.computed_before(sorted(before))}"
            )


def ending(items: tuple[Item, ...]) -> tuple[tuple[Item, ...], tuple[Statement, ...]]:
    """The items of a tile, and the statements that follow reductions over all rows, with those of columns that they
    read.
    """
    after: set[str] = {item.name for item in items if isinstance(item, Reduction) and item.over_rows}
    carried = frozenset(after)
    for item in items:
        if isinstance(item, Statement) and after & {*item.reads}:
            after.add(item.name)
    wanted = {name for item in items if item.name in after - carried for name in item.reads} | after
    for item in reversed(items):
        if item.name in wanted:
            wanted.update(item.reads if item.name not in carried else ())
    later = (item for item in items if item.name in wanted - carried)
    own = tuple(item for item in items if item.name in carried or item.name not in after)
    return own, tuple(item for item in later if isinstance(item, Statement))


def is_carried(primitive: str) -> bool:
    """Whether a primitive reduces over the rows."""
    return primitive in OVER_ROWS


def check_carried(node: Node, spans: frozenset[Role]) -> None:
    """Refuse a reduction over the rows of what is no whole tile."""
    if spans != FULL:
        what = "the same in every row" if Role.ROW not in spans else "one value a row"
        raise LoweringError(
            f"node {node.name}: {node.op} over the rows of what is {what}; {remedies.computed_before([node.name])}"
        )
