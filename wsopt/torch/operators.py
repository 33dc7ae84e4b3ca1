"""Pieces as operators of torch, which compilers of FX graphs see as one call with known results."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch

from wsopt.graph.types import Graph, Input, row_major_strides
from wsopt.runtime.direct import Launch
from wsopt.torch.dtypes import DTYPES
from wsopt.torch.inductor import Layout, lower_directly

_LOCK = threading.Lock()
LIBRARY = torch.library.Library("wsopt", "FRAGMENT")
_OPERATORS: dict[str, Any] = {}
_TORCH = {ours: theirs for theirs, ours in DTYPES.items()}


def operator(name: str, graph: Graph, launch: Launch) -> Any:
    """`torch.ops.wsopt.NAME`, made once: one tensor or several, dense, of the graph's shapes and types."""
    with _LOCK:
        if name not in _OPERATORS:
            _OPERATORS[name] = _defined(name, graph, launch)
        return _OPERATORS[name]


def _defined(name: str, graph: Graph, launch: Launch) -> Any:
    results = ["Tensor"] * len(graph.outputs)
    told = results[0] if len(results) == 1 else f"({', '.join(results)})"
    parameters = ", ".join(f"Tensor {one.name}" for one in graph.inputs)
    tags = torch.Tag
    strides = getattr(tags, "needs_exact_strides", tags.needs_fixed_stride_order)
    LIBRARY.define(f"{name}({parameters}) -> {told}", tags=(tags.pt2_compliant_tag, strides))

    layouts, wanted = layouts_of(graph), tuple(item.element_strides for item in graph.inputs)

    def fake(*tensors: torch.Tensor) -> Any:
        found = empty(layouts, tensors[0].device)
        return found[0] if len(found) == 1 else found

    def call(*tensors: torch.Tensor) -> Any:
        # Anybody may call an operator, with tensors that lie in another way at addresses that are known.
        if any(x.stride() != want for x, want in zip(tensors, wanted, strict=True)):
            tensors = all_laid(tensors, graph)
        found = empty(layouts, tensors[0].device)
        launch(*tensors, *found)
        return found[0] if len(found) == 1 else found

    LIBRARY.impl(name, call, "CompositeExplicitAutograd")
    torch.library.register_fake(f"wsopt::{name}", fake, lib=LIBRARY)
    found = getattr(torch.ops.wsopt, name).default
    lower_directly(found, name, launch, layouts)
    return found


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
