"""Baselines of a kernel: torch code of the same graph, run by the libraries that people use."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from wsopt.bench.attention_source import (
    SDPA_BACKENDS,
    Call,
    attention_call,
    flash_attn_4_source,
    flex_source,
    sdpa_source,
)
from wsopt.bench.eager_source import Inapplicable, Missing, compiled_source, eager_source
from wsopt.bench.product_source import (
    copy_source,
    grouped_mm_source,
    matmuls_source,
    read_source,
    scaled_mm_source,
)
from wsopt.bench.raw_region import raw_region
from wsopt.runtime.raw_graph import RawGraph
from wsopt.runtime.torch_reference import compulsory_bytes, shapes

_FLEX = "def attend(*tensors, **options):\n    return flex_attention(*tensors, **options)\n"
INDUCTOR_MODE = "max-autotune-no-cudagraphs"
Outputs = tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Baseline:
    """A way to compute a graph, or part of it.

    `call` takes the graph's inputs in order and returns a tuple, or with `prepares` a function that does; what
    it made before is then not timed. `complete` says that the tuple is the graph's outputs in order, which can
    be compared with the reference.
    """

    name: str
    source: str
    call: Callable[..., Any]
    complete: bool
    prepares: bool = False

    def bind(self, graph: RawGraph, inputs: Mapping[str, Tensor]) -> Callable[[], Outputs]:
        """The call on these inputs."""
        arguments = [inputs[item.name] for item in graph.inputs]
        if self.prepares:
            launch: Callable[[], Outputs] = self.call(*arguments)
            return launch
        return lambda: self.call(*arguments)


def build_baseline(name: str, graph: RawGraph, schedule: Mapping[str, Any] | None = None) -> Baseline:
    """The baseline of this name for a graph; `schedule` is what schedule.json says of its build, if anything.

    Raises Inapplicable with the reason if the graph has no such counterpart, ValueError for a name
    that is no baseline.
    """
    match name:
        case "cublas":
            return _plain(name, matmuls_source(graph), complete=False)
        case "eager":
            return _plain(name, eager_source(graph))
        case "inductor":
            source = compiled_source(graph, {name: dtype for name, (_, dtype) in shapes(graph).items()})
            # Left alone, Dynamo takes a second size for a hint that all are dynamic.
            torch._dynamo.reset()
            call = torch.compile(_function(source), mode=INDUCTOR_MODE, dynamic=False)
            return Baseline(name, source, call, complete=True)
        case "scaled_mm":
            return _plain(name, scaled_mm_source(graph))
        case "grouped_mm":
            return _plain(name, grouped_mm_source(graph))
        case "copy":
            _check_bound_by_bytes(schedule or {})
            source = copy_source(graph, compulsory_bytes(graph))
            return Baseline(name, source, _function(source), complete=False, prepares=True)
        case "read":
            _check_bound_by_bytes(schedule or {})
            source = read_source(graph)
            return Baseline(
                name, source, _function(source, **_libraries(name)), complete=False, prepares=True
            )
        case _ if name in SDPA_BACKENDS:
            return _prepared(name, sdpa_source(_attention(graph, schedule), name))
        case "flex":
            return _prepared(name, flex_source(_attention(graph, schedule)))
        case "flash_attn_4":
            return _prepared(name, flash_attn_4_source(_attention(graph, schedule)))
        case _:
            raise ValueError(f"no baseline {name!r}")


def _plain(name: str, source: str, *, complete: bool = True) -> Baseline:
    return Baseline(name, source, _function(source), complete)


def _prepared(name: str, source: str) -> Baseline:
    return Baseline(name, source, _function(source, **_libraries(name)), complete=True, prepares=True)


def _attention(graph: RawGraph, schedule: Mapping[str, Any] | None) -> Call:
    """The attention of a graph, as libraries see it. Raises Inapplicable if it is none."""
    data = (schedule or {}).get("region")
    known = {name: shape for name, (shape, _) in shapes(graph).items()}
    return attention_call(graph, None if data is None else raw_region(data), known)


def check_computes(outputs: Outputs, inputs: Iterable[Tensor]) -> None:
    """Raise Inapplicable where nothing is computed: all outputs are views of inputs, as of a permutation."""
    given = {one.untyped_storage().data_ptr() for one in inputs}
    if outputs and all(one.untyped_storage().data_ptr() in given for one in outputs):
        raise Inapplicable("its outputs are views of the inputs: it moves no bytes")


def _check_bound_by_bytes(schedule: Mapping[str, Any]) -> None:
    """Raise Inapplicable unless the build says that its bytes take longer than its arithmetic."""
    try:
        roofline_us = schedule["schedule"]["prediction"]["roofline_us"]
        bytes_us = schedule["work"]["bytes"] / schedule["machine"]["dram_sustained_bandwidth"] * 1e6
    except KeyError as missing:
        raise Inapplicable("the build does not say what bounds the graph; compile it again") from missing
    if bytes_us < roofline_us:
        raise Inapplicable("the graph is bound by its arithmetic, not by its bytes")


# --- libraries ------------------------------------------------------------------------------------------


def _libraries(name: str) -> dict[str, Any]:
    """Functions that an attention's source text calls, by name. Raises Missing where a package is not there."""
    if name == "flash_attn_4":
        try:
            from flash_attn.cute import flash_attn_func
        except ImportError as error:
            raise Missing(f"flash-attn-4 is not installed here ({error})") from error
        return {"flash_attn_func": flash_attn_func}
    if name == "read":
        from wsopt.bench.reads import reading

        return {"reading": reading}
    if name == "flex":
        from torch.nn.attention import flex_attention as flex

        # A function of its own, for Dynamo counts how often one is compiled anew, and gives up.
        own = _function(_FLEX, flex_attention=flex.flex_attention)
        return {
            "flex_attention": torch.compile(own, mode=INDUCTOR_MODE, dynamic=False),
            "create_block_mask": flex.create_block_mask,
            "AuxRequest": flex.AuxRequest,
        }
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.attention.bias import causal_lower_right

    return {
        "SDPBackend": SDPBackend,
        "sdpa_kernel": sdpa_kernel,
        "causal_lower_right": causal_lower_right,
    }


def _function(source: str, **known: Any) -> Callable[..., Any]:
    """The one function of a text that this package has written."""
    filename = f"<baseline {hash(source):x}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    # No `__name__`: Dynamo would import the module that it names.
    names: dict[str, Any] = {"torch": torch, "F": torch.nn.functional, **known}
    exec(compile(source, filename, "exec"), names)
    found: Callable[..., Any] = names[source.removeprefix("def ").split("(", 1)[0]]
    return found
