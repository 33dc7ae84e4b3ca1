"""What computes a piece: its kernel on a GPU, or the reference of its graph in torch, on any device."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from wsopt.build import Build
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.types import Graph
from wsopt.runtime.raw_graph import raw_graph
from wsopt.runtime.torch_reference import evaluate
from wsopt.torch.operators import Run


def by_reference(graph: Graph) -> Run:
    """Computes a graph as it is written, in f32 between casts."""
    raw = raw_graph(graph_to_json(graph))

    def run(*tensors: torch.Tensor) -> Sequence[torch.Tensor]:
        names = [item.name for item in raw.inputs]
        found = evaluate(raw, dict(zip(names, tensors, strict=True)))
        return [_own(found[name], tensors) for name in raw.outputs]

    return run


def _own(output: torch.Tensor, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """A dense tensor that shares no memory with an input, as an operator has to return it."""
    dense = output.contiguous()
    shared = any(dense.data_ptr() == one.data_ptr() for one in inputs)
    return dense.clone() if shared else dense


def by_kernel(graph: Graph, build: Build) -> Run:
    """Computes a graph by its kernel, on the current stream."""
    names, kernel = [item.name for item in graph.inputs], build.module

    def run(*tensors: torch.Tensor) -> Sequence[torch.Tensor]:
        found = kernel.run(**dict(zip(names, tensors, strict=True)))
        return found if isinstance(found, tuple) else (found,)

    return run
