"""Times a piece's kernel beside what Inductor makes of the same part of the FX graph, on this machine's GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

import torch
from torch import fx

from wsopt.bench.cuda_clock import CudaClock
from wsopt.bench.timing import Clock, Contestant, TimingOptions, measure
from wsopt.build import Build
from wsopt.errors import RequirementError
from wsopt.runtime.direct import Launch
from wsopt.torch.execute import by_kernel
from wsopt.torch.laying import empty, laid, layouts_of
from wsopt.torch.piece import Bound, Piece

LIMIT_S = 20.0
"""Seconds after which a sample counts as a hang."""
ROUNDS = TimingOptions(rounds=7, sample_ms=3.0, warm_up_ms=100.0)

Compile = Callable[[fx.GraphModule, Sequence[torch.Tensor]], Callable[..., Any]]


def measured_us(piece: Piece, build: Build) -> tuple[float, float]:
    """Microseconds of a piece's kernel and of what Inductor makes of it, in turns; medians.

    Raises RequirementError without a GPU.
    """
    if not torch.cuda.is_available():
        raise RequirementError(
            "torch sees no GPU here, and a measurement needs one; take 'predicted' needs none"
        )
    return in_a_thread(piece, by_kernel(piece, build), "cuda", CudaClock(LIMIT_S))


def in_a_thread(piece: Piece, launch: Launch, device: str, clock: Clock) -> tuple[float, float]:
    """As `compared`, in a thread of its own: where a graph is being compiled, tensors of this one are fake."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(compared, piece, launch, device, clock, _inductor).result()


def _inductor(module: fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Callable[..., Any]:
    from torch._inductor import compile as compiled

    found: Callable[..., Any] = compiled(module, list(inputs))
    return found


def compared(
    piece: Piece, launch: Launch, device: str, clock: Clock, compile_usual: Compile
) -> tuple[float, float]:
    """Microseconds of `launch` and of the part of the FX graph, compiled the usual way, on random inputs."""
    with torch.no_grad():
        module, sources = usual(piece)
        given = [_random(source, device, seed) for seed, source in enumerate(sources)]
        of = dict(zip(sources, given, strict=True))
        inputs = [
            laid(_seen(of[bound.source], bound), item)
            for bound, item in zip(piece.inputs, piece.graph.inputs, strict=True)
        ]
        layouts, theirs = layouts_of(piece.graph), compile_usual(module, given)
        contestants = [
            Contestant("ours", (lambda: launch(*inputs, *empty(layouts, device)),)),
            Contestant("theirs", (lambda: theirs(*given),)),
        ]
        found = measure(contestants, clock, ROUNDS)
    return median(found["ours"]), median(found["theirs"])


def _seen(tensor: torch.Tensor, bound: Bound) -> torch.Tensor:
    """An FX node's tensor as a piece reads it."""
    tensor = tensor.to(torch.int32) if tensor.dtype is torch.int64 else tensor
    if bound.dims is not None:
        atoms = [atom for dim in bound.dims for atom in dim]
        tensor = tensor.reshape([atom.extent for atom in atoms])
        tensor = tensor[tuple(slice(0, 1) if atom.repeated else slice(None) for atom in atoms)]
    if bound.spread is not None:
        seen, repeated = bound.spread
        tensor = tensor.to(bound.dtype).reshape(seen).expand(repeated)
    tensor = tensor.reshape(bound.unordered)
    return tensor if bound.order is None else tensor.permute(bound.order)


def usual(piece: Piece) -> tuple[fx.GraphModule, list[fx.Node]]:
    """The part of the FX graph that a piece computes, as a module, and the FX nodes that are its inputs."""
    sources = list(dict.fromkeys(bound.source for bound in piece.inputs))
    graph = fx.Graph()
    known = {source: graph.placeholder(source.name) for source in sources}

    def copied(node: fx.Node) -> fx.Node:
        if node not in known:
            for one in node.all_input_nodes:
                copied(one)
            known[node] = graph.node_copy(node, known.__getitem__)
        return known[node]

    graph.output(tuple(copied(node) for node in piece.outputs))
    owner = piece.outputs[0].graph.owning_module
    return fx.GraphModule(owner if owner is not None else torch.nn.Module(), graph), sources


def _random(source: fx.Node, device: str, seed: int) -> torch.Tensor:
    """A tensor as an FX node's lies, of standard normal numbers; of whole ones where it has integers."""
    val = source.meta["val"]
    generator = torch.Generator(device=device).manual_seed(seed)
    found = torch.empty_strided(tuple(val.shape), val.stride(), dtype=val.dtype, device=device)
    if not val.dtype.is_floating_point:
        return found.copy_(torch.randint(0, 2, tuple(val.shape), generator=generator, device=device))
    return found.copy_(torch.randn(tuple(val.shape), generator=generator, device=device))
