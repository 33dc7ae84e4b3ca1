"""The graph's nodes as values: every operation as primitives on tensors, products and reductions.

Nothing is rewritten for one pass over the loop: a maximum is still of the whole axis, and a sum is divided by where
the graph says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.frontend.algebra import RULES, SHORT, SHORT_RULES
from wsopt.frontend.axes import Axes, Dim
from wsopt.frontend.expand import narrow_nodes, pointwise
from wsopt.frontend.kinds import NORMS, QUANTIZING, VIEWS, Kind, input_path, is_copied, is_pointwise, paged
from wsopt.frontend.reading import (
    KERNEL_AXES,
    Reader,
    check_whole,
    dequantized,
    gather,
    operand_view,
    source,
    term_of,
)
from wsopt.frontend.reducing import logsumexp, norm, of_places, quantized, reduction, softmax
from wsopt.frontend.segments import offsets_use
from wsopt.frontend.values import Draft, Pool, Rule, Term, Value, reachable
from wsopt.graph.ops import OPS, CostClass
from wsopt.graph.types import DType, Node
from wsopt.tensors.views import K_BLOCK, Role

_ARITHMETIC = ("add", "sub", "mul", "div", "maximum", "minimum")
"""Primitives that give what is not a number wherever an operand is none."""


def _product(reader: Reader, node: Node) -> Term:
    """A product: one that is summed over the stream reads a value, one that feeds it reads tensors alone."""
    summed, exchanged = node.name in reader.axes.sums, reader.axes.exchanged
    args = [term_of(reader, node, int(exchanged))] if summed else []
    if reader.axes.kind is Kind.FACTORED:
        args.append(term_of(reader, node, 1))
        return reader.pool.make("contract", tuple(args), DType.F32, node.name, (node.name, 0))
    for operand in range(summed, 2):
        reader.raw[f"{node.name}:{operand}"] = operand_view(reader, node, operand - exchanged)
    if summed and reader.pool.spans(args[0]) != K_BLOCK:
        left = node.tensors[int(exchanged)]
        remedy = remedies.computed_before([left])
        raise LoweringError(
            f"node {node.name}: its left operand {left} is the same along the rows or the stream; {remedy}"
        )
    return reader.pool.make(
        "contract" if summed else "product", tuple(args), DType.F32, node.name, (node.name, 0)
    )


def _iota(reader: Reader, node: Node) -> Term:
    """The index along a dimension, put together from those along its atoms.

    Along an axis of one element it is zero, unless the kernel has that axis: there may be more at run time.
    """
    index: Term = 0
    dim, plain = node.attr("axis", int), reader.axes.kind.plain
    for atom in _counted(reader, node):
        role, extent = reader.axes.roles.get(atom), reader.axes.extents[atom]
        if extent == 1 and role not in KERNEL_AXES and not plain:
            continue
        if role in (None, Role.INNER):
            where = "a product" if plain else f"the kernel (axis {dim})"
            raise LoweringError(f"node {node.name}: the iota counts along no axis of {where}")
        here = reader.pool.make(f"iota_{role}", (), DType.I32, node.name, atom, KERNEL_AXES & {role})
        if index != 0:
            outer = reader.pool.make("mul", (index, extent), DType.I32, node.name)
            here = reader.pool.make("add", (outer, here), DType.I32, node.name)
        index = here
    return index


def _counted(reader: Reader, node: Node) -> tuple[Dim, ...]:
    """The axes that an index counts along, outer ones first; of the axes that are the streamed one the innermost."""
    atoms = reader.axes.atoms(node.name, node.attr("axis", int))
    if reader.axes.kind is not Kind.CHAIN or not {*atoms} & {*(stream := reader.axes.atoms_of(Role.STREAM))}:
        return atoms
    check_whole(reader, node, atoms, "counts")
    return tuple(atom for atom in atoms if atom not in stream[:-1])


def _visit(reader: Reader, node: Node) -> Term:
    """The value of a node."""
    match node.op:
        case "matmul" | "grouped_matmul":
            return _product(reader, node)
        case "iota":
            return _iota(reader, node)
        case "gather":
            return gather(reader, node)
        case "logsumexp":
            return logsumexp(reader, node)
        case "dequantize":
            return dequantized(reader, node)
        case "softmax":
            return softmax(reader, node)
        case "reduce_argmax" | "cumsum":
            return of_places(reader, node)
        case op if op in NORMS:
            return norm(reader, node)
        case op if op in QUANTIZING:
            return quantized(reader, node)
        case op if op in VIEWS:
            return term_of(reader, node, 0)
        case op if OPS[op].cost is CostClass.REDUCTION:
            return reduction(reader, node)
    if is_pointwise(node):
        args = tuple(term_of(reader, node, operand) for operand in range(len(node.inputs)))
        return pointwise(reader.pool, node, args, approximate=node.name in reader.narrow)
    raise LoweringError(f"node {node.name}: {node.op} is not lowered beside a chain of products")


def _piece(reader: Reader, node: Node, piece: int) -> Term:
    """The value of an elementwise node for one of the tensors that lie one behind the other along an axis of it: what
    else it reads along that axis is a slice there.
    """
    if node.op in ("transpose", "reshape"):  # axes stand for its dimensions, whatever they are
        return reader.joined[node.tensors[0]][piece]
    if not is_pointwise(node) or node.op == "iota":
        raise LoweringError(
            f"node {node.name}: {node.op} along an axis along which tensors are joined is not lowered; apply it to "
            "each of them, and join the results"
        )

    def term(operand: int) -> Term:
        name = node.inputs[operand]
        if f"{node.name}:{operand}" in reader.axes.paths:
            return source(reader, node, operand, piece)
        return (
            reader.joined[name][piece]
            if isinstance(name, str) and name in reader.joined
            else term_of(reader, node, operand)
        )

    args = tuple(map(term, range(len(node.inputs))))
    return pointwise(reader.pool, node, args, approximate=node.name in reader.narrow)


def translate(axes: Axes) -> Draft:
    """The nodes of a graph as values. Raises LoweringError, naming the node, for what has no place in a kernel."""
    as_written, along = axes.kind.as_written, axes.kind.along
    longest = max(axes.extent(role) for role in {*axes.roles.values()} & {Role.ROW, along})
    rules: Mapping[tuple[str, DType], Rule] = {} if as_written else SHORT_RULES if longest <= SHORT else RULES
    reader = Reader(axes, Pool(rules, along=along), narrow_nodes(axes.graph, exponents=as_written))
    if offsets := offsets_use(axes):
        reader.raw[offsets] = axes.raw_view(offsets)
    pages = paged(axes.graph) if axes.kind is Kind.CHAIN else ()
    for node in axes.graph.nodes:
        if node.name not in pages:
            _read_node(reader, node)
    for name in axes.graph.outputs:
        if name not in reader.joined and name not in reader.values:
            raise LoweringError(f"output {name} is a view of an input: {remedies.VIEW_OF_INPUT}")
    stored = [
        (term, (name, piece))
        for name in axes.graph.outputs
        for piece, term in enumerate(reader.joined.get(name) or (reader.values[name],))
    ]
    terms, pieces_of = (tuple(part) for part in zip(*stored, strict=True))
    _check_products_count(reader.pool, terms)
    return Draft(axes, reader.raw, reader.pool, terms, pieces_of)


def _check_products_count(pool: Pool, outputs: tuple[Term, ...]) -> None:
    """Refuse products on which no output depends, for what is computed of them is the same whatever they are: the
    compiler leaves them out, and a kernel without its products is none that was asked for.
    """
    found = {term for term in outputs if isinstance(term, str)}
    for name, value in reversed(pool.values.items()):
        if name in found and not _is_fixed(value):
            found.update(arg for arg in value.args if isinstance(arg, str))
    unread = reachable(pool, outputs) - found
    for value in (value for name, value in pool.values.items() if name in unread):
        if value.primitive in ("product", "contract"):
            raise LoweringError(f"node {value.node}: no output depends on its result; {remedies.NO_PRODUCT}")


def _is_fixed(value: Value) -> bool:
    """Whether a value is the same whatever is computed before it: arithmetic with what is not a number, a choice
    between equal numbers.
    """
    if value.primitive == "where":
        return value.args[1] == value.args[2] and not isinstance(value.args[1], str)
    return value.primitive in _ARITHMETIC and any(isinstance(arg, float) and isnan(arg) for arg in value.args)


def _read_node(reader: Reader, node: Node) -> None:
    """Note a node's value, or one for each of the tensors one behind the other that it is; views of inputs have none,
    for what reads them reads the input.
    """
    axes = reader.axes
    if node.op in VIEWS and input_path(axes.graph, node.name):
        if axes.kind is Kind.ELEMENTWISE and is_copied(axes.graph, node):
            reader.values[node.name] = source(reader, node, 0)
    elif node.op == "concat":
        reader.joined[node.name] = tuple(
            part
            for operand, name in enumerate(node.inputs)
            for part in reader.joined.get(str(name)) or (term_of(reader, node, operand),)
        )
    elif pieces := axes.pieces(node.name):
        reader.joined[node.name] = tuple(_piece(reader, node, piece) for piece in range(pieces))
    else:
        reader.values[node.name] = _visit(reader, node)
