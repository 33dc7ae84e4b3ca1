"""Tensors with scales: rules and NumPy reference of `dequantize`, `quantize` and `quantize_scale`.

A scale is shared by a `group` of neighbours along the last axis, or by a `block` of so many rows and columns of the
last two axes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from wsopt.graph.infer import Attrs, OpFault, Shape, Types, broadcast_shapes, show, want, want_numbers
from wsopt.graph.meaning import F8_LARGEST, Array, Arrays, cast_array, f32
from wsopt.graph.types import DType

LARGEST: Mapping[DType, float] = MappingProxyType({DType.F8E4M3: F8_LARGEST[DType.F8E4M3], DType.I8: 127.0})
"""The types that `quantize` rounds to, each with the magnitude that the largest of a group becomes."""

Unit = tuple[int, ...]
"""Elements that share a scale along the last axes of a tensor: one of a group, two of a block."""

# --- rules ----------------------------------------------------------------------------------------------


def unit_of(attrs: Mapping[str, Any]) -> Unit:
    """Elements along the last axes that share a scale, by the attributes of which one is given."""
    return tuple(attrs["block"]) if attrs.get("block") else (int(attrs["group"]),)


def scales_shape(types: Types, attrs: Attrs) -> Shape:
    """The shape of the first operand's scales: one for each group or block. Raises OpFault for a group or block that
    does not divide, and where not one of the two is given.
    """
    shape = types[0].shape
    if (attrs["group"] is None) == (attrs["block"] is None):
        told = "neither is given" if attrs["group"] is None else "both are given"
        raise OpFault(("attrs", f"group and block: {told}; a scale is shared by one of them"))
    unit, key = unit_of(attrs), "group" if attrs["block"] is None else "block"
    if key == "block" and len(unit) != 2:
        raise OpFault(
            ("attrs/block", f"{show(unit)}; allowed: [rows, columns] of a block of the last two axes")
        )
    if len(shape) < len(unit) or any(
        have % part for have, part in zip(shape[-len(unit) :], unit, strict=True)
    ):
        of, given = ("last extent", unit[0]) if key == "group" else ("last two extents", show(unit))
        raise OpFault(
            (
                f"attrs/{key}",
                f"{given} does not divide the {of} of shape {show(shape)}; take one that does, or pad the tensor",
            )
        )
    outer = shape[: len(shape) - len(unit)]
    return (*outer, *(have // part for have, part in zip(shape[len(outer) :], unit, strict=True)))


def dequantize_shape(types: Types, attrs: Attrs) -> Shape:
    """q is [..., k]; scale and zero are [..., k / group], or one for each block; leading axes broadcast to q's."""
    shape, wanted = types[0].shape, scales_shape(types, attrs)
    unit = unit_of(attrs)
    named = f"group {unit[0]}" if attrs["block"] is None else f"block {show(unit)}"
    faults = [
        (f"inputs/{index}", f"shape {show(tensor.shape)}; {named} wants {show(wanted)}")
        for index, tensor in enumerate(types[1:], start=1)
        if not _gives_scales(tensor.shape, wanted, len(unit), scalar_ok=index == 2)
    ]
    if faults:
        raise OpFault(*faults)
    return shape


def _gives_scales(shape: Shape, wanted: Shape, cut: int, *, scalar_ok: bool) -> bool:
    """Whether a shape has a scale for every unit of the last `cut` axes, and broadcasts along the others."""
    if not shape:
        return scalar_ok
    return shape[-cut:] == wanted[-cut:] and broadcast_shapes(shape, wanted) == wanted


def dequantize_dtype(types: Types, _attrs: Attrs) -> DType:
    """Numbers in, with a floating-point scale; f32 out."""
    want_numbers(types)
    want(types[:2], lambda dtype: dtype.is_float, "a floating-point scale", start=1)
    return DType.F32


def quantize_shape(types: Types, attrs: Attrs) -> Shape:
    """The operand's shape, whose last axes have whole groups or blocks."""
    scales_shape(types, attrs)
    return types[0].shape


def quantize_dtype(types: Types, attrs: Attrs) -> DType:
    """Numbers in; the attribute `dtype` out, which is one of `LARGEST`."""
    want_numbers(types)
    dtype: DType = attrs["dtype"]
    if dtype not in LARGEST:
        allowed = " ".join(one.value for one in LARGEST)
        raise OpFault(("attrs/dtype", f"{dtype.value}; quantizing is to one of {allowed}"))
    return dtype


def scale_dtype(types: Types, attrs: Attrs) -> DType:
    """Scales are f32, whatever is quantized."""
    quantize_dtype(types, attrs)
    return DType.F32


# --- reference ------------------------------------------------------------------------------------------


def spread(scales: Array, unit: Unit) -> Array:
    """Scales with each repeated along the axes of its unit."""
    for axis, times in enumerate(reversed(unit), start=1):
        scales = np.repeat(scales, times, axis=-axis)
    return scales


def dequantize(arrays: Arrays, attrs: Attrs) -> Array:
    """(q - zero) * scale, one scale and zero for each group or block."""
    unit = unit_of(attrs)
    q, scale = f32(arrays[0]), spread(f32(arrays[1]), unit)
    if len(arrays) == 3:
        zero = f32(arrays[2])
        q = q - (spread(zero, unit) if zero.ndim else zero)
    return f32(q * scale)


def quantize_scale(arrays: Arrays, attrs: Attrs) -> Array:
    """The largest magnitude of each group or block over that of the dtype, and 1 where that is zero; nan where an
    element is nan.
    """
    scale = magnitudes(np.abs(f32(arrays[0])), unit_of(attrs), np.max) / np.float32(LARGEST[attrs["dtype"]])
    return np.where(scale == 0, np.float32(1), scale)


def magnitudes(x: Array, unit: Unit, largest: Callable[..., Array]) -> Array:
    """The `largest` of each unit of an array's last axes."""
    for axis, times in enumerate(reversed(unit), start=1):
        place = x.ndim - axis
        x = largest(x.reshape(*x.shape[:place], -1, times, *x.shape[place + 1 :]), axis=place + 1)
    return x


def quantize(arrays: Arrays, attrs: Attrs) -> Array:
    """x over its scale, rounded to nearest even and saturated."""
    scale = spread(quantize_scale(arrays, attrs), unit_of(attrs))
    return cast_array(f32(arrays[0]) / scale, attrs["dtype"])
