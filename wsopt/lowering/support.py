"""Finds the operations that some kernel takes, by asking the front end for small graphs of each.

Nothing here is a list of names: an operation that the front end learns is found by itself.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from wsopt.errors import InputError, LoweringError
from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.op_spec import AttrKind, OpSpec
from wsopt.graph.ops import OPS
from wsopt.graph.parse import parse_graph
from wsopt.graph.types import DType, Graph
from wsopt.lowering.structures import structures
from wsopt.machine.types import Machine

_ROWS, _COLUMNS, _GROUP = 128, 256, 128
_REQUIRED: Mapping[AttrKind, Any] = MappingProxyType(
    {
        AttrKind.AXIS: -1,
        AttrKind.PLACE: 0,
        AttrKind.COUNT: _GROUP,
        AttrKind.DTYPE: "bf16",  # and others, see `_DTYPES`
        AttrKind.SHAPE: (_ROWS, _COLUMNS),
        AttrKind.PERM: (1, 0),
        AttrKind.COUNTS: (1, 0),
    }
)
"""What is tried for a required attribute."""

_DTYPES = ("bf16", "f8e4m3")
"""What is tried for a dtype."""

Operand = Symbol | float
Place = Callable[[GraphBuilder, OpSpec], Iterator[Symbol]]


def is_lowered(op: str, machine: Machine) -> bool:
    """Whether some small graph with this operation can be compiled for the machine."""
    return any(_compiles(graph, machine) for place in _PLACES for graph in _graphs(place, OPS[op]))


def _compiles(graph: Graph, machine: Machine) -> bool:
    try:
        return any(True for _ in structures(find_region(graph), machine))
    except LoweringError:
        return False


def _graphs(place: Place, spec: OpSpec) -> Iterator[Graph]:
    """Graphs with the operation at this place, one for each choice of operands and attributes that fits."""
    g = GraphBuilder("probe")
    for found in place(g, spec):
        yield parse_graph({**g.to_json(), "outputs": [found.name]}, "probe")


def _results(g: GraphBuilder, spec: OpSpec, pool: list[Operand]) -> Iterator[Symbol]:
    """The operation on every choice of operands out of `pool` that it takes."""
    known = {attr.name: _REQUIRED[attr.kind] for attr in spec.attrs if attr.required or attr.positional}
    if spec.attr("keepdims") is not None:
        known["keepdims"] = True
    least, most = spec.arity
    choices = [known | {"dtype": dtype} for dtype in _DTYPES] if "dtype" in known else [known]
    for count in range(least, min(most, least + 1) + 1):
        for operands, attrs in itertools.product(itertools.product(pool, repeat=count), choices):
            with contextlib.suppress(InputError):  # it does not take these
                yield g.apply(spec.name, operands, attrs)


def _beside(g: GraphBuilder, result: Symbol, tensor: Symbol) -> Symbol:
    """A floating-point tensor that needs both the result and the tensor."""
    if result.dtype is DType.BOOL:
        return g.where(result, tensor, 0.0)
    return g.add(tensor, g.cast(result, "f32"))


def _after_a_product(g: GraphBuilder, spec: OpSpec) -> Iterator[Symbol]:
    x, w = g.input("x", (_ROWS, 64), "bf16"), g.input("w", (_COLUMNS, 64), "bf16")
    product = g.matmul(x, w, transpose_b=True, name="p")
    for result in _results(g, spec, [product, g.greater(product, 0.0), 2.0]):
        if _fits(result, product):
            yield _beside(g, result, product)


def _over_rows(g: GraphBuilder, spec: OpSpec) -> Iterator[Symbol]:
    x, vector = g.input("x", (_ROWS, _COLUMNS), "bf16"), g.input("v", (_COLUMNS,), "bf16")
    packed, scale = g.input("q", (_ROWS, _COLUMNS), "i8"), g.input("s", (_ROWS, _COLUMNS // _GROUP), "bf16")
    total = g.reduce_sum(x, axis=-1, keepdims=True)
    for result in _results(g, spec, [x, vector, packed, scale]):
        if _fits(result, x):
            yield g.sub(_beside(g, result, x), total)


def _as_an_operand(g: GraphBuilder, spec: OpSpec) -> Iterator[Symbol]:
    x, flat = g.input("x", (64, _COLUMNS), "bf16"), g.input("f", (_ROWS * _COLUMNS,), "bf16")
    w, packed = g.input("w", (_COLUMNS, _ROWS), "bf16"), g.input("q", (_ROWS, _COLUMNS), "i8", constant=True)
    scale = g.input("s", (_ROWS, _COLUMNS // _GROUP), "bf16", constant=True)
    for result in _results(g, spec, [w, flat, packed, scale]):
        if result.shape in ((_ROWS, _COLUMNS), (_COLUMNS, _ROWS)):
            operand = result if result.dtype is DType.BF16 else g.cast(result, "bf16")
            yield g.matmul(x, operand, transpose_b=result.shape == (_ROWS, _COLUMNS))


def _in_a_chain(g: GraphBuilder, spec: OpSpec) -> Iterator[Symbol]:
    q, v = g.input("x", (64, _COLUMNS), "bf16"), g.input("v", (_ROWS, 64), "bf16")
    flat, w = g.input("f", (_ROWS * _COLUMNS,), "bf16"), g.input("w", (_COLUMNS, _ROWS), "bf16")
    for result in _results(g, spec, [flat, w]):
        if result.shape == (_ROWS, _COLUMNS) and result.dtype is DType.BF16:
            scores = g.matmul(q, result, transpose_b=True)
            yield g.matmul(g.cast(g.softmax(scores), "bf16"), v)


def _itself(g: GraphBuilder, spec: OpSpec) -> Iterator[Symbol]:
    x, w = g.input("x", (_ROWS, _COLUMNS), "bf16"), g.input("w", (_COLUMNS, 64), "bf16")
    yield from _results(g, spec, [x, w])


def _alone(g: GraphBuilder, spec: OpSpec) -> Iterator[Symbol]:
    x, y = (g.input(name, (_ROWS, _COLUMNS), "bf16") for name in "xy")
    for result in _results(g, spec, [x, y]):
        if result.dtype is DType.BF16:
            yield g.cast(g.mul(result, 2.0), "bf16")


def _at_indices(g: GraphBuilder, spec: OpSpec) -> Iterator[Symbol]:
    x, places = g.input("x", (_ROWS, _COLUMNS), "bf16"), g.input("i", (_ROWS,), "i32")
    for result in _results(g, spec, [x, places]):
        if result.dtype in (DType.BF16, DType.F32):
            yield g.cast(g.mul(result, 2.0), "bf16")


def _by_groups(g: GraphBuilder, spec: OpSpec) -> Iterator[Symbol]:
    x, w = g.input("x", (_ROWS, 64), "bf16"), g.input("w", (4, 64, _COLUMNS), "bf16")
    for result in _results(g, spec, [x, w, g.input("i", (4,), "i32")]):
        if result.shape == (_ROWS, _COLUMNS):
            yield g.cast(result, "bf16")


def _fits(result: Symbol, tensor: Symbol) -> bool:
    """Whether a result broadcasts to a tensor."""
    padded = (1,) * (len(tensor.shape) - len(result.shape)) + result.shape
    return all(extent in (1, whole) for extent, whole in zip(padded, tensor.shape, strict=False))


_PLACES: tuple[Place, ...] = (
    _after_a_product,
    _over_rows,
    _as_an_operand,
    _in_a_chain,
    _alone,
    _itself,
    _at_indices,
    _by_groups,
)
"""Where an operation may stand."""
