"""Leaves out roundings between elementwise operations of one piece, as Inductor does: its values are f32 in between.

FX says a type for every value. Where a value stays in the registers of one kernel, rounding it to 16 bits costs
instructions and accuracy. Results and operands of products, and what leaves the piece, are rounded as FX says.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from wsopt.frontend.kinds import is_pointwise, reduces_rows
from wsopt.graph.types import DType, Node

_SHORT = (DType.F16, DType.BF16)


def without_roundings(nodes: Sequence[Node], kept: Collection[str]) -> list[Node]:
    """The nodes without roundings that only elementwise operations and reductions read; those `kept` stay."""
    known = {node.name: node for node in nodes}
    superfluous = {node.name for node in nodes if node.name not in kept and _rounds(node, known)}
    for node in nodes:
        if not (is_pointwise(node) or reduces_rows(node)):
            superfluous.difference_update(node.tensors)
    instead: dict[str, str] = {}
    found = []
    for node in nodes:
        source = instead.get(node.tensors[0], node.tensors[0]) if node.tensors else ""
        if node.name in superfluous or (_widens(node, known.get(source)) and node.name not in kept):
            instead[node.name] = source
        elif instead and any(name in instead for name in node.tensors):
            found.append(replace(node, inputs=tuple(instead.get(str(x), x) for x in node.inputs)))
        else:
            found.append(node)
    return found


def _rounds(node: Node, known: dict[str, Node]) -> bool:
    """Whether a node rounds a result of arithmetic, that of a product aside, to 16 bits."""
    source = known.get(node.tensors[0]) if node.op == "cast" else None
    return (
        source is not None
        and node.type.dtype in _SHORT
        and source.type.dtype is DType.F32
        and (is_pointwise(source) or reduces_rows(source))
    )


def _widens(node: Node, source: Node | None) -> bool:
    """Whether a node casts what is f32 already."""
    return (
        node.op == "cast"
        and node.type.dtype is DType.F32
        and source is not None
        and source.type.dtype is DType.F32
    )
