"""What a kernel is timed against: torch code of the same graph, run by cuBLAS, eager and Inductor."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from wsopt.gpu.eager_source import Inapplicable, eager_source
from wsopt.gpu.product_source import matmuls_source, scaled_mm_source
from wsopt.gpu.raw_graph import RawGraph

INDUCTOR_MODE = "max-autotune-no-cudagraphs"


@dataclass(frozen=True, slots=True)
class Baseline:
    """A way to compute a graph, or part of it.

    `call` takes the graph's inputs in order and returns a tuple; `complete` says that these are the
    graph's outputs in order, which can be compared with the reference.
    """

    name: str
    source: str
    call: Callable[..., tuple[Tensor, ...]]
    complete: bool

    def bind(self, graph: RawGraph, inputs: Mapping[str, Tensor]) -> Callable[[], tuple[Tensor, ...]]:
        """The call on these inputs."""
        arguments = [inputs[item.name] for item in graph.inputs]
        return lambda: self.call(*arguments)


def build_baseline(name: str, graph: RawGraph) -> Baseline:
    """The baseline of this name for a graph.

    Raises Inapplicable with the reason if the graph has no such counterpart, ValueError for a name
    that is no baseline.
    """
    match name:
        case "cublas":
            source = matmuls_source(graph)
            return Baseline(name, source, _function(source), complete=False)
        case "eager":
            source = eager_source(graph)
            return Baseline(name, source, _function(source), complete=True)
        case "inductor":
            source = eager_source(graph)
            # Left alone, Dynamo takes a second size for a hint that all are dynamic.
            torch._dynamo.reset()
            call = torch.compile(_function(source), mode=INDUCTOR_MODE, dynamic=False)
            return Baseline(name, source, call, complete=True)
        case "scaled_mm":
            source = scaled_mm_source(graph)
            return Baseline(name, source, _function(source), complete=True)
        case "sdpa":
            raise Inapplicable("no attention is recognised in the graph")
        case _:
            raise ValueError(f"no baseline {name!r}")


def _function(source: str) -> Callable[..., tuple[Tensor, ...]]:
    """The one function of a text that this package has written."""
    filename = f"<baseline {hash(source):x}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    names: dict[str, Any] = {"__name__": "wsopt_baseline", "torch": torch, "F": torch.nn.functional}
    exec(compile(source, filename, "exec"), names)
    found: Callable[..., tuple[Tensor, ...]] = names[source.removeprefix("def ").split("(", 1)[0]]
    return found
