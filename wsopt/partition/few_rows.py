"""Softmaxes and reductions of a few long rows, written so that rows are reduced in parts, which more SMs have.

A kernel of rows gives each row to one block. With fewer rows than SMs, as of the logits of a small batch, most SMs
have nothing to do. Here a row is parts that lie side by side: each has its maximum and its sum, the parts' are
brought together, and what is computed of a row's elements reads those two. So it is with what is reduced along an
outer axis, as a batch by its features, of which a block has a band of neighbours.

A variance needs the mean of its row before, so that what no SM holds is read twice. Parts that one holds are read
once: each gives its own mean and the squares of the differences to that, and the row's squares are the sum of these
and of those of the parts' means to the row's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from wsopt.frontend.kinds import input_path
from wsopt.frontend.row_roles import MOST_HELD, OUTER_ROWS
from wsopt.frontend.several_axes import with_joined_reductions
from wsopt.frontend.slices import with_sliced_inputs
from wsopt.graph.types import Graph, Node
from wsopt.machine.types import Machine
from wsopt.partition.common import with_common_nodes
from wsopt.partition.replaced import Writer, replaced
from wsopt.tensors.views import pow2

_LONG = 16384
"""Elements of a row from which on it is cut to parts: shorter ones take less time than a further launch."""

_LEAST_PART, _MOST_PARTS, _UNIT = 1024, 256, 8
"""Elements of a part at least, parts of a row at most, and elements of which a part has a multiple: 16 bytes."""

_ENOUGH = 8
"""Parts of a row that are enough not to look for more of another kind."""

_PART_HELD = MOST_HELD // 4
"""Elements of a part that is held, at most: several fit into an SM, so that copies run ahead of what is reduced."""

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
    variances = dict[str, Callable[[Writer], None]]()
    for node in graph.nodes:
        if (mean := _mean_of_variance(graph, node)) and (parts := held_parts(graph, node, machine)) > 1:
            variances[mean.name] = partial(_write, graph, mean, parts)
            variances[node.name] = partial(_write_variance, graph, node, mean, parts)
    written = replaced(graph, wanted | variances)
    if written is graph:
        return graph
    # Behind parts that do not make up a row is a slice, which is computed of slices of inputs.
    sliced = with_sliced_inputs(written)
    # A mean and the variance about it have the means of parts together.
    return with_common_nodes(sliced) if variances else sliced


def joins_few_long_rows(graph: Graph, machine: Machine) -> bool:
    """Whether one kernel would join reductions along several axes to one of rows that most SMs have none of."""
    joined = with_joined_reductions(graph)
    made = (node for node in joined.nodes if node not in graph.nodes)
    return any(_are_few_and_long(joined, node, machine) for node in made)


def _are_few_and_long(graph: Graph, node: Node, machine: Machine) -> bool:
    """Whether a node reduces rows, or bands along an outer axis, that are long and fewer than half of the SMs."""
    return node.op in ("softmax", *_REDUCTIONS) and _has_few_and_long(graph, node, machine)


def _has_few_and_long(graph: Graph, node: Node, machine: Machine) -> bool:
    """Whether the rows or bands along which a node computes are so."""
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


def _mean_of_variance(graph: Graph, node: Node) -> Node | None:
    """The mean whose squared differences to the elements a node adds up, or has the mean of; None if it is another
    node.
    """
    squares = graph.producer(node.tensors[0]) if node.op in ("reduce_mean", "reduce_sum") else None
    if squares is None or squares.op != "mul" or len(set(squares.inputs)) != 1:
        return None
    apart = graph.producer(squares.tensors[0])
    if apart is None or apart.op != "sub" or len(apart.tensors) != 2:
        return None
    x, subtracted = apart.tensors
    mean = graph.producer(subtracted)
    if mean is not None and mean.op == "reshape" and input_path(graph, mean.name) is None:
        mean = graph.producer(mean.tensors[0])
    if mean is None or mean.op != "reduce_mean" or mean.tensors != (x,):
        return None
    shape, axis = _reduced(graph, node)
    kept = tuple(1 if dim == axis else extent for dim, extent in enumerate(shape))
    same = _reduced(graph, mean) == (shape, axis) and graph.type_of(subtracted).shape == kept
    return mean if same else None


def held_parts(graph: Graph, node: Node, machine: Machine) -> int:
    """Parts of each of the rows along which a node computes: such as an SM holds several of, and as give every SM two
    where rows are few. Of those whose tiles have the least places beyond their end the fewest; one if rows are held
    whole and enough, or if nothing divides them so.
    """
    shape, axis = _reduced(graph, node)
    length, (bands, width) = shape[axis], _bands(shape, axis)
    few = _has_few_and_long(graph, node, machine)
    if not few and pow2(length) * width <= MOST_HELD:
        return 1
    most = min(_MOST_PARTS, length * width // _LEAST_PART)
    divisors = [n for n in range(2, most + 1) if length % n == 0]
    units = [n for n in divisors if length // n * width % _UNIT == 0]
    held = [n for n in units or divisors if pow2(length // n) * width <= _PART_HELD]
    enough = [n for n in held if not few or bands * n >= 2 * machine.sm_count]
    return min(enough or held[-1:], key=lambda n: n * pow2(length // n), default=1)


def _write_variance(graph: Graph, node: Node, mean: Node, parts: int, write: Writer) -> None:
    """Write the nodes that stand for the squared differences to a row's mean, added up, or their mean."""
    (x,), (shape, axis) = mean.tensors, _reduced(graph, node)
    each = shape[axis] // parts
    within: dict[str, object] = {"axis": axis + 1, "keepdims": True}
    over: dict[str, object] = {"axis": axis, "keepdims": True}
    cut = write("parts", "reshape", x, shape=[*shape[:axis], parts, each, *shape[axis + 1 :]])
    centre = write("part_mean", "reduce_mean", cut, **within)
    apart = write("part_apart", "sub", cut, centre)
    inside = write("inside", "reduce_sum", write("part_squares", "mul", apart, apart), **within)
    gap = write("gap", "sub", centre, write("centre", "reduce_mean", centre, **over))
    between = write("between", "mul", write("gaps", "mul", gap, gap), float(each))
    made = write("squares", "reduce_sum", write("both", "add", inside, between), **over)
    if node.op == "reduce_mean":
        made = write("mean", "div", made, float(shape[axis]))
    write("", "reshape", made, shape=list(node.type.shape))


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
