"""The graph's nodes as values: every operation as primitives on tensors, products and reductions.

Nothing is rewritten for one pass over the loop: a maximum is still of the whole axis, and a sum is divided by where
the graph says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.frontend.algebra import RULES, SHORT, SHORT_RULES
from wsopt.frontend.axes import Axes, Dim, RawView
from wsopt.frontend.expand import SOURCES, narrow_nodes, pointwise
from wsopt.frontend.groups import in_rows
from wsopt.frontend.kinds import (
    NORMS,
    QUANTIZING,
    VIEWS,
    Kind,
    gathered,
    input_path,
    is_copied,
    is_pointwise,
    paged,
)
from wsopt.frontend.over_rows import CARRIED, check_carried
from wsopt.frontend.pages import paged_operand
from wsopt.frontend.places import MOST_PLACES, arg_max, running_sum
from wsopt.frontend.segments import offsets_use
from wsopt.frontend.values import Draft, Pool, Rule, Term
from wsopt.graph.lengths import compared_extents
from wsopt.graph.ops import OPS, CostClass
from wsopt.graph.scales import LARGEST
from wsopt.graph.types import DType, Node
from wsopt.tensors.views import K_BLOCK, Role

_WITH_ZERO = 3
"""Inputs of a `dequantize` that has zeros."""

_MOST_ZERO = 15
"""A zero up to which differences of four bits are read as they are: another is subtracted."""

_KERNEL_AXES = frozenset({Role.ROW, Role.COLUMN, Role.STREAM})


@dataclass(slots=True)
class _Reader:
    """Collects the values of a graph's nodes, and the tensors by use; elementwise operations `read` some. Of tensors
    one behind the other there is a value each: they are `joined`.
    """

    axes: Axes
    pool: Pool
    narrow: frozenset[str]
    values: dict[str, Term] = field(default_factory=dict)
    raw: dict[str, RawView] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)
    joined: dict[str, tuple[Term, ...]] = field(default_factory=dict)


def _source(
    reader: _Reader,
    node: Node,
    operand: int,
    piece: int = 0,
    chosen: tuple[Dim, str] | None = None,
    *,
    zero: int | None = None,
) -> Term:
    """An input that elementwise operations read; one for each tensor and layout.

    A tensor is broadcast along its dimensions of extent one. Of axes that are kept the products have one element as
    well: those may have more at run time. What is compared with indices is broadcast there too: beside a single row
    it is a length of all rows, not of one. Places along an axis may be `chosen` by another source. Numbers of four
    bits that are quantized are signed, or unsigned and less a `zero`.
    """
    axes, use = reader.axes, f"{node.name}:{operand}"
    view, plain = replace(axes.raw_view(use, piece), chosen=chosen), axes.kind.plain
    use += f".{piece}" if piece else ""
    if node.op == "dequantize" and not operand and view.dtype is DType.I4:
        view = replace(view, zero=zero)
    elif view.dtype not in SOURCES:
        raise LoweringError(
            f"node {node.name}: input {view.tensor} is {view.dtype.value}; not lowered there; "
            + remedies.SOURCE_TYPE.format(", ".join(dtype.value for dtype in SOURCES))
        )
    for dim in view.dims:
        if (
            dim.extent > 1
            and axes.roles.get(dim.axis) in (None, Role.INNER)
            and dim.axis != (chosen and chosen[0])
        ):
            raise LoweringError(
                f"node {node.name}: axis {dim.origin[0]} of {view.tensor} is no axis of "
                f"{'the products beside it' if plain else 'what is computed with it'}"
            )
    kept = {axis for axis, role in axes.roles.items() if role in _KERNEL_AXES}.union(
        axes.singles if plain else ()
    )
    if view.tensor in compared_extents(axes.graph):
        kept = set()
    view = view.along(lambda dim: dim.extent > 1 or dim.axis in kept)
    use = next((known for known, raw in reader.raw.items() if known in reader.read and raw == view), use)
    reader.raw[use] = view
    reader.read.add(use)
    spans = _KERNEL_AXES & {axes.roles.get(dim.axis) for dim in view.dims}
    if any(dim.padded for dim in view.dims) and not spans >= {Role.ROW, Role.COLUMN}:
        raise LoweringError(
            f"node {node.name}: {view.tensor} is read by address, and not with zeros around it; "
            f"{remedies.computed_before([str(node.inputs[operand])])}"
        )
    dtype = DType.F32 if view.dtype.is_float else view.dtype
    args = (
        (next(name for name, one in reader.pool.values.items() if one.label[0] == chosen[1]),)
        if chosen
        else ()
    )
    return reader.pool.make("source", args, dtype, node.name, (use, 0), spans)


def _gather(reader: _Reader, node: Node) -> Term:
    """Rows of an input at the places that an input of indices chooses: a source of the kernel's own."""
    axes, along = reader.axes, node.attr("axis", int)
    table, where = f"{node.name}:0", f"axis {along} of {node.tensors[0]}"
    indices = _source(reader, node, 1)
    end = axes.instance(table, len(axes.paths[table]) - 1)
    atoms = axes.atoms(table, along)
    own = [dim for dim in axes.raw_view(table).dims if dim.axis in atoms]
    if len(atoms) > 1 or len(own) != 1 or own[0].cutout or own[0].axis not in axes.all_atoms(end):
        raise LoweringError(
            f"node {node.name}: a view takes {where} apart, or a part of it, along which indices choose; "
            f"{remedies.computed_before([node.tensors[0]])}"
        )
    if Role.COLUMN in reader.pool.spans(indices) or not axes.raw_view(table).dims[1:]:
        raise LoweringError(
            f"node {node.name}: indices choose single elements along {where}; a kernel reads rows of them: give the "
            "tensor a last axis along which all elements are read"
        )
    assert isinstance(indices, str), "an input is a value"
    term = _source(reader, node, 0, chosen=(atoms[0], reader.pool[indices].label[0]))
    if reader.pool.spans(term) != {Role.ROW, Role.COLUMN}:
        raise LoweringError(
            f"node {node.name}: what indices choose along {where} is the same along the rows or columns of the "
            f"kernel; {remedies.computed_before([node.name])}"
        )
    return term


