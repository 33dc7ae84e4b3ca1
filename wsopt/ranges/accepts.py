"""Whether a kernel takes a call, or why not, by its launch recipe: the checks of `bind`, at a graph's extents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from wsopt.emit.integers import Expression, Integer
from wsopt.emit.recipe import Check, Packed, Recipe
from wsopt.frontend.packing import whole_length
from wsopt.graph.types import DType, Graph, Input, row_major_strides
from wsopt.tensors.views import LINE_BITS, TMA_BITS, Packing

Layout = tuple[tuple[int, ...], tuple[int, ...]]
"""Extents and strides of a tensor."""


@dataclass(slots=True)
class _Call:
    """Tensors by name, the values that were given names, and the value of an expression of them."""

    tensors: Mapping[str, Layout]
    names: dict[str, int] = field(default_factory=dict)

    def value(self, one: Integer) -> int:
        match one:
            case int():
                return one
            case Expression("name", (str(name),)):
                return self.names[name]
            case Expression("extent", (str(tensor), int(dim))):
                return self.tensors[tensor][0][dim]
            case Expression("stride", (str(tensor), int(dim))):
                return self.tensors[tensor][1][dim]
            case Expression("address", _):
                return 0  # of memory as it is allocated: aligned to whatever is asked for
            case Expression(operator, operands):
                return _calculated(operator, [self.value(x) for x in operands if not isinstance(x, str)])

    def holds(self, check: Check) -> bool:
        """Whether a check lets the call through."""
        left, right = self.value(check.left), self.value(check.right)
        match check.relation:
            case "equal":
                return left == right
            case "at_least":
                return left >= right
            case "at_most":
                return left <= right
            case "multiple_of":
                return left % right == 0

    def worded(self, check: Check) -> str:
        """What a check says."""
        return "".join(part if isinstance(part, str) else self._said(part) for part in check.message)

    def _said(self, part: Integer | tuple[Integer, ...]) -> str:
        if isinstance(part, tuple):
            return "[" + ", ".join(str(self.value(one)) for one in part) + "]"
        return str(self.value(part))


def _calculated(operator: str, values: list[int]) -> int:
    match operator, values:
        case "add", [a, b]:
            return a + b
        case "multiply", [a, b]:
            return a * b
        case "floor_divide", [a, b]:
            return a // b
        case "ceil_divide", [a, b]:
            return -(-a // b)
        case "minimum", [a, b]:
            return min(a, b)
        case "maximum", [a, b]:
            return max(a, b)
        case "if_one", [extent, one, other]:
            return one if extent == 1 else other
    raise ValueError(f"{operator} of {len(values)} values is no expression of a launch")


def refusal(recipe: Recipe, graph: Graph, processors: int) -> str | None:
    """What a kernel of this recipe says to a call with tensors of the graph's inputs; None where it takes it."""
    layouts = {one.name: _held(one) for one in graph.inputs}
    layouts |= {name: _dense(graph.type_of(name).shape) for name in graph.outputs}
    layouts |= {one.tensor: _packed(layouts[one.tensor], one) for one in recipe.packed}
    call = _Call(layouts, {"processors": processors})
    for one in recipe.tensors:
        if len(layouts[one.name][0]) != one.rank:
            return f"tensor {one.name} has {len(layouts[one.name][0])} dimensions, expected {one.rank}"
    for check in recipe.tensor_checks:
        if not call.holds(check):
            return call.worded(check)
    for name, value in recipe.names:
        call.names[name] = call.value(value)
    return next((call.worded(check) for check in recipe.checks if not call.holds(check)), None)


def _dense(shape: tuple[int, ...]) -> Layout:
    return shape, row_major_strides(shape)


def _held(one: Input) -> Layout:
    """How an input lies in memory; of four bits two elements are one there."""
    shape, strides = one.type.shape, one.element_strides
    if one.type.dtype is not DType.I4:
        return shape, strides
    return (*shape[:-1], shape[-1] // 2), (*(step // 2 for step in strides[:-1]), strides[-1])


def _packed(layout: Layout, one: Packed) -> Layout:
    """How a constant lies once it is laid out anew, as `runtime/packing.py` does it; all but matrices are refused."""
    shape, strides = layout
    if len(shape) != 2:
        return layout
    rows, length = shape
    near = TMA_BITS // one.dtype.bits
    match one.packing:
        case Packing.TURNED:
            strides = 1, rows
        case Packing.PADDED:
            strides = whole_length(length, one.dtype), 1
        case Packing.LINES:
            strides = whole_length(length, one.dtype, LINE_BITS), 1
        case Packing.SPREAD:
            strides = length * near, near
        case Packing.FRAGMENTS:
            pass
    return shape, strides
