"""A recipe carried out in Python: what it makes of tensors, as plain data."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, assert_never

from observed_launch import Seen

from wsopt.emit.integers import Address, Extent, IfOne, Integer, Name, Operation, Operator, Pitch
from wsopt.emit.recipe import (
    PROCESSORS,
    Check,
    DealtOrder,
    Message,
    PointerArgument,
    Recipe,
    Relation,
    ScalarArgument,
    TableArgument,
    TensorMap,
)
from wsopt.graph.types import DType

TORCH_NAMES = {
    DType.F32: "float32",
    DType.F16: "float16",
    DType.BF16: "bfloat16",
    DType.F8E4M3: "float8_e4m3fn",
    DType.F8E5M2: "float8_e5m2",
    DType.I32: "int32",
}


HOLDS: dict[Relation, Callable[[int, int], bool]] = {
    Relation.EQUAL: operator.eq,
    Relation.AT_LEAST: operator.ge,
    Relation.AT_MOST: operator.le,
    Relation.MULTIPLE: lambda left, right: left % right == 0,
}
VALUES: dict[Operator, Callable[[int, int], int]] = {
    Operator.ADD: operator.add,
    Operator.MULTIPLY: operator.mul,
    Operator.FLOOR_DIVIDE: operator.floordiv,
    Operator.CEIL_DIVIDE: lambda left, right: -(-left // right),
    Operator.MINIMUM: min,
    Operator.MAXIMUM: max,
}


def evaluate(value: Integer, tensors: Mapping[str, Seen], names: Mapping[str, int]) -> int:
    """The value for tensors and names that are known."""
    match value:
        case int():
            return value
        case Name(name):
            return names[name]
        case Extent(tensor, dim):
            return tensors[tensor].shape[dim]
        case Pitch(tensor, dim):
            return tensors[tensor].strides[dim]
        case Address(tensor):
            return tensors[tensor].address
        case Operation(kind, left, right):
            return VALUES[kind](evaluate(left, tensors, names), evaluate(right, tensors, names))
        case IfOne(extent, one, other):
            return evaluate(one if evaluate(extent, tensors, names) == 1 else other, tensors, names)
        case _:
            assert_never(value)


class Evaluated:
    """A recipe with tensors and a number of processors."""

    def __init__(self, recipe: Recipe, tensors: Mapping[str, Seen], processors: int) -> None:
        self.recipe, self.tensors = recipe, tensors
        self.names = {PROCESSORS: processors}
        self.refusal = self._refused(recipe.compiled_checks)
        if self.refusal is None:
            for name, value in recipe.names:
                self.names[name] = self.value(value)
            self.refusal = self._refused(recipe.checks)

    def value(self, expression: Integer, **more: int) -> int:
        return evaluate(expression, self.tensors, {**self.names, **more})

    @property
    def grid(self) -> tuple[int, ...]:
        return (self.value(self.recipe.grid),)

    def arguments(self) -> list[Any]:
        """What is passed for each of the kernel's arguments; for a table its elements."""
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
            case TableArgument():
                assert self.recipe.order is not None
                return self.order(self.recipe.order)
        raise AssertionError(argument)

    def _refused(self, checks: tuple[Check, ...]) -> str | None:
        for check in checks:
            if not HOLDS[check.relation](self.value(check.left), self.value(check.right)):
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
        rows, blocks, tiles = (self.value(one) for one in (order.rows, order.blocks, order.tiles))
        k_blocks = []
        for row in range(0, rows, order.tile_rows):
            place = {"row": row, "last_row": min(row + order.tile_rows, rows) - 1}
            k_blocks.append(max(self.value(order.end, **place) - self.value(order.begin, **place), 0))
        if order.longest_last:
            k_blocks.reverse()
        elements = -(-order.waves_together * blocks // len(k_blocks))
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
