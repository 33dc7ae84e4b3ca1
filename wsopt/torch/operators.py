"""Pieces as operators of torch, which compilers of FX graphs see as one call with known results."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from wsopt.graph.types import Graph, Input
from wsopt.torch.dtypes import DTYPES

_LOCK = threading.Lock()
_LIBRARY = torch.library.Library("wsopt", "FRAGMENT")
_OPERATORS: dict[str, Any] = {}
_TORCH = {ours: theirs for theirs, ours in DTYPES.items()}

Run = Callable[..., Sequence[torch.Tensor]]
"""Computes a piece's outputs, in order, from its inputs, in order."""


def operator(name: str, graph: Graph, run: Run) -> Any:
    """`torch.ops.wsopt.NAME`, made once: one tensor or several, dense, of the graph's shapes and types."""
    with _LOCK:
        if name not in _OPERATORS:
            _OPERATORS[name] = _defined(name, graph, run)
        return _OPERATORS[name]


def _defined(name: str, graph: Graph, run: Run) -> Any:
    results = ["Tensor"] * len(graph.outputs)
    told = results[0] if len(results) == 1 else f"({', '.join(results)})"
    parameters = ", ".join(f"Tensor {one.name}" for one in graph.inputs)
    tags = torch.Tag
    strides = getattr(tags, "needs_exact_strides", tags.needs_fixed_stride_order)
    _LIBRARY.define(f"{name}({parameters}) -> {told}", tags=(tags.pt2_compliant_tag, strides))

    wanted = tuple(item.element_strides for item in graph.inputs)

    def call(*tensors: torch.Tensor) -> Any:
        # What lies as it is declared, as most of it does in most calls, is seen at a glance.
        if any(
            x.stride() != want or x.data_ptr() % ALIGNMENT for x, want in zip(tensors, wanted, strict=True)
        ):
            tensors = tuple(laid(x, item) for x, item in zip(tensors, graph.inputs, strict=True))
        found = tuple(run(*tensors))
        return found[0] if len(found) == 1 else found

    def fake(*tensors: torch.Tensor) -> Any:
        found = tuple(_empty(graph, output, tensors[0].device) for output in graph.outputs)
        return found[0] if len(found) == 1 else found

    _LIBRARY.impl(name, call, "CompositeExplicitAutograd")
    torch.library.register_fake(f"wsopt::{name}", fake, lib=_LIBRARY)
    return getattr(torch.ops.wsopt, name).default


def _empty(graph: Graph, output: str, device: Any) -> torch.Tensor:
    found = graph.type_of(output)
    return torch.empty(found.shape, dtype=_TORCH[found.dtype], device=device)


ALIGNMENT = 16
"""Bytes of which a tensor's address is a multiple, as TMA wants it."""


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
