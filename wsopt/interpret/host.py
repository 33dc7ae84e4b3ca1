"""The stand-in for torch on the host: element types, tensors over NumPy arrays, the device's properties."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from wsopt.interpret.dtypes import DTYPES, Array, DType, from_numpy, poison
from wsopt.interpret.faults import InterpreterError
from wsopt.interpret.storage import BEFORE, Role, Storage

ALIGNMENT = 16


@dataclass(frozen=True)
class TorchDType:
    """A torch element type."""

    element: DType

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.element.itemsize

    @property
    def is_floating_point(self) -> bool:
        """Is it a float?"""
        return self.element.floating

    def __repr__(self) -> str:
        return f"torch.{self.element.torch_name}"


@dataclass(frozen=True)
class Device:
    """A torch device."""

    type: str = "cuda"
    index: int = 0

    def __str__(self) -> str:
        return f"{self.type}:{self.index}"


class Shape(tuple[int, ...]):
    """A torch.Size."""

    __slots__ = ()

    def numel(self) -> int:
        """Number of elements."""
        return int(np.prod(self))


TORCH_DTYPES = {dtype.torch_name: TorchDType(dtype) for dtype in DTYPES}
DEVICE = Device()


class HostTensor:
    """A torch tensor."""

    def __init__(self, array: Array, name: str = "tensor", storage: Storage | None = None) -> None:
        self.numpy_array = array
        self.storage = storage or Storage(array, name)
        self.dtype = TORCH_DTYPES[from_numpy(array.dtype).torch_name]
        self.device = DEVICE
        self.is_cuda = True

    @property
    def shape(self) -> Shape:
        """Extents."""
        return Shape(self.numpy_array.shape)

    def __getitem__(self, part: slice) -> HostTensor:
        """A part of its first dimension."""
        return HostTensor(self.numpy_array[part], storage=self.storage)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.numpy_array.ndim

    @property
    def offset(self) -> int:
        """Elements of the storage before the first one."""
        return (self.data_ptr() - self.storage.address) // self.numpy_array.itemsize

    def dim(self) -> int:
        """Number of dimensions."""
        return self.numpy_array.ndim

    def numel(self) -> int:
        """Number of elements."""
        return self.numpy_array.size

    def element_size(self) -> int:
        """Bytes of an element."""
        return self.numpy_array.itemsize

    def size(self, dim: int | None = None) -> Any:
        """Extents, or one of them."""
        return self.shape if dim is None else self.shape[dim]

    def stride(self, dim: int | None = None) -> Any:
        """Strides in elements, or one of them."""
        strides = tuple(stride // self.numpy_array.itemsize for stride in self.numpy_array.strides)
        return strides if dim is None else strides[dim]

    def data_ptr(self) -> int:
        """Address of the first element."""
        address: int = self.numpy_array.__array_interface__["data"][0]
        return address

    def get_device(self) -> int:
        """Number of its device."""
        return self.device.index

    def record_stream(self, stream: Any) -> None:
        """Its memory is never given to others here."""

    def zero_(self) -> HostTensor:
        """Fill it with zeros, as work of the stream before the launch."""
        self.numpy_array[...] = 0
        _, stamps = self.storage.view(self.offset, self.shape, self.stride())
        stamps[...] = BEFORE
        return self

    def is_contiguous(self) -> bool:
        """Does it lie in memory in the order of its dimensions, without holes?"""
        return self.numpy_array.flags.c_contiguous

    def numpy(self) -> Array:
        """The elements."""
        return self.numpy_array

    def permute(self, *order: int) -> HostTensor:
        """A view with its dimensions in another order."""
        return self._view(self.numpy_array.transpose(*order))

    def transpose(self, first: int, second: int) -> HostTensor:
        """A view with two dimensions exchanged."""
        return self._view(self.numpy_array.swapaxes(first, second))

    def t(self) -> HostTensor:
        """The transposed matrix as a view."""
        return self._view(self.numpy_array.T)

    def unsqueeze(self, dim: int) -> HostTensor:
        """A view with one more dimension of extent 1."""
        return self._view(np.expand_dims(self.numpy_array, dim))

    def reshape(self, *shape: Any) -> HostTensor:
        """A view of other extents; InterpreterError where torch would have to copy."""
        array = self.numpy_array.reshape(*shape)
        if array.size and not np.shares_memory(array, self.numpy_array):
            raise InterpreterError(f"{self.storage.name}: reshape to {array.shape} needs a copy")
        return self._view(array)

    def view(self, *shape: Any) -> HostTensor:
        """A view of other extents, or of the same bytes as elements of another type."""
        if len(shape) == 1 and isinstance(shape[0], TorchDType):
            array = self.numpy_array.view(shape[0].element.numpy)
            return HostTensor(array, self.storage.name, Storage(array, self.storage.name))
        return self.reshape(*shape)

    def detach(self) -> HostTensor:
        """The tensor without what computed it."""
        return self

    def is_inference(self) -> bool:
        """Whether nobody counts what is written to it: nobody does here."""
        return True

    def contiguous(self) -> HostTensor:
        """A copy in the order of its dimensions, without holes."""
        array = aligned(self.numpy_array.shape, self.numpy_array.dtype)
        array[...] = self.numpy_array
        return HostTensor(array, self.storage.name)

    def copy_(self, other: HostTensor) -> HostTensor:
        """Take over another's elements, as work of the stream before the launch; what comes of it is that tensor."""
        self.numpy_array[...] = other.numpy_array
        return HostTensor(self.numpy_array, storage=Storage(self.storage.flat, other.storage.name))

    def unbind(self, dim: int) -> tuple[HostTensor, ...]:
        """The tensor's parts along a dimension."""
        parts = np.moveaxis(self.numpy_array, dim, 0)
        return tuple(HostTensor(np.ascontiguousarray(part), self.storage.name) for part in parts)

    def _bits(self, function: Callable[[Any, Any], Any], other: Any) -> HostTensor:
        value = (
            other.numpy_array if isinstance(other, HostTensor) else np.asarray(other, self.numpy_array.dtype)
        )
        return HostTensor(function(self.numpy_array, value), self.storage.name)

    def __and__(self, other: Any) -> HostTensor:
        return self._bits(np.bitwise_and, other)

    def __or__(self, other: Any) -> HostTensor:
        return self._bits(np.bitwise_or, other)

    def __lshift__(self, other: Any) -> HostTensor:
        return self._bits(np.left_shift, other)

    def __rshift__(self, other: Any) -> HostTensor:
        return self._bits(np.right_shift, other)

    def _view(self, array: Array) -> HostTensor:
        return HostTensor(array, storage=self.storage)


