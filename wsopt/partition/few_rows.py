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
from wsopt.graph.types import Graph, Node
from wsopt.machine.types import Machine
from wsopt.partition.replaced import Writer, replaced

_LONG = 16384
"""Elements of a row from which on it is cut to parts: shorter ones take less time than a further launch."""

_LEAST_PART, _MOST_PARTS, _UNIT = 1024, 256, 8
"""Elements of a part at least, parts of a row at most, and elements of which a part has a multiple: 16 bytes."""

_ENOUGH = 8
"""Parts of a row that are enough not to look for more of another kind."""

_REDUCTIONS = ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min")


def with_parts_of_rows(graph: Graph, machine: Machine) -> Graph:
    """The graph with rows in parts where they are few and long; itself where none are."""
    wanted = {
        node.name: partial(_write, graph, node, parts)
        for node in graph.nodes
        if (parts := _parts(graph, node, machine)) > 1
    }
    return replaced(graph, wanted)


def joins_few_long_rows(graph: Graph, machine: Machine) -> bool:
    """Whether one kernel would join reductions along several axes to one of rows that most SMs have none of."""
    joined = with_joined_reductions(graph)
    made = (node for node in joined.nodes if node not in graph.nodes)
    return any(_are_few_and_long(joined, node, machine) for node in made)


def _are_few_and_long(graph: Graph, node: Node, machine: Machine) -> bool:
    """Whether a node reduces rows, or bands along an outer axis, that are long and fewer than half of the SMs."""
    if node.op not in ("softmax", "logsumexp", *_REDUCTIONS):
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
    none is read by address, and taken where the others are no more than a few.
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
    return next((n for n in fitting if bands * n >= 2 * machine.sm_count), fitting[-1] if fitting else 1)


def _write(graph: Graph, node: Node, parts: int, write: Writer) -> None:
    """Write the nodes that stand for one of rows in parts."""
    (x,), (shape, axis) = node.tensors, _reduced(graph, node)
    apart = [*shape[:axis], parts, shape[axis] // parts, *shape[axis + 1 :]]
    cut = write("parts", "reshape", x, shape=apart)
    within: dict[str, object] = {"axis": axis + 1, "keepdims": True}
    over: dict[str, object] = {"axis": axis, "keepdims": True}
    if node.op in _REDUCTIONS:
        made = write("together", node.op, write("part", node.op, cut, **within), **over)
    else:
        made = _softened(node.op, cut, within, over, write)
    write("", "reshape", made, shape=list(node.type.shape))


def _softened(op: str, cut: str, within: dict[str, object], over: dict[str, object], write: Writer) -> str:
    """A softmax, or the logarithm of the sum of exponentials, of rows in parts."""

    def finite(what: str, maximum: str) -> str:
        empty = write(f"{what}_empty", "equal", maximum, -math.inf)
        return write(what, "where", empty, 0.0, maximum)

    maximum = write("part_max", "reduce_max", cut, **within)
    own = write("part_exp", "exp", write("part_less", "sub", cut, finite("part_base", maximum)))
    base = finite("base", write("max", "reduce_max", maximum, **over))
    factor = write("factor", "exp", write("apart", "sub", maximum, base))
    shares = write("shares", "mul", write("part_sum", "reduce_sum", own, **within), factor)
    total = write("sum", "reduce_sum", shares, **over)
    if op == "logsumexp":
        return write("value", "add", write("log", "log", total), base)
    some = write("some", "where", write("none", "equal", total, 0.0), 1.0, total)
    elements = write("exp", "exp", write("less", "sub", cut, base))
    return write("value", "mul", elements, write("inverse", "reciprocal", some))
