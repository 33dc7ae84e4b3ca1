"""What operations on images mean in our graphs: convolutions, pools, norms of channels, and other resolutions."""

from __future__ import annotations

import math

from wsopt.importers.onnx_table import Call, entry, require_floats
from wsopt.importers.windows import Window, convolved, enlarged, largest_of, mean_of, spread
from wsopt.torch.values import Shape, Untaken, Value
from wsopt.torch.writer import number


def _window(call: Call, image: Shape, extents: Shape) -> Window:
    """The window of a call over an image."""
    rank = len(image)
    if call.attr("ceil_mode", 0):
        raise Untaken("ceil_mode, by which windows lie half outside of the image")
    strides = tuple(call.attr("strides", (1,) * rank))
    dilations = tuple(call.attr("dilations", (1,) * rank))
    low, high = _room(call, image, extents, strides, dilations)
    return Window(extents, strides, dilations, low, high)


def _room(call: Call, image: Shape, extents: Shape, strides: Shape, dilations: Shape) -> tuple[Shape, Shape]:
    """The room around an image, before and behind each extent."""
    rank, automatic = len(image), call.attr("auto_pad", "NOTSET")
    if automatic in ("NOTSET", ""):
        pads = tuple(call.attr("pads", (0,) * (2 * rank)))
        return pads[:rank], pads[rank:]
    if automatic == "VALID":
        return (0,) * rank, (0,) * rank
    whole = [
        max(0, (math.ceil(extent / stride) - 1) * stride + dilation * (own - 1) + 1 - extent)
        for extent, own, stride, dilation in zip(image, extents, strides, dilations, strict=True)
    ]
    less, more = tuple(one // 2 for one in whole), tuple(one - one // 2 for one in whole)
    return (less, more) if automatic == "SAME_UPPER" else (more, less)


# --- convolutions ---------------------------------------------------------------------------------------


@entry("Conv")
def _conv(call: Call) -> Value:
    x, weight = call.value(0), call.value(1)
    window = _window(call, x.shape[2:], weight.shape[2:])
    return convolved(call.w, x, weight, call.optional(2), window, int(call.attr("group", 1)))


@entry("ConvTranspose")
def _conv_transpose(call: Call) -> Value:
    x, weight = call.value(0), call.value(1)
    if call.attr("group", 1) != 1 or any(call.attr("output_padding", ())) or "output_shape" in call.attrs:
        raise Untaken("a transposed convolution in groups, or with a border of its own")
    window = _window(call, x.shape[2:], weight.shape[2:])
    return spread(call.w, x, weight, call.optional(2), window)


# --- pools ----------------------------------------------------------------------------------------------


@entry("MaxPool")
def _max_pool(call: Call) -> Value:
    x = call.value(0)
    require_floats(call, x)
    return largest_of(call.w, x, _window(call, x.shape[2:], tuple(call.attrs["kernel_shape"])))


@entry("AveragePool")
def _average_pool(call: Call) -> Value:
    x = call.value(0)
    window = _window(call, x.shape[2:], tuple(call.attrs["kernel_shape"]))
    return mean_of(call.w, x, window, counts_room=bool(call.attr("count_include_pad", 0)))


@entry("GlobalAveragePool")
def _whole_mean(call: Call) -> Value:
    x = call.value(0)
    return call.w.reduce("reduce_mean", x, range(2, len(x.shape)), True)


@entry("GlobalMaxPool")
def _whole_largest(call: Call) -> Value:
    x = call.value(0)
    return call.w.reduce("reduce_max", x, range(2, len(x.shape)), True)


# --- norms of channels ----------------------------------------------------------------------------------


def _channels(call: Call, place: int, x: Value) -> Value:
    """An operand of one element a channel, beside an image."""
    return call.w.view(call.value(place), (x.shape[1], *(1,) * (len(x.shape) - 2)))


@entry("BatchNormalization")
def _batch_norm(call: Call) -> Value:
    w, x = call.w, call.value(0)
    if call.attr("training_mode", 0) or call.results > 1:
        raise Untaken("it is of training; export the model for inference")
    weight, bias, mean, variance = (_channels(call, place, x) for place in range(1, 5))
    wide = w.elementwise("add", variance, number(float(call.attr("epsilon", 1e-5))))
    factor = w.elementwise("mul", w.elementwise("rsqrt", wide), weight)
    return w.elementwise("add", w.elementwise("mul", w.elementwise("sub", x, mean), factor), bias)


@entry("InstanceNormalization")
def _instance_norm(call: Call) -> Value:
    w, x = call.w, call.value(0)
    over = range(2, len(x.shape))
    centred = w.elementwise("sub", x, w.reduce("reduce_mean", x, over, True))
    variance = w.reduce("reduce_mean", w.elementwise("mul", centred, centred), over, True)
    eps = number(float(call.attr("epsilon", 1e-5)))
    normed = w.elementwise("mul", centred, w.elementwise("rsqrt", w.elementwise("add", variance, eps)))
    weighted = w.elementwise("mul", normed, _channels(call, 1, x))
    return w.elementwise("add", weighted, _channels(call, 2, x))


# --- other resolutions ----------------------------------------------------------------------------------


@entry("Resize")
def _resize(call: Call) -> Value:
    """Elements that are repeated a whole number of times: the nearest ones of a larger image."""
    x, mode = call.value(0), call.attr("mode", "nearest")
    if mode != "nearest":
        raise Untaken(f"the mode {mode}; graphs have the nearest element alone")
    return enlarged(call.w, x, _times(call, x))


def _times(call: Call, x: Value) -> list[int]:
    """How many times elements are repeated along each dimension. Raises Untaken for no whole numbers, and where the
    nearest element is another one by the places that ONNX has for it.
    """
    scales = call.array(2, "scales").tolist() if call.has(2) else []
    if not scales:
        wanted = call.integers("sizes", 3) or ()
        scales = [to / own for to, own in zip(wanted, x.shape, strict=True)]
    if "axes" in call.attrs or any(one < 1 or one != int(one) for one in scales):
        raise Untaken(f"scales of {scales}; graphs repeat elements a whole number of times")
    placed = call.attr("coordinate_transformation_mode", "half_pixel")
    rounds = call.attr("nearest_mode", "round_prefer_floor")
    halves = placed in ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel")
    if not ((halves and rounds.startswith("round")) or (placed == "asymmetric" and rounds == "floor")):
        raise Untaken(f"the nearest element by {placed} and {rounds}")
    return [int(one) for one in scales]


@entry("DepthToSpace")
def _depth_to_space(call: Call) -> Value:
    w, x = call.w, call.value(0)
    batch, channels, height, width = x.shape
    size = int(call.attrs["blocksize"])
    left = channels // size**2
    if call.attr("mode", "DCR") == "DCR":
        apart, order = (batch, size, size, left, height, width), (0, 3, 4, 1, 5, 2)
    else:
        apart, order = (batch, left, size, size, height, width), (0, 1, 4, 2, 5, 3)
    turned = w.permute(w.view(x, apart), order)
    return w.view(turned, (batch, left, height * size, width * size))


@entry("SpaceToDepth")
def _space_to_depth(call: Call) -> Value:
    w, x = call.w, call.value(0)
    batch, channels, height, width = x.shape
    size = int(call.attrs["blocksize"])
    apart = w.view(x, (batch, channels, height // size, size, width // size, size))
    turned = w.permute(apart, (0, 3, 5, 1, 2, 4))
    return w.view(turned, (batch, channels * size**2, height // size, width // size))
