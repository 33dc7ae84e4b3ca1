"""Evaluates a graph in NumPy exactly as it is written, with inputs to do so and a measure of agreement."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from wsopt.agreement.figures import unsigned
from wsopt.graph.faults import Faults, hint, quote
from wsopt.graph.grouped import grouped_rows, offsets_to_try
from wsopt.graph.lengths import compared_extents, gathered_extents, indices_to_try, lengths_to_try
from wsopt.graph.meaning import cast_array
from wsopt.graph.ops import OPS
from wsopt.graph.types import DType, Graph, Input, Node, Operand, TensorType

Array = npt.NDArray[Any]

_BLOCK = 2**20


def evaluate(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs by name, each of its node's shape and dtype (`DType.numpy`, so i4 is int8).

    `inputs` holds an array of the declared shape and dtype for each input; strides do not matter.
    Arithmetic is in f32, and only casts round. Raises InputError if the arrays do not fit the graph.
    """
    check_inputs(graph, inputs)
    values: dict[str, Array] = {item.name: inputs[item.name] for item in graph.inputs}
    # A value is let go after its last use: graphs of large tensors have many.
    uses = Counter([*(name for node in graph.nodes for name in node.tensors), *graph.outputs])
    for node in graph.nodes:
        if uses[node.name]:
            values[node.name] = _evaluate_node(graph, node, values)
        for name in node.tensors:
            uses[name] -= 1
            if not uses[name]:
                del values[name]
    return {name: values[name] for name in graph.outputs}


def _evaluate_node(graph: Graph, node: Node, values: Mapping[str, Array]) -> Array:
    arrays = tuple(_operand(item, values) for item in node.inputs)
    words = [graph.type_of(one).dtype.value if isinstance(one, str) else "" for one in node.inputs]
    if unsigned(node.op, words):
        arrays = (arrays[0] & 15, *arrays[1:])
    result = np.asarray(OPS[node.op].evaluate(arrays, dict(node.attrs)))
    assert (result.shape, result.dtype) == (node.type.shape, node.type.dtype.numpy), node
    return result


def _operand(operand: Operand, values: Mapping[str, Array]) -> Array:
    return values[operand] if isinstance(operand, str) else operand_array(operand)


def operand_array(operand: int | float) -> Array:
    """A number among a node's operands, i32 or f32."""
    return np.asarray(operand, dtype=np.int32 if isinstance(operand, int) else np.float32)


def check_inputs(graph: Graph, inputs: Mapping[str, Array]) -> None:
    """Raise InputError unless the arrays have the names, shapes and dtypes that the graph declares."""
    faults = Faults(f"inputs of {graph.name}")
    names = [item.name for item in graph.inputs]
    for name in inputs:
        if name not in names:
            faults.add(f"/{name}", f"unknown input {quote(name)}{hint(name, names)}")
    for item in graph.inputs:
        if item.name not in inputs:
            faults.add(f"/{item.name}", f"missing; wants {item.type}")
            continue
        array, wanted = inputs[item.name], item.type
        if array.shape != wanted.shape or array.dtype != wanted.dtype.numpy:
            found = f"{array.dtype}{list(array.shape)}"
            faults.add(f"/{item.name}", f"found {found}; wants {wanted.dtype.numpy}{list(wanted.shape)}")
    faults.raise_any()


# --- inputs ---------------------------------------------------------------------------------------------


def random_inputs(graph: Graph, seed: int) -> dict[str, Array]:
    """Arrays for every input, the same for the same graph and seed.

    Floats are standard normal; constants that a matmul contracts are divided by the square root of the
    contracted extent, so that products of layers keep their size (not f8, whose range that would leave).
    Integers are -8..7, but for those that are compared with indices (`lengths_to_try`), are indices themselves
    (`indices_to_try`) or where groups of rows end (`offsets_to_try`); bools are fair coins. Strides are the input's.
    """
    compared, gathered, found = compared_extents(graph), gathered_extents(graph), dict[str, Array]()
    grouped = grouped_rows(graph)
    for index, item in enumerate(graph.inputs):
        rng = np.random.default_rng([seed, index])
        if item.name in compared:
            values = lengths_to_try(item.type.shape, compared[item.name], seed, rng)
        elif item.name in gathered:
            values = indices_to_try(item.type.shape, gathered[item.name], rng)
        elif item.name in grouped:
            values = offsets_to_try(item.type.shape, grouped[item.name], seed, rng)
        else:
            values = _random_array(item.type, rng, _scale(graph, item))
        found[item.name] = _placed(values, item.strides)
    return found


def _placed(values: Array, strides: tuple[int, ...] | None) -> Array:
    """The values with these strides (in elements) in memory; where a stride is 0 the last ones repeat."""
    if strides is None:
        return values
    reach = sum((extent - 1) * stride for extent, stride in zip(values.shape, strides, strict=True))
    memory = np.zeros((reach + 1) * values.itemsize, np.uint8)
    placed: Array = np.ndarray(
        values.shape, values.dtype, memory, strides=[stride * values.itemsize for stride in strides]
    )
    placed[...] = values
    return placed


def _random_array(tensor: TensorType, rng: np.random.Generator, scale: float) -> Array:
    if tensor.dtype is DType.BOOL:
        return rng.integers(0, 2, tensor.shape, dtype=np.int8).astype(np.bool_)
    if tensor.dtype.is_integer:
        return rng.integers(-8, 8, tensor.shape, dtype=np.int8).astype(tensor.dtype.numpy)
    values = np.asarray(rng.standard_normal(tensor.shape, dtype=np.float32))
    values *= np.float32(scale)
    return cast_array(values, tensor.dtype)


def _scale(graph: Graph, item: Input) -> float:
    if not item.constant or item.type.dtype.bits < 16:
        return 1.0
    for node in graph.consumers(item.name):
        if node.op in ("matmul", "grouped_matmul"):
            side = "transpose_a" if node.inputs[0] == item.name else "transpose_b"
            turned = side in dict(node.attrs) and node.attr(side, bool)
            is_last: bool = turned == (side == "transpose_b")
            return 1.0 / math.sqrt(item.type.shape[-1 if is_last else -2])
    return 1.0


# --- agreement ------------------------------------------------------------------------------------------


def relative_error(actual: Array, expected: Array) -> float:
    """|actual - expected| / |expected|, norms of all elements in f64.

    Infinities and nans have to stand at the same places, with the same sign; otherwise the error is
    infinite, as it is if all of `expected` is zero and `actual` is not. Raises ValueError if the shapes
    differ.
    """
    if actual.shape != expected.shape:
        raise ValueError(f"shapes differ: {actual.shape} and {expected.shape}")
    difference = norm = 0.0
    a, b = actual.reshape(-1), expected.reshape(-1)
    # In blocks, for f64 copies of whole tensors are large.
    for start in range(0, a.size, _BLOCK):
        x, y = (part[start : start + _BLOCK].astype(np.float64) for part in (a, b))
        finite = np.isfinite(y)
        if not np.array_equal(x[~finite], y[~finite], equal_nan=True) or not np.isfinite(x[finite]).all():
            return float("inf")
        difference += float(np.sum((x[finite] - y[finite]) ** 2))
        norm += float(np.sum(y[finite] ** 2))
    if norm == 0:
        return 0.0 if difference == 0 else float("inf")
    return float((difference / norm) ** 0.5)
