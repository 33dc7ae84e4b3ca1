"""The nodes that reduce rows, written as primitives: sums and maxima, softmaxes, norms, quantized rows."""

from __future__ import annotations

import math
from functools import partial

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.frontend.groups import in_rows
from wsopt.frontend.kinds import Kind
from wsopt.frontend.over_rows import CARRIED, check_carried
from wsopt.frontend.places import MOST_PLACES, arg_max, running_sum
from wsopt.frontend.reading import Reader, check_whole, term_of
from wsopt.frontend.values import Pool, Term
from wsopt.frontend.whole_numbers import in_whole_numbers
from wsopt.graph.scales import LARGEST
from wsopt.graph.types import DType, Node
from wsopt.tensors.views import Role


def _reduced_roles(reader: Reader, node: Node) -> set[Role | None]:
    """The roles of the axes that a node reduces."""
    return set(map(reader.axes.roles.get, reader.axes.atoms(*reader.axes.reduced(node)))) - {None}


def _reduced_extent(reader: Reader, node: Node) -> int | None:
    """The extent of the axis that a node reduces, if it is the streamed one; None for one of extent one."""
    use, dim = reader.axes.reduced(node)
    roles = _reduced_roles(reader, node)
    if roles == {reader.pool.along}:
        if reader.axes.kind is Kind.CHAIN:
            check_whole(reader, node, reader.axes.atoms(use, dim), "reduces")
        return reader.axes.shapes[use][dim]
    if reader.axes.shapes[use][dim] == 1:
        return None
    what = f"a {'/'.join(sorted(str(r) for r in roles))} axis" if roles else "no axis of the products"
    kind = "streamed" if reader.pool.along is Role.STREAM else str(reader.pool.along)
    raise LoweringError(
        f"node {node.name}: {node.op} along axis {dim} of {reader.axes.title(use)}, which is {what}; "
        f"only the {kind} axis is reduced in a kernel"
    )


def _varying(reader: Reader, node: Node) -> tuple[Term, int]:
    """The operand of a node that reduces and varies along its axis, and the extent of the axis."""
    x, extent = term_of(reader, node, 0), _reduced_extent(reader, node)
    if extent is None or not reader.pool.streams(x):
        raise LoweringError(
            f"node {node.name}: {node.op} of what is the same along its axis; compute it before, and make it an input"
        )
    return x, extent


def reduction(reader: Reader, node: Node) -> Term:
    """A sum, a mean, a maximum or a minimum along the axis that the kernel reduces, or over all of its rows."""
    x = term_of(reader, node, 0)
    if node.type.dtype is not DType.I32:
        return _reduced(reader, node, x)
    use, dim = reader.axes.reduced(node)
    count = reader.axes.shapes[use][dim]
    numbers = count if node.op == "reduce_sum" else 1
    if count == 1:
        return x
    return in_whole_numbers(reader.pool, node, x, numbers, lambda as_f32: _reduced(reader, node, as_f32))


def _reduced(reader: Reader, node: Node, x: Term) -> Term:
    """A node's sum, mean, maximum or minimum of a value."""
    if reader.axes.kind is Kind.ROWS and _reduced_roles(reader, node) == {Role.ROW}:
        return _over_rows(reader, node, x)
    pool, extent = reader.pool, _reduced_extent(reader, node)
    op = node.op.removeprefix("reduce_")
    if extent is None:
        return x
    if not pool.streams(x):
        return pool.apply(node.name, "mul", _length(pool, node, extent), x) if op == "sum" else x
    if Role.ROW not in pool.spans(x):
        raise LoweringError(
            f"node {node.name}: {node.op} of what is the same in every row; compute it before, and make it an input"
        )
    if op == "min":
        return pool.apply(
            node.name, "neg", pool.apply(node.name, "reduce_max", pool.apply(node.name, "neg", x))
        )
    if op == "mean":
        return _mean(reader, node, x, extent)
    return pool.apply(node.name, node.op, x)


def _over_rows(reader: Reader, node: Node, x: Term) -> Term:
    """A reduction over all rows of the kernel: one value a column."""
    make = partial(reader.pool.apply, node.name)
    check_carried(node, reader.pool.spans(x))
    if node.op == "reduce_min":
        return make("neg", make(CARRIED[node.op], make("neg", x)))
    return make(CARRIED[node.op], x)


