"""What the Python launcher does for a launch, seen by a stand-in for the device."""

from __future__ import annotations

import linecache
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wsopt.interpret.host import ALIGNMENT, HostTensor, aligned
from wsopt.interpret.machine import Machine
from wsopt.interpret.modules import load
from wsopt.interpret.storage import Storage, TensorDescriptor

FILE = "observed.py"


@dataclass(frozen=True)
class Seen:
    """A tensor as a recipe's expressions ask for it."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int


@dataclass
class Launch:
    """A launch: tensors by name, the grid, and what is passed for each of the kernel's arguments."""

    tensors: dict[str, HostTensor]
    grid: tuple[int, ...] = ()
    arguments: list[Any] = field(default_factory=list)

    @property
    def seen(self) -> dict[str, Seen]:
        return {
            name: Seen(tuple(t.shape), tuple(t.stride()), t.data_ptr()) for name, t in self.tensors.items()
        }


def host_tensor(name: str, array: Any) -> HostTensor:
    """A tensor over an array; one without holes starts where TMA wants it."""
    if array.flags.c_contiguous and array.__array_interface__["data"][0] % ALIGNMENT:
        copy = aligned(array.shape, array.dtype)
        copy[...] = array
        array = copy
    return HostTensor(array, name, Storage(array, name))


def observe(source: str, inputs: Mapping[str, Any], processors: int) -> Launch:
    """What a kernel.py's text launches with inputs, on a device of so many processors. Raises what it raises."""
    try:
        names = load(source, Machine(0, processors, FILE))
        tensors = {name: host_tensor(name, array) for name, array in inputs.items()}
        grid, arguments, outputs = names["bind"](tensors)
    finally:
        linecache.cache.pop(FILE, None)
    return Launch({**tensors, **outputs}, tuple(grid), list(arguments))


def shown(argument: Any) -> Any:
    """An argument as plain data: a descriptor's fields, a table's elements, a tensor's address, a number."""
    if isinstance(argument, TensorDescriptor):
        return {
            "address": argument.base.data_ptr(),
            "extents": tuple(argument.shape),
            "strides": tuple(argument.strides),
            "block": tuple(argument.block_shape),
            "swizzle": argument.layout.swizzle_byte_width,
            "dtype": argument.dtype.torch_name,
            "padding": argument.padding,
        }
    return argument.data_ptr() if isinstance(argument, HostTensor) else int(argument)


def memory(argument: HostTensor, dtype: str, *, zeroed: bool) -> int:
    """The elements of a workspace, of this type."""
    assert str(argument.dtype) == f"torch.{dtype}"
    assert not (zeroed and argument.numpy().any())
    return argument.numel()


def table(argument: HostTensor) -> list[int]:
    """The elements of a table."""
    assert argument.numpy().dtype == np.int32
    return [int(one) for one in argument.numpy()]
