"""Evaluates a graph in torch exactly as it is written, on any device, and measures agreement with it."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from wsopt.agreement.figures import unsigned
from wsopt.runtime.raw_graph import Operand, RawGraph, RawNode, bytes_of
from wsopt.runtime.torch_ops import MEANINGS, TORCH_DTYPES, Arithmetic


def evaluate(
    graph: RawGraph, inputs: Mapping[str, Tensor], *, real: torch.dtype = torch.float32
) -> dict[str, Tensor]:
    """The outputs by name, from inputs in their declared dtypes (i4 packed in uint8, low nibble first).

    Arithmetic is in `real`, f32 or f64; only casts round. An output that is not cast is in `real`.
    """
    device = next((item.device for item in inputs.values()), torch.device("cpu"))
    arithmetic = Arithmetic(real, device)
    values = {item.name: unpacked(inputs[item.name], item.dtype) for item in graph.inputs}
    words = {item.name: item.dtype for item in graph.inputs}
    # A value is let go after its last use: graphs of large tensors have many.
    uses = Counter([*(name for node in graph.nodes for name in node.tensors), *graph.outputs])
    with exact_products(), torch.no_grad():
        for node in graph.nodes:
            values[node.name] = _value(arithmetic, node, values, words)
            for name in (*node.tensors, *(() if uses[node.name] else (node.name,))):
                uses[name] -= 1
                if uses[name] <= 0:
                    values.pop(name, None)
    return {name: values[name] for name in graph.outputs}


def _value(
    arithmetic: Arithmetic, node: RawNode, values: Mapping[str, Tensor], words: Mapping[str, str]
) -> Tensor:
    """The value of a node; `words` are the inputs' types."""
    tensors = [_operand(item, values, arithmetic) for item in node.inputs]
    if unsigned(node.op, [words.get(str(item), "") for item in node.inputs]):
        tensors[0] = tensors[0] & 15
    return MEANINGS[node.op](arithmetic, tensors, node.attrs)


def _operand(operand: Operand, values: Mapping[str, Tensor], arithmetic: Arithmetic) -> Tensor:
    return values[operand] if isinstance(operand, str) else operand_tensor(operand, arithmetic)


def operand_tensor(operand: float, arithmetic: Arithmetic) -> Tensor:
    """A number among a node's operands, i32 or f32."""
    dtype = torch.int32 if isinstance(operand, int) else torch.float32
    return torch.tensor(operand, dtype=dtype, device=arithmetic.device)


def unpacked(tensor: Tensor, dtype: str) -> Tensor:
    """The elements of an input, i4 one to a byte."""
    if dtype != "i4":
        return tensor
    low, high = tensor.view(torch.int8) << 4 >> 4, tensor.view(torch.int8) >> 4
    return torch.stack((low, high), dim=-1).reshape(*tensor.shape[:-1], -1)


@contextlib.contextmanager
def exact_products() -> Iterator[None]:
    """While this lasts, torch multiplies f32 matrices in f32."""
    # On a GPU the product of f32 matrices may be done in tf32, which is no reference.
    matmul, setting = torch.backends.cuda.matmul, _f32_setting()
    saved = getattr(matmul, setting)
    setattr(matmul, setting, _EXACT[setting])
    try:
        yield
    finally:
        setattr(matmul, setting, saved)


def multiplies_in_tf32() -> bool:
    """Whether torch may multiply f32 matrices in tf32."""
    setting = _f32_setting()
    return bool(getattr(torch.backends.cuda.matmul, setting) != _EXACT[setting])


_EXACT = {"allow_tf32": False, "fp32_precision": "ieee"}
"""torch's settings of how f32 matrices are multiplied, the older one first, and what they are for products in f32."""


def _f32_setting() -> str:
    """The setting that is in use: reading the older one fails where the newer one was set."""
    try:
        torch.backends.cuda.matmul.allow_tf32  # noqa: B018
    except RuntimeError:
        return "fp32_precision"
    return "allow_tf32"


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """|actual - expected| / |expected|, norms of all elements in f64.

    Infinities and nans have to stand at the same places, with the same sign; otherwise, or if the shapes
    differ, or if all of `expected` is zero and `actual` is not, the error is infinite.
    """
    if actual.shape != expected.shape:
        return float("inf")
    x, y = actual.double(), expected.double()
    finite = torch.isfinite(y)
    same = (x == y) | (torch.isnan(x) & torch.isnan(y))
    if not bool(torch.where(finite, torch.isfinite(x), same).all()):
        return float("inf")
    zero = torch.zeros((), dtype=torch.float64, device=y.device)
    difference = float(torch.linalg.vector_norm(torch.where(finite, x - y, zero)))
    norm = float(torch.linalg.vector_norm(torch.where(finite, y, zero)))
    if norm == 0:
        return 0.0 if difference == 0 else float("inf")
    return difference / norm


# --- how much work a graph is ---------------------------------------------------------------------------


def shapes(graph: RawGraph) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype word of every tensor of the graph, found without computing any."""
    words = {dtype: word for word, dtype in TORCH_DTYPES.items() if word != "i4"}
    device = torch.device("meta")
    arithmetic = Arithmetic(torch.float32, device)
    values = {
        item.name: torch.empty(item.shape, dtype=TORCH_DTYPES[item.dtype], device=device)
        for item in graph.inputs
    }
    for node in graph.nodes:
        values[node.name] = _value(arithmetic, node, values, {})
    return {name: (tuple(value.shape), words[value.dtype]) for name, value in values.items()}


def flops(graph: RawGraph) -> int:
    """Floating-point operations of the matmuls, two a multiply-add; nothing else is counted."""
    known = shapes(graph)
    total = 0
    for node in graph.nodes:
        if node.op in ("matmul", "grouped_matmul"):
            size = 2
            for extent in known[node.name][0]:
                size *= extent
            operand = known[str(node.inputs[0])][0]
            total += size * (operand[-2] if node.flag("transpose_a") else operand[-1])
    return total


def compulsory_bytes(graph: RawGraph) -> int:
    """Each input read once and each output written once."""
    known = shapes(graph)
    return sum(item.nbytes for item in graph.inputs) + sum(bytes_of(*known[name]) for name in graph.outputs)
