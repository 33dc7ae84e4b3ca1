"""Expected outputs of a graph in torch, with error bounds by element, and the verdict on a kernel's outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from wsopt.agreement.figures import Errors, Figure, Kit, Step, as_read
from wsopt.agreement.judge import Agreement, Expected, appraise, expectation, judge
from wsopt.agreement.sums import coarse_nodes
from wsopt.runtime.blocks import Axes, Key, Plan, plan
from wsopt.runtime.raw_graph import RawGraph, RawNode
from wsopt.runtime.torch_ops import MEANINGS, TORCH_DTYPES, Arithmetic
from wsopt.runtime.torch_reference import exact_products, operand_tensor, relative_error, shapes, unpacked

BLOCK_BYTES = 2 * 2**30
"""Bytes of the tensors of one block in f32. Each has bounds beside it, and some are held at a time."""

_WORDS = {dtype: word for word, dtype in TORCH_DTYPES.items() if word != "i4"}
_FLOATS = ("f32", "f16", "bf16", "f8e4m3", "f8e5m2")


def expectations(
    graph: RawGraph,
    inputs: Mapping[str, Tensor],
    *,
    real: torch.dtype = torch.float32,
    block_bytes: int = BLOCK_BYTES,
) -> dict[str, Expected]:
    """The outputs by name as `torch_reference.evaluate` gives them, each with the errors of a right kernel.

    Computed in `real`, f32 or f64, block by block where intermediate tensors take more than `block_bytes`.
    """
    work = _Work.of(graph, inputs, real)
    with exact_products(), torch.no_grad():
        sizes = {name: shape for name, (shape, _) in shapes(graph).items()}
        found = plan(graph, sizes)
        if found is None:
            figures = work.whole(tuple(node.name for node in graph.nodes))
            return {name: work.expected((name, None), figures) for name in graph.outputs}
        whole, parts = work.whole(found.whole), list[dict[str, Expected]]()
        step = _block(found, sizes, block_bytes)
        for start in range(0, found.extent, step):
            figures = work.block(found, whole, start, min(step, found.extent - start))
            parts.append({key[0]: work.expected(key, figures) for key in found.outputs})
        axis = found.outputs[0][1]
        return {name: _joined([part[name] for part in parts], axis or 0) for name in graph.outputs}


def agreement(actual: Tensor, expected: Expected, tolerance: float) -> Agreement:
    """Compare an output with the expected one; `tolerance` is on relative norms."""
    with torch.no_grad():
        return judge(_kit(torch.float32, actual.device), actual, expected, tolerance, relative_error)


def _kit(real: torch.dtype, device: torch.device) -> Kit:
    return Kit(
        torch,
        lambda x: torch.as_tensor(x, device=device).to(real),
        lambda x: torch.as_tensor(x, device=device).to(torch.float64),
    )


def _block(found: Plan, sizes: Mapping[str, tuple[int, ...]], block_bytes: int) -> int:
    """Elements of the axis in one block."""
    elements = sum(math.prod(sizes[node.name]) for node, _, _ in found.sliced)
    return max(1, found.extent * block_bytes // max(1, 4 * elements))


def _joined(parts: list[Expected], axis: int) -> Expected:
    """The blocks of one output put together."""
    if len(parts) == 1:
        return parts[0]

    def join(field: str) -> Any:
        pieces = [getattr(part, field) for part in parts]
        if all(piece is None for piece in pieces):
            return None
        like = next(piece for piece in pieces if piece is not None).dtype
        shaped = zip(pieces, parts, strict=True)
        full = [
            torch.zeros_like(part.centre, dtype=like) if piece is None else piece for piece, part in shaped
        ]
        return torch.cat(full, axis)

    return replace(parts[0], **{field: join(field) for field in ("value", "centre", "allowed", "flip")})


@dataclass(frozen=True, slots=True)
class _Work:
    """A graph with its inputs and what nodes are computed with."""

    graph: RawGraph
    inputs: Mapping[str, Figure]
    arithmetic: Arithmetic
    kit: Kit
    coarse: frozenset[str]
    words: Mapping[str, str]

    @classmethod
    def of(cls, graph: RawGraph, inputs: Mapping[str, Tensor], real: torch.dtype) -> _Work:
        device = next((item.device for item in inputs.values()), torch.device("cpu"))
        words = {name: word for name, (_, word) in shapes(graph).items()}
        figures = {
            item.name: Figure(unpacked(inputs[item.name], item.dtype), Errors(), item.dtype)
            for item in graph.inputs
        }
        coarse = coarse_nodes(graph.nodes, graph.outputs, words)
        return cls(graph, figures, Arithmetic(real, device), _kit(real, device), coarse, words)

    def whole(self, names: tuple[str, ...]) -> dict[Key, Figure]:
        """The inputs and the nodes of these names, which stand in order."""
        known: dict[Key, Figure] = {(name, None): figure for name, figure in self.inputs.items()}
        for name in names:
            node = self.graph.node(name)
            assert node is not None
            known[name, None] = self._figure(node, self._operands(node, (None,) * len(node.inputs), known))
        return known

    def block(self, found: Plan, whole: Mapping[Key, Figure], start: int, size: int) -> dict[Key, Figure]:
        """The sliced nodes of `size` elements of the axis from `start` on. What is not needed again is let go."""
        known: dict[Key, Figure] = dict(whole)
        kept = {
            *found.outputs,
            *((source, axis) for name, axis in found.outputs if (source := self._source(name))),
        }
        last = {key: index for index, (node, _, axes) in enumerate(found.sliced) for key in _keys(node, axes)}
        for index, (node, axis, axes) in enumerate(found.sliced):
            for key in _keys(node, axes):
                if key not in known:
                    known[key] = _narrowed(self.inputs[key[0]], key[1] or 0, start, size)
            figure = self._figure(_resized(node, axis, size), self._operands(node, axes, known))
            known[node.name, axis] = _narrowed(figure, axis, start, size) if node.op == "iota" else figure
            for key in _keys(node, axes):
                if last[key] == index and key[1] is not None and key not in kept:
                    known.pop(key, None)
        return known

    def _operands(self, node: RawNode, axes: Axes, known: Mapping[Key, Figure]) -> tuple[Figure, ...]:
        return tuple(
            known[item, axis]
            if isinstance(item, str)
            else Figure(
                operand_tensor(item, self.arithmetic), Errors(), "i32" if isinstance(item, int) else "f32"
            )
            for item, axis in zip(node.inputs, axes, strict=True)
        )

    def _figure(self, node: RawNode, operands: tuple[Figure, ...]) -> Figure:
        operands = as_read(node.op, operands)
        value = MEANINGS[node.op](self.arithmetic, [item.value for item in operands], node.attrs)
        step = Step(node.op, node.attrs, self.words[node.name], value, node.name in self.coarse)
        return appraise(self.kit, step, operands)

    def _source(self, name: str) -> str | None:
        """Name of the value that an output is cast from, if a cast to a float makes the output."""
        node = self.graph.node(name)
        if node is None or node.op != "cast" or self.words[name] not in _FLOATS:
            return None
        source = node.inputs[0]
        return source if isinstance(source, str) and self.words[source] in _FLOATS else None

    def expected(self, key: Key, known: Mapping[Key, Figure]) -> Expected:
        """An output, whole or a block of it. One that the graph does not cast is f32."""
        source = self._source(key[0])
        figure = known[key]
        if figure.value.dtype == torch.float64:
            figure = replace(figure, value=figure.value.float())
        return expectation(self.kit, figure, known.get((source, key[1])) if source else None)


def _keys(node: RawNode, axes: Axes) -> list[Key]:
    pairs = zip(node.inputs, axes, strict=True)
    return [(item, axis) for item, axis in pairs if isinstance(item, str)]


def _narrowed(figure: Figure, axis: int, start: int, size: int) -> Figure:
    return replace(figure, value=figure.value.narrow(axis, start, size))


def _resized(node: RawNode, axis: int, size: int) -> RawNode:
    """A reshape to the block's extents."""
    if node.op != "reshape":
        return node
    shape = list(node.attrs["shape"])
    shape[axis] = size
    return replace(node, attrs={**node.attrs, "shape": shape})
