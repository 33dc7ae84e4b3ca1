"""A recipe carried out in Python: what it makes of tensors, as plain data."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from observed_launch import Seen

from wsopt.emit.integers import Expression, Integer, Operator
from wsopt.emit.recipe import (
    Check,
    DealtOrder,
    Message,
    PointerArgument,
    Recipe,
    ScalarArgument,
    TensorMap,
    Workspace,
)
from wsopt.graph.types import DType
from wsopt.program.tile_order import WAVES_TOGETHER

TORCH_NAMES = {
    DType.F32: "float32",
    DType.F16: "float16",
    DType.BF16: "bfloat16",
    DType.F8E4M3: "float8_e4m3fn",
    DType.F8E5M2: "float8_e5m2",
    DType.I32: "int32",
}

VALUES: dict[Operator, Callable[..., int]] = {
    "equal": operator.eq,
    "at_least": operator.ge,
    "at_most": operator.le,
    "multiple_of": lambda left, right: left % right == 0,
    "add": operator.add,
    "multiply": operator.mul,
    "floor_divide": operator.floordiv,
    "ceil_divide": lambda left, right: -(-left // right),
    "minimum": min,
    "maximum": max,
    "if_one": lambda extent, one, other: one if extent == 1 else other,
}


def evaluate(value: Integer, tensors: Mapping[str, Seen], names: Mapping[str, int]) -> int:
    """The value for tensors and names that are known."""
    match value:
        case int():
            return value
        case Expression("name", (str(name),)):
            return names[name]
        case Expression("extent", (str(tensor), int(dim))):
            return tensors[tensor].shape[dim]
        case Expression("stride", (str(tensor), int(dim))):
            return tensors[tensor].strides[dim]
        case Expression("address", (str(tensor),)):
            return tensors[tensor].address
        case Expression(kind, operands):
            parts = [one for one in operands if not isinstance(one, str)]
            return VALUES[kind](*(evaluate(one, tensors, names) for one in parts))


class Evaluated:
    """A recipe with tensors and a number of processors."""

    def __init__(self, recipe: Recipe, tensors: Mapping[str, Seen], processors: int) -> None:
        self.recipe, self.tensors = recipe, tensors
        self.names = {"processors": processors}
        self.refusal = self._refused(recipe.compiled_checks)
        if self.refusal is None:
            for name, value in recipe.names:
                self.names[name] = self.value(value)
            self.refusal = self._refused(recipe.checks)

    def value(self, expression: Integer, **more: int) -> int:
        return evaluate(expression, self.tensors, {**self.names, **more})

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(self.value(count) for count in self.recipe.grid)

    def arguments(self) -> list[Any]:
        """What is passed for each of the kernel's arguments; for a table its elements, for a
        workspace their number.
        """
        return [self._argument(argument) for argument in self.recipe.arguments]

    def output_shapes(self) -> dict[str, tuple[int, ...]]:
        return {
            output.name: tuple(self.value(extent) for extent in output.shape)
            for output in self.recipe.outputs
        }

    def _argument(self, argument: Any) -> Any:
        match argument:
            case TensorMap():
                return {
                    "address": self.tensors[argument.tensor].address,
                    "extents": tuple(map(self.value, argument.extents)),
                    "strides": tuple(map(self.value, argument.strides)),
                    "block": argument.block,
                    "swizzle": argument.swizzle,
                    "dtype": TORCH_NAMES[argument.dtype],
                    "padding": "zero",
                }
            case PointerArgument(tensor=tensor):
                return self.tensors[tensor].address
            case ScalarArgument(_, value):
                return self.value(value)
            case DealtOrder():
                return self.order(argument)
            case Workspace(elements=elements):
                return self.value(elements)
        raise AssertionError(argument)

    def _refused(self, checks: tuple[Check, ...]) -> str | None:
        for check in checks:
            if not self.value(Expression(check.relation, (check.left, check.right))):
                return self._sentence(check.message)
        return None

    def _sentence(self, message: Message) -> str:
        parts = []
        for part in message:
            if isinstance(part, str):
                parts.append(part)
            elif isinstance(part, tuple):
                parts.append(str([self.value(one) for one in part]))
            else:
                parts.append(str(self.value(part)))
        return "".join(parts)

    def order(self, order: DealtOrder) -> list[int]:
        """The table, as the recipe's words say it."""
        rows, blocks, tiles = (self.names[one] for one in ("row_extent", "blocks", "tiles"))
        k_blocks = []
        for row in range(0, rows, order.tile_rows):
            place = {"row": row, "last_row": min(row + order.tile_rows, rows) - 1}
            k_blocks.append(max(self.value(order.end, **place) - self.value(order.begin, **place), 0))
        if order.longest_last:
            k_blocks.reverse()
        elements = -(-WAVES_TOGETHER * blocks // len(k_blocks))
        first = max(tiles - elements * len(k_blocks), 0)
        last = sorted(range(first, tiles), key=lambda tile: (-k_blocks[tile % len(k_blocks)], tile))
        done = [0] * blocks
        taken: list[list[int]] = [[] for _ in range(blocks)]
        for tile in [*range(first), *last]:
            block = done.index(min(done))
            done[block] += k_blocks[tile % len(k_blocks)] + 1
            taken[block].append(tile)
        places = [blocks + 1]
        for own in taken:
            places.append(places[-1] + len(own))
        return [*places, *(tile for own in taken for tile in own)]
