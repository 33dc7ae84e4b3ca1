"""Element types as torch and Gluon name them, their NumPy counterparts, and conversions as the GPU rounds."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from wsopt.interpret.faults import InterpreterError

Array = NDArray[Any]
_BF16 = np.dtype(ml_dtypes.bfloat16)
_F32 = np.dtype(np.float32)


@dataclass(frozen=True)
class DType:
    """One element type under its Gluon name."""

    name: str
    numpy: np.dtype[Any]
    floating: bool
    torch_name: str

    @property
    def primitive_bitwidth(self) -> int:
        """Bits of an element."""
        return self.numpy.itemsize * 8

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.numpy.itemsize

    @property
    def is_floating_point(self) -> bool:
        """Torch's word for `floating`."""
        return self.floating

    @property
    def value(self) -> DType:
        """The type itself, as a constexpr would give it."""
        return self

    def is_fp8(self) -> bool:
        """Is this an 8-bit float?"""
        return self.floating and self.itemsize == 1

    def __repr__(self) -> str:
        return self.name


def _dtype(name: str, numpy: Any, floating: bool, torch_name: str = "") -> DType:
    return DType(name, np.dtype(numpy), floating, torch_name or name)


FLOAT32 = _dtype("float32", np.float32, True)
INT1 = _dtype("int1", np.bool_, False, "bool")
INT32 = _dtype("int32", np.int32, False)
INT64 = _dtype("int64", np.int64, False)
FLOAT8E4NV = _dtype("float8e4nv", ml_dtypes.float8_e4m3fn, True, "float8_e4m3fn")
FLOAT8E5 = _dtype("float8e5", ml_dtypes.float8_e5m2, True, "float8_e5m2")
DTYPES = (
    FLOAT32,
    _dtype("float64", np.float64, True),
    _dtype("float16", np.float16, True),
    _dtype("bfloat16", ml_dtypes.bfloat16, True),
    FLOAT8E4NV,
    FLOAT8E5,
    INT1,
    _dtype("int8", np.int8, False),
    _dtype("int16", np.int16, False),
    INT32,
    INT64,
    _dtype("uint8", np.uint8, False),
    _dtype("uint16", np.uint16, False),
    _dtype("uint32", np.uint32, False),
    _dtype("uint64", np.uint64, False),
)
_BY_NAME = {dtype.name: dtype for dtype in DTYPES}
_BY_NUMPY = {dtype.numpy: dtype for dtype in DTYPES}
_LARGEST = {FLOAT8E4NV.name: 448.0, FLOAT8E5.name: 57344.0}


def named(name: str) -> DType:
    """Return the element type of a Gluon name."""
    return _BY_NAME[name]


def from_numpy(dtype: np.dtype[Any]) -> DType:
    """Return the element type that a NumPy array has; InterpreterError if there is none."""
    found = _BY_NUMPY.get(np.dtype(dtype))
    if found is None:
        raise InterpreterError(f"tensors of NumPy dtype {dtype} are not supported")
    return found


def to_float32(array: Array) -> NDArray[np.float32]:
    """Convert to float32; exact for the narrower floats. A float32 array is returned as it is."""
    if array.dtype is _F32 or array.dtype == _F32:
        return array
    if array.dtype == _BF16:  # the upper half of a float32
        wide = array.view(np.uint16).astype(np.uint32)
        wide <<= 16
        return wide.view(np.float32)
    return array.astype(np.float32)


def convert(array: Array, dtype: DType) -> Array:
    """Convert as `.to(dtype)` does: nearest even, 8-bit floats saturating, floats to integers truncated."""
    if array.dtype == dtype.numpy:
        return array
    largest = _LARGEST.get(dtype.name)
    if largest is not None:
        array = np.clip(to_float32(array), -largest, largest)
    elif array.dtype.itemsize <= 2 and array.dtype.kind not in "iub":
        array = to_float32(array)
    return array.astype(dtype.numpy)


def poison(array: Array) -> None:
    """Fill with a value that shows when it is used: NaN, or 0x7f in every byte of an integer."""
    if array.dtype.kind in "iu":
        array[...] = int.from_bytes(b"\x7f" * array.dtype.itemsize, "little")
    elif array.dtype.kind != "b":
        bits = _nan_bits(array.dtype)
        array.view(bits.dtype)[...] = bits


@functools.cache
def _nan_bits(dtype: np.dtype[Any]) -> Any:
    """The bits of NaN as a whole number, of which NumPy fills an array several times as fast as of narrow floats."""
    return np.array(np.nan, dtype).view(f"u{dtype.itemsize}")[()]
