"""What convolutions of an FX graph whose window is one element, and their gradients, mean in our graphs: products.

Such a convolution multiplies the channels of every element of an image by one matrix, or those of each group by the
group's own, where the image's elements lie together. A transposed one multiplies by the matrix turned, and so does
the gradient of an image; that of the weights contracts the elements of all images.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from wsopt.torch.table import aten, entry
from wsopt.torch.values import Untaken, Value
from wsopt.torch.writer import Writer


@entry(aten.convolution.default)
def _convolution(
    w: Writer, x: Value, weight: Value, bias: Value | None, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
) -> Value:  # fmt: skip
    del dilation
    _check_plain("a convolution", weight, stride, (*padding, *output_padding))
    product = _multiplied(w, x, weight, groups, turned=transposed)
    if bias is not None:
        outer = bias.shape[0]
        held = (groups, outer // groups, 1) if groups > 1 else (outer, 1)
        product = w.elementwise("add", product, w.view(bias, held))
    return w.view(product, w.shape)


@entry(aten.convolution_backward.default)
def _gradients(
    w: Writer, gradient: Value, x: Value, weight: Value, bias_sizes: Sequence[int] | None, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
    wanted: Sequence[bool],
) -> tuple[Value | None, ...]:  # fmt: skip
    """One gradient alone; where several are wanted they are told apart before. That of the bias is a sum."""
    del bias_sizes, dilation
    _check_plain("a gradient of a convolution", weight, stride, (*padding, *output_padding))
    match tuple(wanted):
        case True, False, False:
            product = _multiplied(w, gradient, weight, groups, turned=not transposed)
            return w.view(product, w.shape), None, None
        case False, True, False:
            left, right = (x, gradient) if transposed else (gradient, x)
            return None, w.view(_contracted(w, left, right, groups), w.shape), None
        case False, False, True:
            return None, None, w.reduce("reduce_sum", gradient, [0, *range(2, len(gradient.dims))], False)
        case _:
            raise Untaken("several gradients of a convolution at once")


def _check_plain(what: str, weight: Value, stride: Sequence[int], zeros: Sequence[int]) -> None:
    """Raise Untaken for a convolution that is no product of channels alone."""
    apart = {
        "with a window": any(one != 1 for one in weight.shape[2:]),
        "with strides": any(one != 1 for one in stride),
        "of an image with zeros around it": any(zeros),
    }
    if any(apart.values()):
        raise Untaken(f"{what} {' and '.join(why for why, holds in apart.items() if holds)}")


def _multiplied(w: Writer, x: Value, weight: Value, groups: int, *, turned: bool) -> Value:
    """The channels of each group of every image multiplied by its matrix, or that `turned`."""
    rows, columns = weight.shape[0] // groups, weight.shape[1]
    apart = (groups,) if groups > 1 else ()
    matrix = w.view(weight, (1, *apart, rows, columns))
    if turned:
        matrix = w.permute(matrix, (*range(len(matrix.dims) - 2), -1, -2))
    return w.matmul(matrix, _by_groups(w, x, groups))


def _contracted(w: Writer, left: Value, right: Value, groups: int) -> Value:
    """The product of each group's channels of two tensors, over the elements of all images."""
    a, b = (_by_groups(w, one, groups) for one in (left, right))
    order = (1, 2, 0, 3) if groups > 1 else (1, 0, 2)
    flat = [w.permute(one, order) for one in (a, b)]
    rows, columns = (w.view(one, (*one.shape[:-2], one.shape[-2] * one.shape[-1])) for one in flat)
    return w.matmul(rows, columns, transpose_b=True)


def _by_groups(w: Writer, x: Value, groups: int) -> Value:
    """An image's channels by groups where there are several, and its elements as one axis."""
    images, channels = x.shape[:2]
    apart = (groups, channels // groups) if groups > 1 else (channels,)
    return w.view(x, (images, *apart, math.prod(x.shape[2:])))
