"""One elementwise node of the graph as scalar primitives, for the loop and for the epilogue alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from wsopt.errors import LoweringError
from wsopt.frontend.expand import Term, expand
from wsopt.graph.meaning import Array
from wsopt.graph.ops import OPS
from wsopt.graph.types import DType, Graph, Node
from wsopt.primitives import Family, comparison_of, family_of
from wsopt.tensors.statements import Scalar

OPERANDS = (DType.F16, DType.BF16, DType.F8E4M3, DType.F8E5M2)
"""Element types of the tensor cores' operands."""

OUTPUTS = (DType.F32, DType.F16, DType.BF16, DType.F8E4M3, DType.F8E5M2)
"""Element types that a kernel stores."""

SOURCES = (*OUTPUTS, DType.I32)
"""Element types that elementwise operations read."""

_NARROW = (DType.BF16, DType.F8E4M3, DType.F8E5M2)
_WHOLE_NUMBERS = (Family.ARITHMETIC, Family.COMPARISON, Family.CHOICE)
"""Families of primitives that compute with i32."""

_EXPONENTIALS = frozenset({"softmax", "exp", "exp2"})
_NUMBERS: Mapping[type, type] = MappingProxyType({bool: np.bool_, int: np.int32, float: np.float32})

TypedEmit = Callable[[str, tuple[Term, ...], DType], Term]
"""Appends a primitive with its operands and result type; returns the result."""


def narrow_nodes(graph: Graph, live: tuple[Node, ...], *, exponents: bool = True) -> frozenset[str]:
    """The nodes of which every use ends in a type of at most eight significant bits.

    Without `exponents`, what an exponential reads is not narrow: a relative error there is an absolute one
    of the exponent, which grows with the value.
    """
    wide = set(graph.outputs)
    for node in reversed(live):
        if not exponents and node.op in _EXPONENTIALS:
            wide.update(node.tensors)
        if node.op == "cast" and node.type.dtype in _NARROW:
            wide.discard(node.name)
        elif node.name in wide or node.type.dtype is DType.BOOL:
            wide.update((node.name, *node.tensors))
    return frozenset(node.name for node in live if node.name not in wide)


def _fold(node: Node, numbers: list[Scalar]) -> Scalar:
    """The value of a node whose operands are all numbers."""
    arrays: tuple[Array, ...] = tuple(np.asarray(number, _NUMBERS[type(number)]) for number in numbers)
    folded: Scalar = OPS[node.op].evaluate(arrays, dict(node.attrs)).item()
    return folded


def pointwise(node: Node, args: tuple[Term, ...], emit: TypedEmit, *, approximate: bool) -> Term:
    """The result of an elementwise node or a cast, written through `emit`; numbers are folded.

    Raises LoweringError for what has no expansion into primitives.
    """
    dtype = node.type.dtype
    numbers = [a for a in args if not isinstance(a, str)]
    if len(numbers) == len(args):
        return _fold(node, numbers)
    if any(isinstance(number, bool) for number in numbers):
        raise LoweringError(
            f"node {node.name}: a condition of {node.op} is the same everywhere; leave it out"
        )
    if node.op == "cast":
        if dtype not in OUTPUTS:
            allowed = ", ".join(d.value for d in OUTPUTS)
            instead = "; compare with 0 by not_equal instead" if dtype is DType.BOOL else ""
            raise LoweringError(
                f"node {node.name}: a cast to {dtype.value} is not lowered; to {allowed} it is{instead}"
            )
        return emit(f"round_{dtype.value}", args, dtype)
    if dtype is DType.I32 and family_of(node.op) not in _WHOLE_NUMBERS:
        raise LoweringError(f"node {node.name}: {node.op} on i32 is not lowered; cast to f32 first")
    result = expand(
        node.op,
        args,
        lambda primitive, terms: emit(primitive, terms, DType.BOOL if comparison_of(primitive) else dtype),
        approximate=approximate,
        flavour=node.attr("approximate", str) if node.op == "gelu" else "",
    )
    if result is None:
        remedy = "; the exponent is a number, else write exp2(e * log2(x))" if node.op == "pow" else ""
        raise LoweringError(f"node {node.name}: {node.op} of these operands is not lowered{remedy}")
    return result
