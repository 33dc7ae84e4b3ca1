"""Nodes that take the place of others while a graph is read, with types and default attributes from the op table."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from wsopt.graph.ops import OPS
from wsopt.graph.types import AttrValue, DType, Node, Operand, TensorType

_SCALARS = {int: TensorType((), DType.I32), float: TensorType((), DType.F32)}


def derived(
    name: str,
    op: str,
    inputs: tuple[Operand, ...],
    type_of: Callable[[str], TensorType],
    given: Mapping[str, AttrValue] | None = None,
) -> Node:
    """A node with these operands and those of its attributes that are `given`; the others have their defaults."""
    types = tuple(type_of(one) if isinstance(one, str) else _SCALARS[type(one)] for one in inputs)
    attrs = {attr.name: (given or {}).get(attr.name, attr.default) for attr in OPS[op].attrs}
    found, full = OPS[op].infer(types, attrs)
    return Node(name, op, inputs, tuple(sorted(full.items())), found)
