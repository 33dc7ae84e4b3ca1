"""What the table of operations says of each: operands, attributes, cost class, rules of shape and dtype, meaning."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from wsopt.graph import infer as rule
from wsopt.graph.infer import Attrs, DTypeRule, OpFault, Shape, ShapeRule, Types
from wsopt.graph.meaning import Array, Meaning
from wsopt.graph.types import AttrValue, TensorType


class CostClass(enum.Enum):
    """Kind of work that an op's time is spent on."""

    CONTRACTION = "contraction"
    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    MOVEMENT = "data movement"
    COMPOSITE = "composite"


class AttrKind(enum.Enum):
    """Kind of value of an attribute; the member's value says it in words."""

    FLAG = "true or false"
    COUNT = "a positive integer"
    AXIS = "an integer, negative to count from the end"
    PLACE = "an integer: a place along the axis, negative to count from its end"
    REAL = "a number that is not negative"
    CHOICE = "one of a few words"
    DTYPE = "a dtype"
    SHAPE = "an array of positive integers"
    PERM = "an array of the axes in their new order"
    COUNTS = "an array of whole numbers that are not negative, one an axis"
    BLOCK = "an array of positive integers: rows and columns of a block"


@dataclass(frozen=True, slots=True)
class AttrSpec:
    """An attribute of an op. A `required` one has no default; a default of None means `not given`. One that is
    `positional` may stand behind the operands in a builder's call, without its name.
    """

    name: str
    kind: AttrKind
    default: AttrValue = None
    required: bool = False
    choices: tuple[str, ...] = ()
    positional: bool = False


@dataclass(frozen=True, slots=True)
class OpSpec:
    """One op of the format. The last `optional` operands may be left out; `scalars` may be scalars."""

    name: str
    operands: tuple[str, ...]
    cost: CostClass
    shape: ShapeRule
    dtype: DTypeRule
    meaning: Meaning
    doc: str
    attrs: tuple[AttrSpec, ...] = ()
    optional: int = 0
    scalars: tuple[str, ...] = ()

    @property
    def arity(self) -> tuple[int, int]:
        """The fewest and the most operands."""
        return len(self.operands) - self.optional, len(self.operands)

    def attr(self, name: str) -> AttrSpec | None:
        """The attribute of this name, or None."""
        return next((attr for attr in self.attrs if attr.name == name), None)

    def infer(self, types: Types, attrs: Attrs) -> tuple[TensorType, dict[str, AttrValue]]:
        """Result type, and the attributes with `axis` counted from the front.

        `types` are those of the operands (a scalar is f32 or i32 of rank 0), `attrs` is complete.
        Raises OpFault with all that is wrong.
        """
        shape, shape_faults = _attempt(self.shape, types, attrs)
        dtype, dtype_faults = _attempt(self.dtype, types, attrs)
        if shape is None or dtype is None:
            raise OpFault(*shape_faults, *dtype_faults)
        result = TensorType(shape, dtype)
        if fault := rule.tensor_fault(result):
            raise OpFault(("", f"the result's {fault}"))
        return result, dict(attrs) | self._front_axis(types, attrs)

    def _front_axis(self, types: Types, attrs: Attrs) -> dict[str, AttrValue]:
        if "axis" not in attrs:
            return {}
        shape: Shape = types[0].shape if types else attrs["shape"]
        return {"axis": rule.checked_axis(attrs, shape)}

    def evaluate(self, arrays: tuple[Array, ...], attrs: Attrs) -> Array:
        """The op's value on NumPy arrays of the operands' dtypes; `attrs` as `infer` returns them."""
        with np.errstate(all="ignore"):
            return self.meaning(arrays, attrs)


def _attempt(
    apply: Callable[[Types, Attrs], Any], types: Types, attrs: Attrs
) -> tuple[Any, tuple[tuple[str, str], ...]]:
    try:
        return apply(types, attrs), ()
    except OpFault as fault:
        return None, fault.faults
