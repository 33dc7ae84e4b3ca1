"""What the nodes of a graph read: inputs as they see them, rows that indices choose, values of other nodes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.frontend.axes import Axes, Dim, RawView
from wsopt.frontend.expand import SOURCES
from wsopt.frontend.kinds import gathered, is_matmul
from wsopt.frontend.pages import paged_operand
from wsopt.frontend.values import Pool, Term
from wsopt.graph.lengths import compared_extents
from wsopt.graph.types import DType, Node
from wsopt.tensors.views import FULL, Role

_WITH_ZERO = 3
"""Inputs of a `dequantize` that has zeros."""
_MOST_ZERO = 15
"""A zero up to which differences of four bits are read as they are: another is subtracted."""
KERNEL_AXES = frozenset({Role.ROW, Role.COLUMN, Role.STREAM})
"""Axes that a kernel goes along: an index may count along them, and elements of an input lie at places of them."""


@dataclass(slots=True)
class Reader:
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


def source(
    reader: Reader,
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
    view = replace(axes.raw_view(use, piece), chosen=chosen)
    use += f".{piece}" if piece else ""
    if node.op == "dequantize" and not operand and view.dtype is DType.I4:
        view = replace(view, zero=zero)
    elif view.dtype not in SOURCES:
        raise LoweringError(
            f"node {node.name}: input {view.tensor} is {view.dtype.value}; not lowered there; "
            + remedies.SOURCE_TYPE.format(", ".join(dtype.value for dtype in SOURCES))
        )
    _check_axes(axes, node, view)
    kept = _kept_axes(axes, view.tensor)
    view = view.along(lambda dim: dim.extent > 1 or dim.axis in kept)
    use = next((known for known, raw in reader.raw.items() if known in reader.read and raw == view), use)
    reader.raw[use] = view
    reader.read.add(use)
    spans = KERNEL_AXES & {axes.roles.get(dim.axis) for dim in view.dims}
    if any(dim.padded for dim in view.dims) and not (is_matmul(node) or spans >= FULL):
        raise LoweringError(
            f"node {node.name}: {view.tensor} is read by address, and not with zeros around it; "
            f"{remedies.computed_before([str(node.inputs[operand])])}"
        )
    dtype = DType.F32 if view.dtype.is_float else view.dtype
    values = reader.pool.values.items()
    args = (next(name for name, one in values if one.label[0] == chosen[1]),) if chosen else ()
    return reader.pool.make("source", args, dtype, node.name, (use, 0), spans)


def _check_axes(axes: Axes, node: Node, view: RawView) -> None:
    """Refuse an input that varies along what is no axis of the kernel, and is not chosen by indices."""
    for dim in view.dims:
        is_chosen = view.chosen is not None and dim.axis == view.chosen[0]
        if dim.extent > 1 and axes.roles.get(dim.axis) in (None, Role.INNER) and not is_chosen:
            raise LoweringError(
                f"node {node.name}: axis {dim.origin[0]} of {view.tensor} is no axis of "
                f"{'the products beside it' if axes.kind.plain else 'what is computed with it'}"
            )


def _kept_axes(axes: Axes, tensor: str) -> set[Dim]:
    """The axes along which an input's dimensions of one element are kept, because they may have more at run time; of
    lengths that are compared with indices none.
    """
    if tensor in compared_extents(axes.graph):
        return set()
    kept = {axis for axis, role in axes.roles.items() if role in KERNEL_AXES}
    return kept.union(axes.singles if axes.kind.plain else ())


def gather(reader: Reader, node: Node) -> Term:
    """Rows of an input at the places that an input of indices chooses: a source of the kernel's own."""
    axes, along = reader.axes, node.attr("axis", int)
    table, where = f"{node.name}:0", f"axis {along} of {node.tensors[0]}"
    indices = source(reader, node, 1)
    end = axes.instance(table, len(axes.paths[table]) - 1)
    atoms = axes.atoms(table, along)
    own = [dim for dim in axes.raw_view(table).dims if dim.axis in atoms]
    if len(atoms) > 1 or len(own) != 1 or own[0].cutout or own[0].axis not in axes.all_atoms(end):
        raise LoweringError(
            f"node {node.name}: a view takes {where} apart, or a part of it, along which indices choose; "
            f"{remedies.computed_before([node.tensors[0]])}"
        )
    dims = axes.raw_view(table).dims
    across = Role.COLUMN in reader.pool.spans(indices)
    if across and dims[-1].axis not in atoms:
        raise LoweringError(
            f"node {node.name}: rows that indices choose along {where} lie across the rows of the kernel, as where "
            f"they are added up; {remedies.computed_before([node.name])}"
        )
    if across or not dims[1:]:
        raise LoweringError(
            f"node {node.name}: indices choose single elements along {where}; a kernel reads rows of them: give the "
            "tensor a last axis along which all elements are read"
        )
    assert isinstance(indices, str), "an input is a value"
    term = source(reader, node, 0, chosen=(atoms[0], reader.pool[indices].label[0]))
    if reader.pool.spans(term) != {Role.ROW, Role.COLUMN}:
        raise LoweringError(
            f"node {node.name}: what indices choose along {where} is the same along the rows or columns of the "
            f"kernel; {remedies.computed_before([node.name])}"
        )
    return term


