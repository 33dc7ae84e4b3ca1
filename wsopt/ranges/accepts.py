"""Whether a kernel takes a call, from its launch recipe: the checks of its `bind`, at a graph's extents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from wsopt.emit.integers import Expression, Integer
from wsopt.emit.recipe import Check, Recipe
from wsopt.graph.types import Graph, row_major_strides

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


def takes(recipe: Recipe, graph: Graph, processors: int) -> bool:
    """Whether a kernel of this recipe takes a call with tensors of the graph's inputs."""
    layouts = {one.name: (one.type.shape, one.element_strides) for one in graph.inputs}
    layouts |= {name: _dense(graph.type_of(name).shape) for name in graph.outputs}
    call = _Call(layouts, {"processors": processors})
    ranks = all(len(layouts[one.name][0]) == one.rank for one in recipe.tensors)
    if not ranks or not all(map(call.holds, recipe.tensor_checks)):
        return False
    for name, value in recipe.names:
        call.names[name] = call.value(value)
    return all(map(call.holds, recipe.checks))


def _dense(shape: tuple[int, ...]) -> Layout:
    return shape, row_major_strides(shape)
