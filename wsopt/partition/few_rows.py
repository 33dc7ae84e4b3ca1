"""Softmaxes and reductions of a few long rows, written so that rows are reduced in parts, which more SMs have.

A kernel of rows gives each row to one block. With fewer rows than SMs, as of the logits of a small batch, most SMs
have nothing to do. Here a row is parts that lie side by side: each has its maximum and its sum, the parts' are
brought together, and what is computed of a row's elements reads those two. So it is with what is reduced along an
outer axis, as a batch by its features, of which a block has a band of neighbours.
"""

from __future__ import annotations

import math
from functools import partial

from wsopt.frontend.row_roles import OUTER_ROWS
from wsopt.frontend.several_axes import with_joined_reductions
from wsopt.frontend.slices import with_sliced_inputs
from wsopt.graph.types import Graph, Node
from wsopt.machine.types import Machine
from wsopt.partition.replaced import Writer, replaced

_LONG = 16384
"""Elements of a row from which on it is cut to parts: shorter ones take less time than a further launch."""

_LEAST_PART, _MOST_PARTS, _UNIT = 1024, 256, 8
"""Elements of a part at least, parts of a row at most, and elements of which a part has a multiple: 16 bytes."""

_ENOUGH = 8
"""Parts of a row that are enough not to look for more of another kind."""

_TOGETHER = {"reduce_sum": "add", "reduce_max": "maximum", "reduce_min": "minimum"}
"""Reductions, and what makes one of those of two parts."""

_REDUCTIONS = (*_TOGETHER, "reduce_mean", "logsumexp")
"""Reductions that, of what they give of the parts of a row, give what they give of the row."""


def with_parts_of_rows(graph: Graph, machine: Machine) -> Graph:
    """The graph with rows in parts where they are few and long; itself where none are."""
    wanted = {
        node.name: partial(_write, graph, node, parts)
        for node in graph.nodes
        if (parts := _parts(graph, node, machine)) > 1
    }
    written = replaced(graph, wanted)
    # Behind parts that do not make up a row is a slice, which is computed of slices of inputs.
    return with_sliced_inputs(written) if written is not graph else graph


def joins_few_long_rows(graph: Graph, machine: Machine) -> bool:
    """Whether one kernel would join reductions along several axes to one of rows that most SMs have none of."""
    joined = with_joined_reductions(graph)
    made = (node for node in joined.nodes if node not in graph.nodes)
    return any(_are_few_and_long(joined, node, machine) for node in made)


def _are_few_and_long(graph: Graph, node: Node, machine: Machine) -> bool:
    """Whether a node reduces rows, or bands along an outer axis, that are long and fewer than half of the SMs."""
    if node.op not in ("softmax", *_REDUCTIONS):
        return False
    shape, axis = _reduced(graph, node)
    bands, width = _bands(shape, axis)
    return shape[axis] * width >= _LONG and 2 * bands <= machine.sm_count


def _reduced(graph: Graph, node: Node) -> tuple[tuple[int, ...], int]:
    """The shape of what a node reduces, and the axis."""
    shape = graph.type_of(node.tensors[0]).shape
    return shape, node.attr("axis", int) % len(shape)


def _bands(shape: tuple[int, ...], axis: int) -> tuple[int, int]:
    """How many blocks have something to reduce along an axis, and of how many neighbours each: one row of the last
    axis, of another one as many as fill a sector of L2.
    """
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    width = min(inner, OUTER_ROWS)
    return outer * -(-inner // width), width


def _parts(graph: Graph, node: Node, machine: Machine) -> int:
    """Parts of each of the rows that a node reduces: the fewest of which every SM has two; one if rows stay whole.
    Powers of two come first, whose tiles have no places beyond their end, then other parts of whole units; what is
    none is read by address, and taken where the others are no more than a few. Where nothing divides a row enough,
    what is left behind parts of whole units is reduced by itself, if the two results are one operation apart.
    """
    if not _are_few_and_long(graph, node, machine):
        return 1
    shape, axis = _reduced(graph, node)
    length, (bands, width) = shape[axis], _bands(shape, axis)
    most = min(_MOST_PARTS, length * width // _LEAST_PART)
    divisors = [n for n in range(2, most + 1) if length % n == 0]
    units = [n for n in divisors if length // n * width % _UNIT == 0]
    powers = [n for n in units if n.bit_count() == 1]
    ways = (powers, units, divisors)
    fitting = next((way for way in ways if way and way[-1] >= _ENOUGH), divisors)
    if (node.op in _TOGETHER or node.op == "reduce_mean") and max(fitting, default=1) < min(_ENOUGH, most):
        return min(most, -(-2 * machine.sm_count // bands))
    return next((n for n in fitting if bands * n >= 2 * machine.sm_count), fitting[-1] if fitting else 1)


def _write(graph: Graph, node: Node, parts: int, write: Writer) -> None:
    """Write the nodes that stand for one of rows in parts."""
    (x,), (shape, axis) = node.tensors, _reduced(graph, node)
    length = shape[axis]
    each = length // parts if length % parts == 0 else length // parts // _UNIT * _UNIT
    end = parts * each
    own = x if end == length else write("front", "slice", x, axis=axis, start=0, stop=end)
    cut = write("parts", "reshape", own, shape=[*shape[:axis], parts, each, *shape[axis + 1 :]])
    within: dict[str, object] = {"axis": axis + 1, "keepdims": True}
    over: dict[str, object] = {"axis": axis, "keepdims": True}
    op = "reduce_sum" if node.op == "reduce_mean" and end < length else node.op
    if op == "softmax":
        made = _softened(cut, within, over, write)
    else:
        made = write("together", op, write("part", op, cut, **within), **over)
    if end < length:
        rest = write("rest", "slice", x, axis=axis, start=end, stop=length)
        alone = write("alone", "reshape", write("behind", op, rest, axis=axis), shape=list(node.type.shape))
        front = write("in_front", "reshape", made, shape=list(node.type.shape))
        made = _joined(node, front, alone, length, write)
    write("", "reshape", made, shape=list(node.type.shape))


def _joined(node: Node, front: str, rest: str, length: int, write: Writer) -> str:
    """What is reduced of a row of so many elements, made of two parts of it."""
    if node.op == "reduce_mean":
        return write("mean", "div", write("both", "add", front, rest), float(length))
    return write("both", _TOGETHER[node.op], front, rest)


def _softened(cut: str, within: dict[str, object], over: dict[str, object], write: Writer) -> str:
    """A softmax of rows in parts."""

    def finite(what: str, maximum: str) -> str:
        empty = write(f"{what}_empty", "equal", maximum, -math.inf)
        return write(what, "where", empty, 0.0, maximum)

    maximum = write("part_max", "reduce_max", cut, **within)
    own = write("part_exp", "exp", write("part_less", "sub", cut, finite("part_base", maximum)))
    base = finite("base", write("max", "reduce_max", maximum, **over))
    factor = write("factor", "exp", write("apart", "sub", maximum, base))
    shares = write("shares", "mul", write("part_sum", "reduce_sum", own, **within), factor)
    total = write("sum", "reduce_sum", shares, **over)
    some = write("some", "where", write("none", "equal", total, 0.0), 1.0, total)
    elements = write("exp", "exp", write("less", "sub", cut, base))
    return write("value", "mul", elements, write("inverse", "reciprocal", some))
