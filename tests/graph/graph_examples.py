"""Small graphs that the tests start from, and changes to them by JSON pointer."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from wsopt.errors import InputError, Problem
from wsopt.graph import Graph, parse_graph

PROBLEMS = sorted((Path(__file__).parents[2] / "problems").glob("*.json"))
DROP = object()

MLP: dict[str, Any] = {
    "format": "wsopt.graph/1",
    "name": "mlp",
    "doc": "y = gelu(x @ w.T + b)",
    "inputs": [
        {"name": "x", "shape": [8, 16], "dtype": "bf16"},
        {"name": "w", "shape": [32, 16], "dtype": "bf16", "constant": True},
        {"name": "b", "shape": [32], "dtype": "bf16", "constant": True},
    ],
    "nodes": [
        {"name": "h", "op": "matmul", "inputs": ["x", "w"], "attrs": {"transpose_b": True}},
        {"name": "a", "op": "add", "inputs": ["h", "b"]},
        {"name": "g", "op": "gelu", "inputs": ["a"], "attrs": {"approximate": "tanh"}},
        {"name": "y", "op": "cast", "inputs": ["g"], "attrs": {"dtype": "bf16"}},
    ],
    "outputs": ["y"],
}


def changed(changes: dict[str, Any], base: dict[str, Any] = MLP) -> dict[str, Any]:
    """A copy with the values at these JSON pointers put, appended (`/-`) or dropped (`DROP`)."""
    graph = copy.deepcopy(base)
    for pointer, value in changes.items():
        *path, last = pointer.split("/")[1:]
        at: Any = graph
        for step in path:
            at = at[int(step)] if isinstance(at, list) else at[step]
        if value is DROP:
            del at[last]
        elif last == "-":
            at.append(copy.deepcopy(value))
        else:
            at[int(last) if isinstance(at, list) else last] = copy.deepcopy(value)
    return graph


def node(name: str, op: str, *inputs: Any, **attrs: Any) -> dict[str, Any]:
    """A node as it stands in a file."""
    return {"name": name, "op": op, "inputs": list(inputs), **({"attrs": attrs} if attrs else {})}


def single(op: str, *tensors: tuple[tuple[int, ...], str] | float | str, **attrs: Any) -> Graph:
    """The graph of one op, `y`, on inputs `x0`, `x1`, ... of these shapes and dtypes, or on scalars."""
    inputs, operands = [], []
    for index, tensor in enumerate(tensors):
        if isinstance(tensor, tuple):
            shape, dtype = tensor
            inputs.append({"name": f"x{index}", "shape": list(shape), "dtype": dtype})
            operands.append(f"x{index}")
        else:
            operands.append(tensor)
    head = {"format": "wsopt.graph/1", "name": "single", "inputs": inputs}
    return parse_graph({**head, "nodes": [node("y", op, *operands, **attrs)], "outputs": ["y"]}, "single")


def problems_of(call: Any, *args: Any, **kwargs: Any) -> tuple[Problem, ...]:
    """The faults in the InputError that the call raises."""
    with pytest.raises(InputError) as caught:
        call(*args, **kwargs)
    assert caught.value.exit_status == 2
    return caught.value.problems