def _dequantized(reader: _Reader, node: Node) -> Term:
    """(q - zero) * scale."""
    make, axes = partial(reader.pool.apply, node.name), reader.axes
    if f"{node.name}:0" not in reader.axes.paths:
        raise LoweringError(
            f"node {node.name}: {node.inputs[0]}, which it dequantizes, is computed; "
            f"{remedies.computed_before([str(node.inputs[0])])}"
        )
    zero = _term(reader, node, 2) if len(node.inputs) == _WITH_ZERO else None
    four_bits = axes.graph.type_of(node.tensors[0]).dtype is DType.I4
    if four_bits and isinstance(zero, int) and 0 <= zero <= _MOST_ZERO:
        number, zero = _source(reader, node, 0, zero=zero), None
    else:
        number = _source(reader, node, 0, zero=None if zero is None else 0)
    if zero is not None:
        number = make("sub", number, zero)
    return make("mul", number, _term(reader, node, 1))


def _term(reader: _Reader, node: Node, operand: int) -> Term:
    name = node.inputs[operand]
    if f"{node.name}:{operand}" in reader.axes.paths:
        return _source(reader, node, operand)
    return reader.values[name] if isinstance(name, str) else name


def _operand(reader: _Reader, node: Node, operand: int) -> RawView:
    """The input that a product's operand is: as it is seen, or that whose pages a table chooses. Tables that are read
    in one way are one.
    """
    axes, gather = reader.axes, gathered(reader.axes.graph, node.tensors[operand])
    if gather is None:
        return axes.raw_view(f"{node.name}:{operand}")
    use = f"{gather.name}:1"
    table = axes.raw_view(use)
    use = next((known for known, raw in reader.raw.items() if raw == table), use)
    reader.raw[use] = table
    return paged_operand(axes, gather, use)


