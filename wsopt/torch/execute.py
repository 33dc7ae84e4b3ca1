"""What computes a piece: its kernel on a GPU, or the reference of its graph in torch, on any device."""

from __future__ import annotations

from functools import partial

import torch

from wsopt.build import Build
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.types import Graph
from wsopt.runtime.direct import Launch, direct
from wsopt.runtime.raw_graph import raw_graph
from wsopt.runtime.torch_reference import evaluate
from wsopt.torch.operators import all_laid
from wsopt.torch.packing import with_packing
from wsopt.torch.pieces import Piece


def by_reference(graph: Graph) -> Launch:
    """Computes a graph as it is written, in f32 between casts."""
    raw = raw_graph(graph_to_json(graph))

    def launch(*tensors: torch.Tensor) -> None:
        count = len(raw.inputs)
        inputs = all_laid(tensors[:count], graph)
        found = evaluate(raw, dict(zip([item.name for item in raw.inputs], inputs, strict=True)))
        for name, output in zip(raw.outputs, tensors[count:], strict=True):
            output.copy_(found[name])

    return launch


def by_kernel(piece: Piece, build: Build) -> Launch:
    """Computes a piece by its kernel, on the current stream."""
    graph = piece.kernel
    names = [item.name for item in graph.inputs]
    launch = direct(build.module._LAUNCHER, names, graph.outputs, partial(all_laid, graph=graph))
    if piece.folded is None:
        return launch
    return with_packing(piece.graph, piece.folded, launch)
