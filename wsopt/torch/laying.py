"""How tensors of pieces lie in memory: results densely, inputs as a graph declares them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from wsopt.graph.types import DType, Graph, Input, row_major_strides
from wsopt.torch.dtypes import DTYPES
from wsopt.torch.inductor import Layout

_TORCH = {ours: theirs for theirs, ours in DTYPES.items()}


def torch_dtype(dtype: DType) -> torch.dtype:
    """Torch's element type for ours."""
    return _TORCH[dtype]


def layouts_of(graph: Graph) -> tuple[Layout, ...]:
    """How a graph's outputs lie: densely."""
    types = [graph.type_of(output) for output in graph.outputs]
    return tuple((one.shape, row_major_strides(one.shape), _TORCH[one.dtype]) for one in types)


def empty(layouts: Sequence[Layout], device: Any) -> tuple[torch.Tensor, ...]:
    """New tensors with nothing in them."""
    return tuple(
        [torch.empty_strided(shape, strides, dtype=dtype, device=device) for shape, strides, dtype in layouts]
    )


ALIGNMENT = 16
"""Bytes of which a tensor's address is a multiple, as TMA wants it."""


def all_laid(tensors: Sequence[torch.Tensor], graph: Graph) -> tuple[torch.Tensor, ...]:
    """Tensors as a graph's inputs are declared."""
    return tuple(laid(tensor, item) for tensor, item in zip(tensors, graph.inputs, strict=True))


def laid(tensor: torch.Tensor, item: Input) -> torch.Tensor:
    """A tensor as its input is declared: in its strides, at an aligned address. Itself where it lies so."""
    wanted = item.element_strides
    moving = zip(tensor.shape, tensor.stride(), wanted, strict=True)
    if (
        all(found == want for extent, found, want in moving if extent > 1)
        and not tensor.data_ptr() % ALIGNMENT
    ):
        return tensor
    copy = torch.empty_strided(item.type.shape, wanted, dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(tensor)
