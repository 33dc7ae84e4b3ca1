"""The kernel's parameters in order, as the recipe predicts them, held against the compiled kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from wsopt.emit.integers import Integer
from wsopt.emit.recipe import DealtOrder, PointerArgument, Recipe, ScalarArgument, TensorMap, Workspace
from wsopt.errors import CheckError
from wsopt.export.binary import Binary, MapFacts
from wsopt.graph.types import DType

MAP_BYTES = 128
"""Bytes of a CUtensorMap (CUDA driver API)."""

ELEMENT_TYPES = {
    DType.F32: (7, "CU_TENSOR_MAP_DATA_TYPE_FLOAT32"),
    DType.F16: (6, "CU_TENSOR_MAP_DATA_TYPE_FLOAT16"),
    DType.BF16: (9, "CU_TENSOR_MAP_DATA_TYPE_BFLOAT16"),
    DType.F8E4M3: (0, "CU_TENSOR_MAP_DATA_TYPE_UINT8"),
    DType.F8E5M2: (0, "CU_TENSOR_MAP_DATA_TYPE_UINT8"),
    DType.I32: (3, "CU_TENSOR_MAP_DATA_TYPE_INT32"),
    DType.I8: (0, "CU_TENSOR_MAP_DATA_TYPE_UINT8"),
    DType.BOOL: (0, "CU_TENSOR_MAP_DATA_TYPE_UINT8"),
}
"""CUtensorMapDataType, as a number and by name."""


_SYMBOL = "kernel"
"""The name of every emitted kernel's function."""


class Content(StrEnum):
    """Content of a kernel parameter."""

    TENSOR_MAP = "tensor_map"
    EXTENT = "extent"
    STRIDE = "stride"
    POINTER = "pointer"
    SCALAR = "scalar"
    ORDER = "order"
    WORKSPACE = "workspace"
    SCRATCH = "scratch"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of the kernel: the part of an argument that it holds, its place and size in bytes.

    `value` is the integer that is passed; of tensor maps, pointers, the order, workspaces and scratch there is none.
    `dim` is an extent's or a stride's dimension.
    """

    content: Content
    argument: str
    size: int
    value: Integer | None = None
    dim: int = 0
    offset: int = 0


_SIZES = {
    Content.TENSOR_MAP: MAP_BYTES,
    Content.EXTENT: 4,
    Content.STRIDE: 8,
    Content.POINTER: 8,
    Content.SCALAR: 4,
    Content.ORDER: 8,
    Content.WORKSPACE: 8,
    Content.SCRATCH: 8,
}


def parameters(recipe: Recipe, binary: Binary) -> tuple[Parameter, ...]:
    """Every parameter with its place in the compiled kernel.

    Raises CheckError where the compiled kernel wants something else than the recipe gives.
    """
    _check_launch(recipe, binary)
    _check_maps(recipe, binary)
    expected = tuple(_expected(recipe))
    if [one.size for one in expected] != [one.size for one in binary.parameters]:
        raise _unknown(
            binary,
            f"passes parameters of {_sizes(binary.parameters)} bytes; expected {_sizes(expected)}",
        )
    return tuple(
        Parameter(one.content, one.argument, one.size, one.value, one.dim, place.offset)
        for one, place in zip(expected, binary.parameters, strict=True)
    )


def _expected(recipe: Recipe) -> Iterator[Parameter]:
    for argument in recipe.arguments:
        match argument:
            case TensorMap(name):
                yield _parameter(Content.TENSOR_MAP, name)
                for dim, extent in enumerate(argument.extents):
                    yield _parameter(Content.EXTENT, name, extent, dim)
                for dim, stride in enumerate(argument.strides):
                    yield _parameter(Content.STRIDE, name, stride, dim)
            case PointerArgument(name):
                yield _parameter(Content.POINTER, name)
            case ScalarArgument(name, value):
                yield _parameter(Content.SCALAR, name, value)
            case DealtOrder(name):
                yield _parameter(Content.ORDER, name)
            case Workspace(name):
                yield _parameter(Content.WORKSPACE, name)
    yield _parameter(Content.SCRATCH, "global_scratch")
    yield _parameter(Content.SCRATCH, "profile_scratch")


def _parameter(content: Content, argument: str, value: Integer | None = None, dim: int = 0) -> Parameter:
    return Parameter(content, argument, _SIZES[content], value, dim)


def _check_launch(recipe: Recipe, binary: Binary) -> None:
    names = tuple(argument.argument for argument in recipe.arguments)
    if binary.signature != names or binary.symbol != _SYMBOL:
        told = f"has the arguments {', '.join(binary.signature)}; expected {', '.join(names)}"
        raise CheckError(f"graph {recipe.name}: the kernel {binary.symbol} {told}")
    if binary.scratch_bytes:
        raise _unknown(binary, f"asks for {binary.scratch_bytes} bytes of device memory as scratch")
    if binary.blocks_together != 1 or binary.cooperative:
        raise _unknown(binary, "asks for a cluster or a cooperative launch")


def _check_maps(recipe: Recipe, binary: Binary) -> None:
    expected = tuple(MapFacts(one.box, one.swizzle, ELEMENT_TYPES[one.dtype][0]) for one in recipe.maps)
    if len(expected) != len(binary.maps):
        raise _unknown(binary, f"takes {len(binary.maps)} tensor maps; expected {len(expected)}")
    for one, ours, theirs in zip(recipe.maps, expected, binary.maps, strict=True):
        if ours != theirs:
            raise _unknown(binary, f"takes {one.argument} as {theirs}; expected {ours}")


def _sizes(parameters: tuple[Parameter, ...] | tuple[object, ...]) -> str:
    return ", ".join(str(getattr(one, "size", "")) for one in parameters)


def _unknown(binary: Binary, what: str) -> CheckError:
    return CheckError(
        f"Triton {binary.compiled.triton_version} compiles a kernel that {what}. The export knows Triton 3.6 to 3.9: "
        "install one of those"
    )
