"""Random inputs of a graph on a device, poisoned outputs, and what both take in memory."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from wsopt.runtime.grouped import drawn_offsets, equal_offsets, grouped_rows
from wsopt.runtime.raw_graph import RawGraph, RawInput, compared_extents, gathered_extents
from wsopt.runtime.torch_ops import F8_LARGEST, TORCH_DTYPES, cast_tensor


def random_inputs(graph: RawGraph, seed: int, device: str, *, ragged: bool = False) -> dict[str, Tensor]:
    """Tensors for every input, the same for the same graph, seed and kind of device.

    Floats are standard normal; constants that a matmul contracts are divided by the square root of the
    contracted extent, so that products keep their size (not f8, whose range that would leave). Integers
    are -8..7, but lengths, which are compared with indices, 0 to the axis' extent, and indices places of their axis,
    each once if there are so many, for what is read twice would come from L2. Groups whose ends are offsets have
    equally many rows, as for a measurement, or are `ragged`; bools are fair coins, i4 two to a byte.
    """
    tensors, compared, gathered = {}, compared_extents(graph), gathered_extents(graph)
    grouped = grouped_rows(graph)
    for index, item in enumerate(graph.inputs):
        generator = torch.Generator(device=device).manual_seed(1009 * seed + index)
        if item.name in compared:
            most = compared[item.name] + 1
            found = torch.randint(0, most, item.shape, generator=generator, device=device).to(torch.int32)
        elif item.name in gathered:
            found = _places(item, gathered[item.name], generator, device)
        elif item.name in grouped:
            rows = grouped[item.name]
            found = (
                drawn_offsets(item.shape, rows, seed, generator)
                if ragged
                else equal_offsets(item.shape, rows, device)
            )
        else:
            found = _random(item, _scale(graph, item), generator, device)
        tensors[item.name] = _strided(found, item)
    return tensors


def _places(item: RawInput, extent: int, generator: torch.Generator, device: str) -> Tensor:
    """Places of an axis of so many elements, each once if there are enough."""
    count = math.prod(item.shape)
    if count > extent:
        found = torch.randint(0, extent, item.shape, generator=generator, device=device)
    else:
        found = torch.randperm(extent, generator=generator, device=device)[:count].reshape(item.shape)
    return found.to(torch.int32)


def poisoned(expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors like the expected outputs, dense, every element one that no kernel writes by chance."""
    outputs = {}
    for name, value in expected.items():
        outputs[name] = torch.empty(value.shape, dtype=value.dtype, device=value.device)
        poison(outputs[name])
    return outputs


def poison(tensor: Tensor) -> None:
    """Fill with nan, or with the pattern 0x7f of integers (f8 has its nan there too)."""
    if tensor.dtype.is_floating_point and tensor.dtype.itemsize > 1:
        tensor.fill_(math.nan)
    elif tensor.dtype == torch.bool:
        # A bool has no third value; a kernel that writes none leaves half of a fair result wrong.
        tensor.fill_(True)
    else:
        tensor.view(torch.uint8).fill_(0x7F)


def _random(item: RawInput, scale: float, generator: torch.Generator, device: str) -> Tensor:
    shape = item.shape
    if item.dtype == "bool":
        return torch.randint(0, 2, shape, generator=generator, device=device).to(torch.bool)
    if item.dtype == "i4":
        packed = (*shape[:-1], shape[-1] // 2)
        return torch.randint(0, 256, packed, generator=generator, device=device, dtype=torch.uint8)
    if item.dtype in ("i8", "i32"):
        values = torch.randint(-8, 8, shape, generator=generator, device=device)
        return values.to(TORCH_DTYPES[item.dtype])
    normal = torch.randn(shape, generator=generator, device=device)
    return cast_tensor(normal.mul_(scale), item.dtype)


def _scale(graph: RawGraph, item: RawInput) -> float:
    if not item.constant or item.dtype in F8_LARGEST:
        return 1.0
    for node in graph.nodes:
        if node.op in ("matmul", "grouped_matmul") and item.name in node.inputs:
            side = "transpose_a" if node.inputs[0] == item.name else "transpose_b"
            contracts_last = node.flag(side) == (side == "transpose_b")
            return 1.0 / math.sqrt(item.shape[-1 if contracts_last else -2])
    return 1.0


def _strided(tensor: Tensor, item: RawInput) -> Tensor:
    if item.strides is None:
        return tensor
    placed = torch.empty_strided(item.shape, item.strides, dtype=tensor.dtype, device=tensor.device)
    return placed.copy_(tensor)