def _product(reader: _Reader, node: Node) -> Term:
    """A product: one that is summed over the stream reads a value, one that feeds it reads tensors alone."""
    summed, exchanged = node.name in reader.axes.sums, reader.axes.exchanged
    args = [_term(reader, node, int(exchanged))] if summed else []
    if reader.axes.kind is Kind.FACTORED:
        args.append(_term(reader, node, 1))
        return reader.pool.make("contract", tuple(args), DType.F32, node.name, (node.name, 0))
    for operand in range(summed, 2):
        reader.raw[f"{node.name}:{operand}"] = _operand(reader, node, operand - exchanged)
    if summed and reader.pool.spans(args[0]) != K_BLOCK:
        raise LoweringError(f"node {node.name}: its left operand is the same along the rows or the stream")
    return reader.pool.make(
        "contract" if summed else "product", tuple(args), DType.F32, node.name, (node.name, 0)
    )


def _iota(reader: _Reader, node: Node) -> Term:
    """The index along a dimension, put together from those along its atoms.

    Along an axis of one element it is zero, unless the kernel has that axis: there may be more at run time.
    """
    index: Term = 0
    dim, plain = node.attr("axis", int), reader.axes.kind.plain
    for atom in _counted(reader, node):
        role, extent = reader.axes.roles.get(atom), reader.axes.extents[atom]
        if extent == 1 and role not in _KERNEL_AXES and not plain:
            continue
        if role in (None, Role.INNER):
            where = "a product" if plain else f"the kernel (axis {dim})"
            raise LoweringError(f"node {node.name}: the iota counts along no axis of {where}")
        here = reader.pool.make(f"iota_{role}", (), DType.I32, node.name, atom, _KERNEL_AXES & {role})
        if index != 0:
            outer = reader.pool.make("mul", (index, extent), DType.I32, node.name)
            here = reader.pool.make("add", (outer, here), DType.I32, node.name)
        index = here
    return index


def _counted(reader: _Reader, node: Node) -> tuple[Dim, ...]:
    """The axes that an index counts along, outer ones first; of the axes that are the streamed one the innermost."""
    atoms = reader.axes.atoms(node.name, node.attr("axis", int))
    if reader.axes.kind is not Kind.CHAIN or not {*atoms} & {*(stream := reader.axes.atoms_of(Role.STREAM))}:
        return atoms
    _check_whole(reader, node, atoms, "counts")
    return tuple(atom for atom in atoms if atom not in stream[:-1])


def _check_whole(reader: _Reader, node: Node, atoms: tuple[Dim, ...], what: str) -> None:
    """Refuse what goes along a part of the axes that a reshape makes the streamed one."""
    stream = reader.axes.atoms_of(Role.STREAM)
    if tuple(atom for atom in atoms if atom in stream) != stream:
        raise LoweringError(
            f"node {node.name}: it {what} along a part of the streamed axis, of places in a table or in a page; "
            "merge both by a reshape before"
        )


def _reduced_roles(reader: _Reader, node: Node) -> set[Role | None]:
    """The roles of the axes that a node reduces."""
    return set(map(reader.axes.roles.get, reader.axes.atoms(*reader.axes.reduced(node)))) - {None}


def _reduced_extent(reader: _Reader, node: Node) -> int | None:
    """The extent of the axis that a node reduces, if it is the streamed one; None for one of extent one."""
    use, dim = reader.axes.reduced(node)
    roles = _reduced_roles(reader, node)
    if roles == {reader.pool.along}:
        if reader.axes.kind is Kind.CHAIN:
            _check_whole(reader, node, reader.axes.atoms(use, dim), "reduces")
        return reader.axes.shapes[use][dim]
    if reader.axes.shapes[use][dim] == 1:
        return None
    what = f"a {'/'.join(sorted(str(r) for r in roles))} axis" if roles else "no axis of the products"
    kind = "streamed" if reader.pool.along is Role.STREAM else str(reader.pool.along)
    raise LoweringError(
        f"node {node.name}: {node.op} along axis {dim} of {reader.axes.title(use)}, which is {what}; "
        f"only the {kind} axis is reduced in a kernel"
    )


def _varying(reader: _Reader, node: Node) -> tuple[Term, int]:
    """The operand of a node that reduces and varies along its axis, and the extent of the axis."""
    x, extent = _term(reader, node, 0), _reduced_extent(reader, node)
    if extent is None or not reader.pool.streams(x):
        raise LoweringError(
            f"node {node.name}: {node.op} of what is the same along its axis; compute it before, and make it an input"
        )
    return x, extent


