"""Compiles a graph from Dynamo once more, when calls of it have begun already.

Extents that change are then still those of the first compilation: torch notes conditions of them while it compiles,
and nobody would check those that it notes late. What comes with such a condition is not used.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._guards import TracingContext, tracing

Compile = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]


def compiled_late(
    compile_: Compile, module: fx.GraphModule, args: Sequence[Any], context: TracingContext | None
) -> Callable[..., Any] | None:
    """What compiles a graph in the context of its first compilation gives for the arguments of a call; None where it
    notes conditions of extents that change.
    """
    inputs, env = as_first(module, args)
    before = _conditions(env)
    with tracing(context) if context else contextlib.nullcontext():
        found = compile_(module, inputs)
    return found if _conditions(env) == before else None


def as_first(module: fx.GraphModule, args: Sequence[Any]) -> tuple[list[Any], Any]:
    """The arguments of a call, with those that change as they were traced, and what holds torch's conditions of them;
    None if nothing changes.
    """
    inputs, env = list[Any](), None
    for node, given in zip(module.graph.find_nodes(op="placeholder"), args, strict=True):
        seen = node.meta.get("example_value")
        symbols = [one for one in _extents(seen) if isinstance(one, torch.SymInt)]
        env = symbols[0].node.shape_env if symbols else env
        inputs.append(seen if symbols else given)
    return inputs, env


def _extents(seen: Any) -> tuple[Any, ...]:
    return (*seen.shape, *seen.stride()) if isinstance(seen, torch.Tensor) else (seen,)


def _conditions(env: Any) -> int:
    return 0 if env is None else len(env.guards)