def dequantized(reader: Reader, node: Node) -> Term:
    """(q - zero) * scale."""
    make, axes = partial(reader.pool.apply, node.name), reader.axes
    if f"{node.name}:0" not in reader.axes.paths:
        raise LoweringError(
            f"node {node.name}: {node.inputs[0]}, which it dequantizes, is computed; "
            f"{remedies.computed_before([str(node.inputs[0])])}"
        )
    zero = term_of(reader, node, 2) if len(node.inputs) == _WITH_ZERO else None
    four_bits = axes.graph.type_of(node.tensors[0]).dtype is DType.I4
    if four_bits and isinstance(zero, int) and 0 <= zero <= _MOST_ZERO:
        number, zero = source(reader, node, 0, zero=zero), None
    else:
        number = source(reader, node, 0, zero=None if zero is None else 0)
    if zero is not None:
        number = make("sub", number, zero)
    return make("mul", number, term_of(reader, node, 1))


def term_of(reader: Reader, node: Node, operand: int) -> Term:
    """An operand of a node: an input as it is read there, the value of another node, or a number."""
    name = node.inputs[operand]
    if f"{node.name}:{operand}" in reader.axes.paths:
        return source(reader, node, operand)
    return reader.values[name] if isinstance(name, str) else name


def operand_view(reader: Reader, node: Node, operand: int) -> RawView:
    """The input that a product's operand is: as it is seen, or that whose pages a table chooses. Tables that are read
    in one way are one.
    """
    axes, gather = reader.axes, gathered(reader.axes.graph, node.tensors[operand])
    if gather is None:
        raw = axes.raw_view(f"{node.name}:{operand}")
        if raw.offset:
            raise LoweringError(
                f"node {node.name}: of tensor {raw.tensor} one element of dimension {raw.single[0][0]} is read, and "
                f"TMA begins at a tensor's first; {remedies.SLICE_COPY}"
            )
        return raw
    use = f"{gather.name}:1"
    table = axes.raw_view(use)
    use = next((known for known, raw in reader.raw.items() if raw == table), use)
    reader.raw[use] = table
    return paged_operand(axes, gather, use)


def check_whole(reader: Reader, node: Node, atoms: tuple[Dim, ...], what: str) -> None:
    """Refuse what goes along a part of the axes that a reshape makes the streamed one."""
    stream = reader.axes.atoms_of(Role.STREAM)
    if tuple(atom for atom in atoms if atom in stream) != stream:
        raise LoweringError(
            f"node {node.name}: it {what} along a part of the streamed axis, of places in a table or in a page; "
            "merge both by a reshape before"
        )