def _reduction(reader: _Reader, node: Node) -> Term:
    if reader.axes.kind is Kind.ROWS and _reduced_roles(reader, node) == {Role.ROW}:
        return _over_rows(reader, node)
    pool, x, extent = reader.pool, _term(reader, node, 0), _reduced_extent(reader, node)
    op = node.op.removeprefix("reduce_")
    if extent is None:
        return x
    if node.type.dtype is DType.I32:
        raise LoweringError(f"node {node.name}: {node.op} of i32 is not lowered; cast to f32 first")
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


def _over_rows(reader: _Reader, node: Node) -> Term:
    """A reduction over all rows of the kernel: one value a column."""
    make, x = partial(reader.pool.apply, node.name), _term(reader, node, 0)
    check_carried(node, reader.pool.spans(x))
    if node.op == "reduce_min":
        return make("neg", make(CARRIED[node.op], make("neg", x)))
    return make(CARRIED[node.op], x)


def _mean(reader: _Reader, node: Node, x: Term, extent: int) -> Term:
    """The sum of a value along the reduced axis, divided by the length of the axis."""
    make = partial(reader.pool.apply, node.name)
    return make("div", make("reduce_sum", x), _length(reader.pool, node, extent))


def _length(pool: Pool, node: Node, extent: int) -> Term:
    """Length of the reduced axis: a number for whole rows, which a kernel knows; an extent for a streamed axis."""
    if pool.along is not Role.STREAM:
        return float(extent)
    return pool.apply(node.name, "round_f32", pool.make("extent_stream", (), DType.I32, node.name))


def _softmax(reader: _Reader, node: Node) -> Term:
    """exp(x - max) over its sum; a sum of zero, which a row of -inf has, gives zeros."""
    make = partial(reader.pool.apply, node.name)
    x, _ = _varying(reader, node)
    peak = make("reduce_max", x)
    if reader.pool.along is not Role.STREAM:  # `online` makes running maxima safe; -inf - -inf is nan
        peak = make("where", make("equal", peak, -math.inf), 0.0, peak)
    weights = make("exp", make("sub", x, peak))
    total = make("reduce_sum", weights)
    return make("div", weights, make("where", make("equal", total, 0.0), 1.0, total))


def _logsumexp(reader: _Reader, node: Node) -> Term:
    """max + log(sum of exp(x - max)): -inf in a row that is all -inf, and inf where one element is."""
    make = partial(reader.pool.apply, node.name)
    if _reduced_extent(reader, node) is None:
        return _term(reader, node, 0)
    x, _ = _varying(reader, node)
    largest = make("reduce_max", x)
    subtracted = make("where", make("equal", largest, -math.inf), 0.0, largest)
    total = make("reduce_sum", make("exp", make("sub", x, subtracted)))
    logarithm = make("add", make("log", total), subtracted)
    return make("where", make("equal", largest, math.inf), math.inf, logarithm)


def _of_places(reader: _Reader, node: Node) -> Term:
    """What a node makes of the places in its rows."""
    x, extent = _varying(reader, node)
    if node.op == "reduce_argmax" and extent > MOST_PLACES:
        raise LoweringError(f"node {node.name}: reduce_argmax of {extent} elements; at most {MOST_PLACES}")
    make = arg_max if node.op == "reduce_argmax" else running_sum
    return make(reader.pool, reader.axes.kind, node, x)


def _norm(reader: _Reader, node: Node) -> Term:
    """x over the root of its mean square, for layer_norm after its mean; times the weight, plus the bias."""
    make = partial(reader.pool.apply, node.name)
    x, extent = _varying(reader, node)
    vectors = [_term(reader, node, operand) for operand in range(1, len(node.inputs))]
    if node.op == "layer_norm":
        x = make("sub", x, _mean(reader, node, x, extent))
    square = _mean(reader, node, make("mul", x, x), extent)
    result = make("mul", x, make("rsqrt", make("add", square, node.attr("eps", float))))
    for primitive, vector in zip(("mul", "add"), vectors, strict=False):
        result = make(primitive, result, vector)
    return result


