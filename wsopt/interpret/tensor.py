"""The stand-in for a distributed register tensor, with Triton's type promotion and layout rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from wsopt.interpret import dtypes
from wsopt.interpret.dtypes import Array, DType
from wsopt.interpret.faults import InterpreterError, RaceError
from wsopt.interpret.layouts import BlockedLayout, SliceLayout
from wsopt.interpret.pending import Pending


@dataclass(frozen=True)
class TensorType:
    """Shape, element type and layout of a value."""

    shape: tuple[int, ...]
    element_ty: DType
    layout: Any


class Tensor:
    """A register tensor. `layout` None is one that Triton infers (after reshape, permute, split).

    The result of an asynchronous wgmma is `pending` until it comes out of a `warpgroup_mma_wait` that
    has retired the instruction; using its values before is a RaceError.
    """

    __slots__ = ("_data", "_shape", "dtype", "layout", "pending")

    def __init__(
        self,
        data: Array | None,
        dtype: DType,
        layout: Any,
        shape: tuple[int, ...] = (),
        pending: Pending | None = None,
    ) -> None:
        self._data = data
        self._shape = shape if data is None else data.shape
        self.dtype = dtype
        self.layout = layout
        self.pending = pending

    @property
    def data(self) -> Array:
        """The values; RaceError while they come from a wgmma that has not been waited for."""
        if self.pending is not None:
            raise RaceError(
                f"the accumulator of {self.pending.what} is used before warpgroup_mma_wait gave it back"
            )
        if self._data is None:
            raise InterpreterError("a tensor without values is used")
        return self._data

    @property
    def shape(self) -> list[int]:
        """Extents."""
        return list(self._shape)

    @property
    def numel(self) -> int:
        """Number of elements."""
        return int(np.prod(self._shape))

    @property
    def type(self) -> TensorType:
        """Shape, element type and layout."""
        return TensorType(self._shape, self.dtype, self.layout)

    def to(self, dtype: DType, *, bitcast: bool = False) -> Tensor:
        """Convert the elements, or take their bits as those of another type of as many."""
        if bitcast:
            return Tensor(self.data.view(dtype.value.numpy), dtype.value, self.layout)
        return Tensor(dtypes.convert(self.data, dtype.value), dtype.value, self.layout)

    def reshape(self, *shape: Any) -> Tensor:
        """Change the extents; the layout becomes unknown."""
        return Tensor(self.data.reshape(_extents(shape)), self.dtype, None)

    def permute(self, *order: Any) -> Tensor:
        """Reorder the dimensions; a blocked layout follows, any other becomes unknown."""
        axes = _extents(order)
        layout = self.layout.permuted(axes) if isinstance(self.layout, BlockedLayout) else None
        return Tensor(self.data.transpose(axes), self.dtype, layout)

    trans = permute

    def split(self) -> tuple[Tensor, Tensor]:
        """Take the two halves of a last dimension of extent 2; their layout is unknown."""
        if self._shape[-1] != 2:
            raise InterpreterError(f"split needs a last dimension of 2, got shape {self.shape}")
        data = self.data
        return Tensor(data[..., 0], self.dtype, None), Tensor(data[..., 1], self.dtype, None)

    def expand_dims(self, axis: int) -> Tensor:
        """Insert a dimension of extent 1 where the layout's slice was taken."""
        axis = axis + len(self._shape) + 1 if axis < 0 else int(axis)
        if self.layout is None:
            return Tensor(np.expand_dims(self.data, axis), self.dtype, None)
        if not isinstance(self.layout, SliceLayout) or self.layout.dim != axis:
            raise InterpreterError(
                f"expand_dims({axis}) needs a SliceLayout of dimension {axis}, got {self.layout}"
            )
        return Tensor(np.expand_dims(self.data, axis), self.dtype, self.layout.parent)

    def reduce(self, function: Callable[..., Any], axis: int | None) -> Tensor:
        """Reduce along an axis (all of them for None), narrow floats in float32."""
        wide = _widened(self.data)
        result = np.asarray(function(wide, axis=axis))
        layout = None if axis is None or self.layout is None else SliceLayout(int(axis), self.layout)
        return Tensor(dtypes.convert(result, self.dtype), self.dtype, layout)

    def sum(self, axis: int | None = None) -> Tensor:
        """Sum along an axis."""
        return self.reduce(np.sum, axis)

    def max(self, axis: int | None = None) -> Tensor:
        """Maximum along an axis, ignoring NaN as the instruction does."""
        return self.reduce(np.fmax.reduce, axis)

    def min(self, axis: int | None = None) -> Tensor:
        """Minimum along an axis, ignoring NaN as the instruction does."""
        return self.reduce(np.fmin.reduce, axis)

    def __getitem__(self, key: Any) -> Tensor:
        """`x[None, :]` and its like."""
        result = self
        for axis, item in enumerate(key if isinstance(key, tuple) else (key,)):
            if item is None:
                result = result.expand_dims(axis)
            elif item != slice(None):
                raise InterpreterError(f"tensors are indexed with None and : only, got {item!r}")
        return result

    def __bool__(self) -> bool:
        """The truth of a scalar."""
        if self._shape not in ((), (1,)):
            raise InterpreterError(f"a tensor of shape {self.shape} has no truth value")
        return bool(self.data)

    def __int__(self) -> int:
        return int(self.data)

    __index__ = __int__

    def __float__(self) -> float:
        return float(self.data)

    def __neg__(self) -> Tensor:
        return unary(np.negative, self)

    def __invert__(self) -> Tensor:
        return Tensor(np.invert(self.data), self.dtype, self.layout)

    def __eq__(self, other: object) -> Tensor:  # type: ignore[override]
        return compare(np.equal, self, other)

    def __ne__(self, other: object) -> Tensor:  # type: ignore[override]
        return compare(np.not_equal, self, other)

    __hash__ = None  # type: ignore[assignment]


