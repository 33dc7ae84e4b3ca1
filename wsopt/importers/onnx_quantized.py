"""What ONNX's quantized tensors mean in our graphs: numbers of few bits, each times a scale."""

from __future__ import annotations

from onnx import TensorProto, helper

from wsopt.graph.types import DType
from wsopt.importers.onnx_table import Call, axis_of, entry
from wsopt.importers.onnx_types import dtype_of
from wsopt.torch.values import Untaken, Value


def _beside(call: Call, place: int, x: Value) -> Value:
    """A scale or zero point beside x: of all of it, or one for each place along an axis."""
    if call.attr("block_size", 0):
        raise Untaken(
            "scales of blocks along an axis; one scale for each place along it, or for all, is said"
        )
    found = call.value(place)
    if len(found.shape) == 0 or found.shape == (1,):
        return call.w.view(found, ())
    axis = axis_of(call, len(x.shape), 1)
    return call.w.view(found, [extent if at == axis else 1 for at, extent in enumerate(x.shape)])


@entry("DequantizeLinear")
def _dequantize(call: Call) -> Value:
    w, x = call.w, call.value(0)
    wide = w.cast(x, DType.F32)
    if call.has(2) and not _is_zero(call, 2):
        wide = w.elementwise("sub", wide, w.cast(_beside(call, 2, x), DType.F32))
    return w.elementwise("mul", wide, _beside(call, 1, x))


@entry("QuantizeLinear")
def _quantize(call: Call) -> Value:
    """Quotients rounded to nearest even and saturated, as a cast of ours does it."""
    w, x = call.w, call.value(0)
    if call.has(2) and not _is_zero(call, 2):
        raise Untaken("a zero point other than 0; quantize symmetrically")
    return w.cast(w.elementwise("div", x, _beside(call, 1, x)), _wanted(call))


def _wanted(call: Call) -> DType:
    """The type of a result: the zero point's, or what is said, or unsigned bytes, as ONNX has it."""
    if call.has(2):
        return dtype_of(helper.np_dtype_to_tensor_dtype(call.array(2, "its zero points").dtype))
    return dtype_of(int(call.attr("output_dtype", 0)) or TensorProto.UINT8)


def _is_zero(call: Call, place: int) -> bool:
    """Whether a zero point is known to be 0."""
    found = call.source.constant(call.operands[place])
    return found is not None and not found.astype(float).any()