def empty(shape: Any, *more: int, dtype: TorchDType, device: Any = None) -> HostTensor:
    """`torch.empty`: poisoned, so that an element that nobody writes is found. Scratch, if it is no output."""
    extents = (shape, *more) if isinstance(shape, int) else tuple(shape)
    array = aligned(extents, dtype.element.numpy)
    poison(array)
    return HostTensor(array, "output", Storage(array, "output", poisoned=True, role=Role.SCRATCH))


def empty_strided(
    shape: Sequence[int], strides: Sequence[int], *, dtype: TorchDType, device: Any = None
) -> HostTensor:
    """`torch.empty_strided` of a matrix whose rows or elements lie apart: poisoned, with the memory between them."""
    (rows, columns), (pitch, near) = shape, strides
    if near < 1 or pitch < columns * near:
        raise InterpreterError(f"a matrix of {tuple(shape)} with strides {tuple(strides)} is not made here")
    whole = empty((rows, pitch), dtype=dtype)
    return HostTensor(whole.numpy_array[:, : columns * near : near], storage=whole.storage)


def zeros(shape: Any, *more: int, dtype: TorchDType, device: Any = None) -> HostTensor:
    """`torch.zeros`."""
    return empty(shape, *more, dtype=dtype).zero_()


def tensor(values: Any, *, dtype: TorchDType, device: Any = None) -> HostTensor:
    """`torch.tensor`."""
    given = np.asarray(values)
    array = aligned(given.shape, dtype.element.numpy)
    array[...] = given
    return HostTensor(array, "tensor", Storage(array, "tensor"))


def stack(tensors: Sequence[HostTensor], dim: int) -> HostTensor:
    """`torch.stack`."""
    first, *_ = tensors
    return HostTensor(np.stack([one.numpy_array for one in tensors], dim), first.storage.name)


def equal(first: HostTensor, second: HostTensor) -> bool:
    """`torch.equal`."""
    return np.array_equal(first.numpy_array, second.numpy_array)


class Reinterpreted(HostTensor):
    """A tensor that is seen as elements of another type; `base` is the tensor itself."""

    def __init__(self, base: HostTensor, element: DType) -> None:
        array = base.numpy_array.view(element.numpy)
        super().__init__(array, storage=base.storage.seen_as(element))
        self.base = base


def reinterpret(tensor: HostTensor, element: DType) -> Reinterpreted:
    """`triton.reinterpret`: the same memory seen as elements of another type of their size."""
    return Reinterpreted(tensor, element)


def aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an uninitialised array whose first element lies on a 16-byte boundary."""
    extents = tuple(int(extent) for extent in shape)
    count = int(np.prod(extents)) * dtype.itemsize
    raw = np.empty(count + ALIGNMENT, np.uint8)
    start = -raw.__array_interface__["data"][0] % ALIGNMENT
    return raw[start : start + count].view(dtype).reshape(extents)


def torch_names(processors: int) -> dict[str, Any]:
    """Return the names of the `torch` module."""
    properties = SimpleNamespace(multi_processor_count=processors, major=9, minor=0, name="interpreter")
    cuda = SimpleNamespace(
        get_device_properties=lambda device=None: properties,
        get_device_capability=lambda device=None: (9, 0),
        current_device=lambda: 0,
        is_available=lambda: True,
        is_current_stream_capturing=lambda: False,
        current_stream=lambda device=None: SimpleNamespace(cuda_stream=0, stream_id=0, device=DEVICE),
        device=lambda device=None: DEVICE,
    )
    return {
        **TORCH_DTYPES,
        "half": TORCH_DTYPES["float16"],
        "float": TORCH_DTYPES["float32"],
        "Tensor": HostTensor,
        "device": lambda *_: DEVICE,
        "Size": Shape,
        "empty": empty,
        "empty_strided": empty_strided,
        "zeros": zeros,
        "tensor": tensor,
        "stack": stack,
        "equal": equal,
        "empty_like": lambda tensor: empty(tensor.shape, dtype=tensor.dtype),
        "cuda": cuda,
    }