def _quantized(reader: _Reader, node: Node) -> Term:
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


def _visit(reader: _Reader, node: Node) -> Term:
    """The value of a node."""
    match node.op:
        case "matmul" | "grouped_matmul":
            return _product(reader, node)
        case "iota":
            return _iota(reader, node)
        case "gather":
            return _gather(reader, node)
        case "logsumexp":
            return _logsumexp(reader, node)
        case "dequantize":
            return _dequantized(reader, node)
        case "softmax":
            return _softmax(reader, node)
        case "reduce_argmax" | "cumsum":
            return _of_places(reader, node)
        case op if op in NORMS:
            return _norm(reader, node)
        case op if op in QUANTIZING:
            return _quantized(reader, node)
        case op if op in VIEWS:
            return _term(reader, node, 0)
        case op if OPS[op].cost is CostClass.REDUCTION:
            return _reduction(reader, node)
    if is_pointwise(node):
        args = tuple(_term(reader, node, operand) for operand in range(len(node.inputs)))
        return pointwise(reader.pool, node, args, approximate=node.name in reader.narrow)
    raise LoweringError(f"node {node.name}: {node.op} is not lowered beside a chain of products")


def _piece(reader: _Reader, node: Node, piece: int) -> Term:
    """The value of an elementwise node for one of the tensors that lie one behind the other along an axis of it: what
    else it reads along that axis is a slice there.
    """
    if node.op == "transpose":  # axes stand for its dimensions, whatever their order
        return reader.joined[node.tensors[0]][piece]
    if not is_pointwise(node) or node.op == "iota":
        raise LoweringError(
            f"node {node.name}: {node.op} along an axis along which tensors are joined is not lowered; apply it to "
            "each of them, and join the results"
        )

    def term(operand: int) -> Term:
        name = node.inputs[operand]
        if f"{node.name}:{operand}" in reader.axes.paths:
            return _source(reader, node, operand, piece)
        return (
            reader.joined[name][piece]
            if isinstance(name, str) and name in reader.joined
            else _term(reader, node, operand)
        )

    args = tuple(map(term, range(len(node.inputs))))
    return pointwise(reader.pool, node, args, approximate=node.name in reader.narrow)


def translate(axes: Axes) -> Draft:
    """The nodes of a graph as values. Raises LoweringError, naming the node, for what has no place in a kernel."""
    as_written, along = axes.kind.as_written, axes.kind.along
    longest = max(axes.extent(role) for role in {*axes.roles.values()} & {Role.ROW, along})
    rules: Mapping[tuple[str, DType], Rule] = {} if as_written else SHORT_RULES if longest <= SHORT else RULES
    reader = _Reader(axes, Pool(rules, along=along), narrow_nodes(axes.graph, exponents=as_written))
    if offsets := offsets_use(axes):
        reader.raw[offsets] = axes.raw_view(offsets)
    pages = paged(axes.graph) if axes.kind is Kind.CHAIN else ()
    for node in (node for node in axes.graph.nodes if node.name not in pages):
        if node.op in VIEWS and input_path(axes.graph, node.name):
            if axes.kind is Kind.ELEMENTWISE and is_copied(axes.graph, node):
                reader.values[node.name] = _source(reader, node, 0)
            continue
        if node.op == "concat":
            reader.joined[node.name] = tuple(
                part
                for operand, name in enumerate(node.inputs)
                for part in reader.joined.get(str(name)) or (_term(reader, node, operand),)
            )
        elif pieces := axes.pieces(node.name):
            reader.joined[node.name] = tuple(_piece(reader, node, piece) for piece in range(pieces))
        else:
            reader.values[node.name] = _visit(reader, node)
    for name in axes.graph.outputs:
        if name not in reader.joined and name not in reader.values:
            raise LoweringError(f"output {name} is a view of an input: {remedies.VIEW_OF_INPUT}")
    stored = [
        (term, (name, piece))
        for name in axes.graph.outputs
        for piece, term in enumerate(reader.joined.get(name) or (reader.values[name],))
    ]
    terms, pieces_of = (tuple(part) for part in zip(*stored, strict=True))
    return Draft(axes, reader.raw, reader.pool, terms, pieces_of)