def _mean(reader: Reader, node: Node, x: Term, extent: int) -> Term:
    """The sum of a value along the reduced axis, divided by the length of the axis."""
    make = partial(reader.pool.apply, node.name)
    return make("div", make("reduce_sum", x), _length(reader.pool, node, extent))


def _length(pool: Pool, node: Node, extent: int) -> Term:
    """Length of the reduced axis: a number for whole rows, which a kernel knows; an extent for a streamed axis."""
    if pool.along is not Role.STREAM:
        return float(extent)
    return pool.apply(node.name, "round_f32", pool.make("extent_stream", (), DType.I32, node.name))


def softmax(reader: Reader, node: Node) -> Term:
    """exp(x - max) over its sum; a sum of zero, which a row of -inf has, gives zeros."""
    make = partial(reader.pool.apply, node.name)
    x, _ = _varying(reader, node)
    peak = make("reduce_max", x)
    if reader.pool.along is not Role.STREAM:  # `online` makes running maxima safe; -inf - -inf is nan
        peak = make("where", make("equal", peak, -math.inf), 0.0, peak)
    weights = make("exp", make("sub", x, peak))
    total = make("reduce_sum", weights)
    return make("div", weights, make("where", make("equal", total, 0.0), 1.0, total))


def logsumexp(reader: Reader, node: Node) -> Term:
    """max + log(sum of exp(x - max)): -inf in a row that is all -inf, and inf where one element is."""
    make = partial(reader.pool.apply, node.name)
    if _reduced_extent(reader, node) is None:
        return term_of(reader, node, 0)
    x, _ = _varying(reader, node)
    largest = make("reduce_max", x)
    subtracted = make("where", make("equal", largest, -math.inf), 0.0, largest)
    total = make("reduce_sum", make("exp", make("sub", x, subtracted)))
    logarithm = make("add", make("log", total), subtracted)
    return make("where", make("equal", largest, math.inf), math.inf, logarithm)


def of_places(reader: Reader, node: Node) -> Term:
    """What a node makes of the places in its rows."""
    x, extent = _varying(reader, node)
    if node.op == "reduce_argmax" and extent > MOST_PLACES:
        raise LoweringError(f"node {node.name}: reduce_argmax of {extent} elements; at most {MOST_PLACES}")
    pool, kind = reader.pool, reader.axes.kind
    if node.op == "reduce_argmax":
        return arg_max(pool, kind, node, x)
    if node.type.dtype is DType.I32:
        return in_whole_numbers(pool, node, x, extent, lambda as_f32: running_sum(pool, kind, node, as_f32))
    return running_sum(pool, kind, node, x)


def norm(reader: Reader, node: Node) -> Term:
    """x over the root of its mean square, for layer_norm after its mean; times the weight, plus the bias."""
    make = partial(reader.pool.apply, node.name)
    x, extent = _varying(reader, node)
    vectors = [term_of(reader, node, operand) for operand in range(1, len(node.inputs))]
    if node.op == "layer_norm":
        x = make("sub", x, _mean(reader, node, x, extent))
    square = _mean(reader, node, make("mul", x, x), extent)
    result = make("mul", x, make("rsqrt", make("add", square, node.attr("eps", float))))
    for primitive, vector in zip(("mul", "add"), vectors, strict=False):
        result = make(primitive, result, vector)
    return result


def quantized(reader: Reader, node: Node) -> Term:
    """The largest magnitude over that of the type, or one for zero; for `quantize` x over that, rounded."""
    make, dtype = partial(reader.pool.apply, node.name), node.attr("dtype", DType)
    x, _ = _varying(reader, node)
    inside = in_rows(reader.axes, node)
    if inside and reader.axes.kind is not Kind.ROWS:
        raise LoweringError(
            f"node {node.name}: groups of rows that no SM holds, or of a product's, are not quantized where "
            f"something else reduces the rows; {remedies.computed_before([node.tensors[0]])}"
        )
    magnitude = make("abs", x)
    if inside:
        largest = make("largest_of_group", magnitude, node.attr("group", int))
    else:
        largest = make("reduce_largest", magnitude)
    quotient = make("div", largest, LARGEST[dtype])
    scale = make("where", make("equal", quotient, 0.0), 1.0, quotient)
    if node.op == "quantize_scale":
        return scale
    # of a group's elements the compiler divides once
    scaled = make("mul", x, make("div", 1.0, scale)) if inside else make("div", x, scale)
    return reader.pool.make(f"round_{dtype.value}", (scaled,), dtype, node.name)
