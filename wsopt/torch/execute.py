"""What computes a piece: its kernel on a GPU, or the reference of its graph in torch, on any device."""

from __future__ import annotations

from functools import partial
from types import ModuleType

import torch

from wsopt.build import Build
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.types import Graph
from wsopt.ranges.build import RangeBuild
from wsopt.runtime.direct import Launch, direct
from wsopt.runtime.raw_graph import raw_graph
from wsopt.runtime.torch_reference import evaluate
from wsopt.torch.calls import Calls
from wsopt.torch.changing import Changing, Point
from wsopt.torch.laying import all_laid
from wsopt.torch.packing import with_packing
from wsopt.torch.piece import Piece


def referred(piece: Piece) -> Launch:
    """Computes a piece as its graph is written, at any extent."""
    if piece.changing is None:
        return by_reference(piece.graph)
    return Calls(piece.changing, lambda _extents, graph: by_reference(graph))


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


def by_kernel(piece: Piece, build: Build | RangeBuild) -> Launch:
    """Computes a piece by its kernel, on the current stream; by that for the extents of a call, where they change."""
    if isinstance(build, RangeBuild):
        assert piece.changing is not None, (
            "a build of several kernels is that of a piece whose extents change"
        )
        return Calls(piece.changing, partial(_within, build, piece.changing))
    launch = _by(build.module, piece.kernel)
    return launch if piece.folded is None else with_packing(piece.graph, piece.folded, launch)


def _within(build: RangeBuild, changing: Changing, extents: Point, graph: Graph) -> Launch:
    """Computes a graph by the kernel that serves its extents; as it is written where those are out of the ranges."""
    if not changing.holds(extents):
        return by_reference(graph)
    record = build.record
    return _by(build.module.KERNELS[record.serves[changing.cell(record.ends, extents)]], graph)


def _by(module: ModuleType, graph: Graph) -> Launch:
    names = [item.name for item in graph.inputs]
    return direct(module._LAUNCHER, names, graph.outputs, partial(all_laid, graph=graph))
