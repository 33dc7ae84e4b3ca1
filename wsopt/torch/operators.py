"""Pieces as operators of torch, which compilers of FX graphs see as one call with known results."""

from __future__ import annotations

import threading
from typing import Any

import torch

from wsopt.graph.types import Graph
from wsopt.runtime.direct import Launch
from wsopt.torch.calls import Calls, fixed
from wsopt.torch.inductor import lower_directly
from wsopt.torch.laying import all_laid, empty, layouts_of

_LOCK = threading.Lock()
LIBRARY = torch.library.Library("wsopt", "FRAGMENT")
_OPERATORS: dict[str, Any] = {}


def operator(name: str, graph: Graph, launch: Launch) -> Any:
    """`torch.ops.wsopt.NAME`, made once: one tensor or several, dense, of the graph's shapes and types.

    Where extents change the launch is `Calls`, which says of every call how its results lie.
    """
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

    layouts = launch.layouts if isinstance(launch, Calls) else fixed(layouts_of(graph))
    wanted = tuple(item.element_strides for item in graph.inputs)

    def fake(*tensors: torch.Tensor) -> Any:
        found = empty(layouts(x.shape for x in tensors), tensors[0].device)
        return found[0] if len(found) == 1 else found

    def call(*tensors: torch.Tensor) -> Any:
        # Anybody may call an operator, with tensors that lie in another way at addresses that are known.
        if isinstance(launch, Calls):
            tensors = launch.laid(*tensors)
        elif any(x.stride() != want for x, want in zip(tensors, wanted, strict=True)):
            tensors = all_laid(tensors, graph)
        found = empty(layouts(x.shape for x in tensors), tensors[0].device)
        launch(*tensors, *found)
        return found[0] if len(found) == 1 else found

    LIBRARY.impl(name, call, "CompositeExplicitAutograd")
    torch.library.register_fake(f"wsopt::{name}", fake, lib=LIBRARY)
    found = getattr(torch.ops.wsopt, name).default
    lower_directly(found, name, launch, layouts, several=len(results) > 1)
    return found
