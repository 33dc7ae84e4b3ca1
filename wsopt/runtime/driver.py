"""One launch as the CUDA driver takes it: loaded code, encoded tensor maps, parameters at their places.

The text of this file below its imports stands in every emitted kernel.py, before that of launcher.py: such a file
runs with torch and triton alone. Hence it imports nothing of this package, and uses torch only when it is called.
"""

import ctypes
import functools
from typing import Any

import torch


class _Config(ctypes.Structure):
    """CUlaunchConfig of cuda.h."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    )


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute of cuda.h, whose value is a union of 64 bytes."""

    _fields_ = (("name", ctypes.c_uint), ("padding", ctypes.c_uint), ("value", ctypes.c_int * 16))


# Numbers of cuda.h: CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, CUDA_ERROR_INVALID_CONTEXT,
# CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION.
_MAX_SHARED_BYTES, _INVALID_CONTEXT, _L2_PROMOTION, _PROGRAMMATIC = 8, 201, 2, 6
_BUFFER_END, _BUFFER_POINTER, _BUFFER_SIZE = 0, 1, 2  # CU_LAUNCH_PARAM_*
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}  # CU_TENSOR_MAP_SWIZZLE by bytes
_PROGRAMMATIC_LAUNCH = _Attribute(_PROGRAMMATIC, 0, (ctypes.c_int * 16)(1))
_MAP_BYTES, _LONGEST_BOX = 128, 256
# Drivers up to 13.1 mark maps of small tensors wrongly; Triton and CUTLASS clear that bit, too.
_SMALL_BYTES, _MENDED_AFTER = 128 * 1024, 13010


@functools.cache
def _driver() -> Any:
    """The CUDA driver. Calls let other threads run meanwhile, for a launch waits where too many are under way."""
    library = ctypes.CDLL("libcuda.so.1")
    library.cuTensorMapReplaceAddress.argtypes = [ctypes.c_void_p] * 2
    return library


def _check(error: int, what: str) -> None:
    """Raise RuntimeError with the driver's own words where a call of it failed."""
    if error:
        words = ctypes.c_char_p()
        _driver().cuGetErrorString(error, ctypes.byref(words))
        raise RuntimeError(f"{what}: {(words.value or b'unknown').decode()} (CUDA error {error})")


class _Compiled:
    """A kernel's machine code, loaded on a device: its handle, threads of a block, bytes of shared memory."""

    def __init__(self, kernel: Any, device: int, sizes: list[int]) -> None:
        metadata = kernel.metadata
        if metadata.global_scratch_size or metadata.profile_scratch_size:
            raise RuntimeError("the compiler wants scratch memory, which this launcher does not pass")
        driver, library, handle = _driver(), ctypes.c_void_p(), ctypes.c_void_p()
        binary = kernel.asm["cubin"]
        error = driver.cuLibraryLoadData(ctypes.byref(library), binary, None, None, 0, None, None, 0)
        _check(error, "the kernel cannot be loaded")
        error = driver.cuLibraryGetKernel(ctypes.byref(handle), library, metadata.name.encode())
        _check(error, f"the loaded code has no kernel {metadata.name}")
        error = driver.cuKernelSetAttribute(_MAX_SHARED_BYTES, metadata.shared, handle, device)
        _check(error, f"a block cannot have {metadata.shared} bytes of shared memory")
        self.handle, self.binary = handle, binary
        self.threads, self.shared_bytes = metadata.num_warps * 32, metadata.shared
        self.together = getattr(metadata, "num_ctas", 1)  # blocks of a cluster
        self.layout = _parameter_layout(handle)
        found = sizes if self.layout is None else [size for _, size in self.layout]
        if found != sizes:
            raise RuntimeError(f"the kernel takes parameters of {found} bytes, this launcher passes {sizes}")