def unary(function: Callable[..., Any], value: Tensor) -> Tensor:
    """Apply an elementwise function, narrow floats in float32 and rounded back."""
    result = np.asarray(function(_widened(value.data)))
    return Tensor(dtypes.convert(result, value.dtype), value.dtype, value.layout)


def binary(function: Callable[..., Any], left: Any, right: Any, *, divide: bool = False) -> Tensor:
    """Apply an elementwise function of two operands, of which at least one is a tensor."""
    dtype = promoted(left, right)
    if divide and (not dtype.floating or dtype.itemsize <= 2):
        dtype = dtypes.FLOAT32
    layout = common_layout((left, right))
    result = np.asarray(function(operand(left, dtype), operand(right, dtype)))
    return Tensor(dtypes.convert(result, dtype), dtype, layout)


def compare(function: Callable[..., Any], left: Any, right: Any) -> Tensor:
    """Compare elementwise."""
    dtype = promoted(left, right)
    layout = common_layout((left, right))
    return Tensor(np.asarray(function(operand(left, dtype), operand(right, dtype))), dtypes.INT1, layout)


def common_layout(values: tuple[Any, ...]) -> Any:
    """Return the layout of an elementwise result; InterpreterError where Triton would refuse the operands."""
    tensors = [value for value in values if isinstance(value, Tensor) and value._shape]
    if not tensors:
        return None
    first = tensors[0]
    for other in tensors[1:]:
        if len(other._shape) != len(first._shape):
            raise InterpreterError(f"operands of shapes {first.shape} and {other.shape} do not broadcast")
        if other.layout is not first.layout and other.layout != first.layout:
            raise InterpreterError(f"operands have different layouts: {first.layout} and {other.layout}")
    return first.layout


def promoted(left: Any, right: Any) -> DType:
    """Return the element type in which two operands meet; Python numbers take a tensor's type."""
    first = left.dtype if isinstance(left, Tensor) else None
    second = right.dtype if isinstance(right, Tensor) else None
    if first is None and second is None:
        raise InterpreterError(f"no tensor among the operands {left!r} and {right!r}")
    if (first is not None and first.is_fp8()) or (second is not None and second.is_fp8()):
        raise InterpreterError("arithmetic on 8-bit floats: convert them with .to first")
    if first is None:
        assert second is not None
        return _with_number(second, left)
    return _with_number(first, right) if second is None else _wider(first, second)


def operand(value: Any, dtype: DType) -> Any:
    """Return an operand's values as its operation computes on them (narrow floats in float32)."""
    if isinstance(value, Tensor):
        return _widened(dtypes.convert(value.data, dtype))
    if not isinstance(value, int | float | np.generic):
        raise InterpreterError(f"{type(value).__name__} is no operand of an elementwise operation")
    return _widened(dtypes.convert(np.asarray(value), dtype))


def _with_number(dtype: DType, number: Any) -> DType:
    if not dtype.floating and isinstance(number, float):
        return dtypes.FLOAT32
    if dtype is dtypes.INT1 and not isinstance(number, bool):
        return dtypes.INT32
    return dtype


def _wider(left: DType, right: DType) -> DType:
    if left is right or left == right:
        return left
    if left.floating or right.floating:
        floats = {dtype.name for dtype in (left, right) if dtype.floating}
        # Triton's order; bfloat16 stays itself only with its like.
        found = next((name for name in ("float64", "float32", "float16") if name in floats), "float32")
        return dtypes.named(found)
    return left if left.itemsize > right.itemsize else right


def _widened(array: Array) -> Array:
    narrow = array.dtype.itemsize <= 2 and array.dtype.kind not in "iub"
    return dtypes.to_float32(array) if narrow else array


def _extents(arguments: tuple[Any, ...]) -> tuple[int, ...]:
    """Accept `f(2, 3)` and `f((2, 3))`."""
    items = arguments[0] if len(arguments) == 1 and isinstance(arguments[0], tuple | list) else arguments
    return tuple(int(item) for item in items)


def _operator(
    function: Callable[..., Any], *, swap: bool = False, divide: bool = False
) -> Callable[..., Any]:
    def method(self: Tensor, other: Any) -> Any:
        if hasattr(other, "storage"):  # a pointer knows how to add
            return NotImplemented
        pair = (other, self) if swap else (self, other)
        return binary(function, *pair, divide=divide)

    return method


def _comparison(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, other: compare(function, self, other)


_OPERATORS = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.divide,
    "floordiv": np.floor_divide,
    "mod": np.remainder,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "lshift": np.left_shift,
    "rshift": np.right_shift,
}
for _name, _function in _OPERATORS.items():
    setattr(Tensor, f"__{_name}__", _operator(_function, divide=_name == "truediv"))
    setattr(Tensor, f"__r{_name}__", _operator(_function, swap=True, divide=_name == "truediv"))
for _name, _function in {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}.items():
    setattr(Tensor, f"__{_name}__", _comparison(_function))
