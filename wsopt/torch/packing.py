"""Constants that a kernel reads packed: made by the piece's prepack at its first call, and again after a change.

A change in place of a tensor that they are made of is seen by torch's version counters. What is captured in a CUDA
graph is replayed without a look at them, so nothing is packed unless the user has said that weights are frozen.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from wsopt.errors import RequirementError
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.types import Graph
from wsopt.partition.constants import Folded
from wsopt.runtime.direct import Launch
from wsopt.runtime.raw_graph import raw_graph
from wsopt.runtime.torch_reference import evaluate

Tensors = tuple[torch.Tensor, ...]
_Versions = tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class _Entry:
    """What was packed of tensors in these versions; the tensors themselves are not kept alive for it."""

    versions: _Versions
    sources: tuple[weakref.ref[torch.Tensor], ...]
    packed: Tensors


@dataclass(slots=True)
class Packs:
    """The packed constants of every set of tensors that one kernel is called with, as of all layers of a model."""

    pack: Callable[[Sequence[torch.Tensor]], Tensors]
    _entries: dict[tuple[int, ...], _Entry] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, sources: Tensors) -> Tensors:
        """What these tensors come to, packed now if it was not, or not in their present versions."""
        key, versions = tuple([one.data_ptr() for one in sources]), _versions(sources)
        found = self._entries.get(key)
        if found is not None and found.versions == versions:
            return found.packed
        on_gpu = sources[0].is_cuda
        if on_gpu and torch.cuda.is_current_stream_capturing():
            raise RequirementError(
                "weights are packed when a model is called, and again when they were written to, which a CUDA graph "
                "cannot hold; call the model once before it is captured"
            )
        with self._lock:
            packed = self.pack(sources)
            if on_gpu:  # other streams may read it from now on, and kernels before those ahead of them end
                torch.cuda.current_stream(packed[0].device).synchronize()
            owners = [one if one._base is None else one._base for one in sources]
            gone = lambda _ref: self._entries.pop(key, None)  # noqa: E731
            refs = tuple(weakref.ref(owner, gone) for owner in owners)
            self._entries[key] = _Entry(versions, refs, packed)
        return packed


def _versions(tensors: Tensors) -> _Versions:
    """How often each was written to; None where torch does not count that, and they are taken for unchanged."""
    return None if any(one.is_inference() for one in tensors) else tuple([one._version for one in tensors])


def prepacked(prepack: Graph) -> Callable[[Sequence[torch.Tensor]], Tensors]:
    """A function of a prepack's inputs, in order, that makes its outputs, densely, where the inputs are."""
    raw = raw_graph(graph_to_json(prepack))

    def pack(tensors: Sequence[torch.Tensor]) -> Tensors:
        names = [one.name for one in prepack.inputs]
        found = evaluate(raw, dict(zip(names, tensors, strict=True)))
        return tuple(found[name].contiguous() for name in prepack.outputs)

    return pack


def with_packing(graph: Graph, folded: Folded, launch: Launch) -> Launch:
    """Calls of a kernel that reads packed constants, with the tensors that the whole `graph` reads."""
    place = {one.name: number for number, one in enumerate(graph.inputs)}
    sources = [place[one.name] for one in folded.prepack.inputs]
    packs, count = Packs(prepacked(folded.prepack)), len(graph.inputs)
    made = {name: number for number, name in enumerate(folded.prepack.outputs)}
    order = [(one.name in made, made.get(one.name, place.get(one.name, 0))) for one in folded.main.inputs]

    def launch_packed(*tensors: Any) -> None:
        packed = packs.of(tuple([tensors[number] for number in sources]))
        inputs = [packed[number] if is_packed else tensors[number] for is_packed, number in order]
        launch(*inputs, *tensors[count:])

    return launch_packed