def _parameter_layout(handle: Any) -> list[tuple[int, int]] | None:
    """Offset and bytes of each parameter of a loaded kernel; None where the driver is too old to tell."""
    tell = getattr(_driver(), "cuKernelGetParamInfo", None)
    if tell is None:
        return None
    found: list[tuple[int, int]] = []
    offset, size = ctypes.c_size_t(), ctypes.c_size_t()
    while not tell(handle, ctypes.c_size_t(len(found)), ctypes.byref(offset), ctypes.byref(size)):
        found.append((offset.value, size.value))
    return found


class _Memory:
    """Bytes at a fixed, aligned address."""

    def __init__(self, size: int) -> None:
        self._kept = ctypes.create_string_buffer(size + _MAP_BYTES)
        self.start = -(-ctypes.addressof(self._kept) // _MAP_BYTES) * _MAP_BYTES


class _Frame:
    """All of a launch but addresses and stream, for tensors of one layout.

    Triton passes a descriptor as its tensor map, its extents (i32) and its strides (i64), and after the kernel's own
    arguments two pointers to scratch memory. `places` and `sizes` are the parameters' offsets and bytes. `addresses`
    says where tensors' addresses go: the parameter's offset, the tensor's number among inputs and outputs, whether a
    tensor map holds it.
    """

    def __init__(
        self, number: int, grid: Any, arguments: Any, tensors: list[Any], results: list[Any]
    ) -> None:
        self.number, self.grid, self.device = number, grid, tensors[0].get_device()
        self.outputs = [(tuple(one.shape), one.stride(), one.dtype) for one in results]
        self.places: list[int] = []
        self.sizes: list[int] = []
        self.addresses: list[tuple[int, int, bool]] = []
        self.table: Any = None
        self.fresh: Any = (
            None  # size, strides and type of the only output, where no input requires a gradient
        )
        self.guarded = False  # some input requires a gradient: not to be run where gradients are recorded
        self.end = 0
        fields: list[tuple[int, Any]] = []
        for argument in arguments:
            fields += self._fields(argument, tensors)
        fields += [(self._take(8), 0) for _scratch in range(2)]
        self.template = _Memory(self.end)
        for (place, value), size in zip(fields, self.sizes, strict=True):
            if size == _MAP_BYTES:
                _encode(self.template.start + place, value)
            else:
                ctypes.memmove(self.template.start + place, int(value).to_bytes(size, "little"), size)

    def _fields(self, argument: Any, tensors: list[Any]) -> list[tuple[int, Any]]:
        """The parameters that an argument of the kernel becomes, each with its offset and value."""
        if isinstance(argument, int):
            return [(self._take(4), argument)]
        if hasattr(argument, "block_shape"):
            fields = [(self._take(_MAP_BYTES), argument)]
            self._address(fields[0][0], argument.base, tensors, True)
            fields += [(self._take(4), extent) for extent in argument.shape]
            return fields + [(self._take(8), stride) for stride in argument.strides]
        place = self._take(8)
        self._address(place, argument, tensors, False)
        return [(place, argument.data_ptr())]

    def _take(self, size: int) -> int:
        place = -(-self.end // size) * size
        self.end = place + size
        self.places.append(place)
        self.sizes.append(size)
        return place

    def _address(self, place: int, tensor: Any, tensors: list[Any], is_map: bool) -> None:
        own = getattr(tensor, "base", tensor)  # of one that is seen as another type
        for number, known in enumerate(tensors):
            if known is own:
                self.addresses.append((place, number, is_map))
                return
        self.table = tensor  # no input and no output: its address stays as it is


class _Packed:
    """Parameters as the device takes them, in one piece: the driver need not gather them at each launch."""

    def __init__(self, starts: list[int], layout: list[tuple[int, int]]) -> None:
        offset, size = layout[-1]
        self._bytes = ctypes.create_string_buffer(offset + size)
        for start, (offset, size) in zip(starts, layout, strict=True):
            ctypes.memmove(ctypes.addressof(self._bytes) + offset, start, size)
        self._size = ctypes.c_size_t(len(self._bytes))
        pointer, length = ctypes.addressof(self._bytes), ctypes.addressof(self._size)
        self.extra = (ctypes.c_void_p * 5)(_BUFFER_POINTER, pointer, _BUFFER_SIZE, length, _BUFFER_END)


class _Call:
    """One launch, ready to be handed to the driver: `arguments` are those of cuLaunchKernelEx."""

    __slots__ = ("_kept", "arguments")

    def __init__(self, frame: _Frame, compiled: _Compiled, stream: int, addresses: list[int]) -> None:
        memory = _Memory(frame.end)
        ctypes.memmove(memory.start, frame.template.start, frame.end)
        for place, number, is_map in frame.addresses:
            address = addresses[number]
            if is_map:
                error = _driver().cuTensorMapReplaceAddress(memory.start + place, address)
                _check(error, f"a tensor begins at {address:#x}, which is no multiple of 16 bytes")
            else:
                ctypes.memmove(memory.start + place, address.to_bytes(8, "little"), 8)
        starts = [memory.start + place for place in frame.places]
        packed = None if compiled.layout is None else _Packed(starts, compiled.layout)
        parameters = (ctypes.c_void_p * len(starts))(*starts) if packed is None else None
        config = _Config(
            (frame.grid[0] * compiled.together, *frame.grid[1:], *(1,) * (3 - len(frame.grid))),
            (compiled.threads, 1, 1),
            compiled.shared_bytes,
            stream,
            ctypes.addressof(_PROGRAMMATIC_LAUNCH),
            1,
        )
        extra = None if packed is None else packed.extra
        self.arguments = (ctypes.byref(config), compiled.handle, parameters, extra)
        self._kept = (memory, packed, config, frame.table)


def _encode(place: int, descriptor: Any) -> None:
    """Write a descriptor's tensor map. A copy moves a swizzle's width at most, and 256 elements a dimension; where
    blocks of a cluster divide a tile, one part of it.
    """
    base, layout, rank = descriptor.base, descriptor.layout, len(descriptor.shape)
    kinds = {
        torch.float16: 6,
        torch.float32: 7,
        torch.bfloat16: 9,
    }  # CU_TENSOR_MAP_DATA_TYPE; other types as bytes
    size, swizzle = base.element_size(), layout.swizzle_byte_width
    bases = getattr(layout, "cga_layout", None) or [[0] * rank]
    halvings = [sum(map(bool, along)) for along in zip(*bases, strict=True)]
    box = [min(n >> times, _LONGEST_BOX) for n, times in zip(descriptor.block_shape, halvings, strict=True)]
    if swizzle:
        box[-1] = min(box[-1], swizzle // size)
    longs, ints = ctypes.c_uint64 * rank, ctypes.c_uint32 * rank
    error = _driver().cuTensorMapEncodeTiled(
        ctypes.c_void_p(place),
        kinds.get(base.dtype, {1: 0, 2: 1, 4: 2}[size]),
        rank,
        ctypes.c_void_p(base.data_ptr()),
        longs(*reversed(descriptor.shape)),
        longs(*[stride * size for stride in reversed(descriptor.strides[:-1])]),
        ints(*reversed(box)),
        ints(*(1,) * rank),
        0,
        _SWIZZLES[swizzle],
        _L2_PROMOTION,
        0,
    )
    _check(error, f"no tensor map for {descriptor.shape} elements with strides {descriptor.strides}")
    span = 1 + sum((n - 1) * stride for n, stride in zip(descriptor.shape, descriptor.strides, strict=True))
    if span * size < _SMALL_BYTES and _driver_version() <= _MENDED_AFTER:
        word = ctypes.c_uint64.from_address(place + 8)
        word.value &= ~(1 << 21)


@functools.cache
def _driver_version() -> int:
    """The newest CUDA release that the driver knows, as 1000 * major + 10 * minor."""
    version = ctypes.c_int()
    _check(_driver().cuDriverGetVersion(ctypes.byref(version)), "the driver does not tell its version")
    return version.value
