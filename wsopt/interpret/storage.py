"""Global memory: the storages behind tensors, and TMA descriptors over them."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from wsopt.interpret import dtypes
from wsopt.interpret.added import Added
from wsopt.interpret.dtypes import INT1, Array, DType
from wsopt.interpret.faults import InterpreterError, RaceError
from wsopt.interpret.layouts import NVMMASharedLayout
from wsopt.interpret.scratch import Scratch

NEVER = 0
BEFORE = -1


class Role(Enum):
    """What a tensor is to the kernel."""

    INPUT = "read by a launch, and not written"
    OUTPUT = "written once by a launch, and not read"
    SCRATCH = "made by the launcher and kept to itself: read and written by one launch, in order"


def _strided(array: Array, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    """A strided view; NumPy's own cannot take every ml_dtypes element type, so one-byte types go as bytes."""
    if array.itemsize != 1:
        return as_strided(array, shape, strides)
    return as_strided(array.view(np.uint8), shape, strides).view(array.dtype)


class Storage:
    """The elements behind one tensor, in memory order, each with the launch that last wrote it."""

    def __init__(self, array: Array, name: str, *, poisoned: bool = False, role: Role = Role.INPUT) -> None:
        if any(stride < 0 or stride % array.itemsize for stride in array.strides):
            raise InterpreterError(f"{name}: strides {array.strides} are not whole elements forwards")
        self.name = name
        self.address: int = array.__array_interface__["data"][0]
        spans = (
            max(extent - 1, 0) * stride for extent, stride in zip(array.shape, array.strides, strict=True)
        )
        extent = sum(spans) // array.itemsize + 1 if array.size else 0
        self.flat: Array = _strided(array, (extent,), (array.itemsize,)) if extent else array.reshape(-1)
        self.stamps: NDArray[np.int16] = np.full(extent, NEVER if poisoned else BEFORE, np.int16)
        self._roles = [role]  # one for all that see this memory
        self.scratch: Scratch | None = None
        self._added: Added | None = None  # what atomics have added to it in this launch, of numbers
        self._as_given = (
            not poisoned
        )  # every stamp is BEFORE: true of an input for good, which so needs no look
        self._found: Array | None = None

    @property
    def role(self) -> Role:
        """What the tensor is to the kernel."""
        return self._roles[0]

    @role.setter
    def role(self, role: Role) -> None:
        self._roles[0] = role

    def seen_as(self, element: DType) -> Storage:
        """The same memory as elements of another type of their size: who writes to one has written to both."""
        seen = copy(self)
        seen.flat = self.flat.view(element.numpy)
        return seen

    def begin_launch(self, name: str) -> None:
        """Scratch goes by the name of the kernel's parameter; its accesses by that kernel are looked at."""
        self.name, self.scratch, self._added = name, Scratch(name, self.flat.size), None

    def end_launch(self) -> None:
        """The kernel has ended: what it did is ordered before all that comes."""
        self.scratch = None

    def add(self, elements: Array, values: Array) -> None:
        """Atomics add values to elements: of numbers the sum is rounded in an order that is no block's."""
        if np.issubdtype(self.flat.dtype, np.integer):
            self.flat[elements] += values
            return
        if self._added is None:
            self._added = Added(self.flat)
        self._added.add(elements, values)

    def put(self, elements: Array, values: Array) -> None:
        """Store values in elements, whatever was added to them before."""
        self.flat[elements] = values
        if self._added is not None:
            self._added.forget(elements)

    def keep_found(self) -> None:
        """Note what a launcher's call finds in scratch: nothing in what `torch.empty` made."""
        self._found = None if (self.stamps == NEVER).all() else self.flat.copy()

    def check_left(self) -> None:
        """What `torch.empty` made has nothing for the launcher's next call; other scratch is as it was found.

        InterpreterError where it is not.
        """
        if self._found is None:
            dtypes.poison(self.flat)
            self.stamps[...] = NEVER
            return
        changed = np.flatnonzero(self._found.view(np.uint8) != self.flat.view(np.uint8)) // self.flat.itemsize
        if changed.size:
            at = changed[0]
            raise InterpreterError(
                f"{self.name}[{at}] is {self.flat[at]} at the end of the launch and was {self._found[at]}: "
                "the next launch would start from that"
            )

    def view(self, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[Array, Array]:
        """Return elements and stamps as a strided array from `offset` (in elements) on."""
        last = offset + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
        if offset < 0 or (0 not in shape and last >= self.flat.size):
            raise InterpreterError(f"{self.name}: shape {shape}, strides {strides} go beyond its memory")
        item, mark = self.flat.itemsize, self.stamps.itemsize
        elements = _strided(self.flat[offset:], shape, tuple(stride * item for stride in strides))
        return elements, as_strided(self.stamps[offset:], shape, tuple(stride * mark for stride in strides))

    def check_read(self, stamps: Array, key: Any, launch: int) -> None:
        """RaceError where an element read was written by the same launch, or by nobody."""
        if self._as_given:
            return
        if (stamps[key] == launch).any():
            raise RaceError(f"{self.name} is read while the same kernel writes it")
        self.check_written(stamps[key])

    def check_written(self, stamps: Array) -> None:
        """RaceError where nobody has written an element."""
        if (stamps == NEVER).any():
            raise RaceError(f"{self.name} is read before anything was written into it")

    def mark_written(self, stamps: Array, key: Any, launch: int) -> None:
        """Note a write; RaceError where the same launch has written an element already."""
        if self.scratch is not None:
            raise InterpreterError(f"{self.name} is no output: TMA stores into it are not known")
        if (stamps[key] == launch).any():
            raise RaceError(f"{self.name} is written twice by the same kernel at the same place")
        self.stamp(stamps, key, launch)

    def stamp(self, stamps: Array, key: Any, launch: int) -> None:
        """Note by which launch elements were written last."""
        self._as_given = False
        stamps[key] = launch


@dataclass(frozen=True, eq=False)
class BlockType:
    """Block type of a descriptor: what one copy through it moves."""

    shape: list[int]
    element_ty: DType

    @property
    def nbytes(self) -> int:
        """Bytes of one copy."""
        return prod(self.shape) * self.element_ty.itemsize


class TensorDescriptor:
    """The host's TMA descriptor, with the checks of Triton and of the hardware."""

    def __init__(
        self,
        base: Any,
        shape: list[int],
        strides: list[int],
        block_shape: list[int],
        layout: NVMMASharedLayout,
        padding: str = "zero",
    ) -> None:
        self.base, self.padding = base, padding
        self.shape, self.strides = tuple(map(int, shape)), tuple(map(int, strides))
        self.block_shape = [int(extent) for extent in block_shape]
        self.layout = layout
        self.dtype: DType = base.dtype.element
        self.storage: Storage = base.storage
        self._check()
        offset = base.offset
        self.elements, self.stamps = self.storage.view(offset, self.shape, self.strides)

    @property
    def name(self) -> str:
        """The tensor's name."""
        return self.storage.name

    @property
    def block_type(self) -> BlockType:
        """Extents and element type of one copy."""
        return BlockType(self.block_shape, self.dtype)

    @staticmethod
    def from_tensor(tensor: Any, block_shape: list[int], layout: NVMMASharedLayout) -> TensorDescriptor:
        """Describe a whole tensor."""
        return TensorDescriptor(tensor, tensor.shape, tensor.stride(), block_shape, layout)

    def box(self, coordinates: Any, block: Any = None) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """Return the part of the tensor at `coordinates` and its place in the block, clipped; of `block`'s extents,
        if not of the descriptor's own.
        """
        corner = [int(coordinate) for coordinate in coordinates]
        if len(corner) != len(self.shape):
            raise InterpreterError(
                f"descriptor of {self.name}: {len(corner)} coordinates, rank {len(self.shape)}"
            )
        if corner[-1] * self.dtype.itemsize % 16:
            raise InterpreterError(
                f"a copy of {self.name} begins {corner[-1] * self.dtype.itemsize} bytes along its last dimension, "
                "which has to be a multiple of 16: the hardware takes it for an illegal instruction"
            )
        lows = [min(max(at, 0), extent) for at, extent in zip(corner, self.shape, strict=True)]
        ends = [at + box for at, box in zip(corner, block or self.block_shape, strict=True)]
        highs = [max(min(end, extent), low) for end, extent, low in zip(ends, self.shape, lows, strict=True)]
        outer = tuple(slice(low, high) for low, high in zip(lows, highs, strict=True))
        moved = [
            slice(low - at, high - at) if high > low else slice(0, 0)
            for low, high, at in zip(lows, highs, corner, strict=True)
        ]
        return outer, tuple(moved)

    def _check(self) -> None:
        rank, item = len(self.shape), self.dtype.itemsize
        inner = self.block_shape[-1] * item if self.block_shape else 0
        swizzle = getattr(self.layout, "swizzle_byte_width", 0)
        rules = {
            "shape, strides and block differ in rank": len(self.strides) == rank == len(self.block_shape),
            "rank must be 1 to 5": 1 <= rank <= 5,
            "the base is not 16-byte aligned": self.base.data_ptr() % 16 == 0,
            "strides must be multiples of 16 bytes": all(
                stride * item % 16 == 0 for stride in self.strides[:-1]
            ),
            "TMA has no map of bools": self.dtype is not INT1,
            "the last stride must be 1": self.strides[-1] == 1,
            "extents must be positive": all(extent > 0 for extent in self.shape),
            # Triton copies a longer block by several instructions of 256 elements.
            "block extents must be powers of two": all(
                extent > 0 and extent & (extent - 1) == 0 for extent in self.block_shape[:-1]
            ),
            "a block's inner extent must be a power of two of 16 bytes at least": inner % 16 == 0
            and inner & (inner - 1) == 0,
            "the inner extent must be a multiple of the swizzle": not swizzle or inner % swizzle == 0,
            "the layout must be a NVMMASharedLayout": isinstance(self.layout, NVMMASharedLayout),
            "the layout's element bits differ from the tensor's": getattr(self.layout, "element_bitwidth", 0)
            == item * 8,
        }
        for rule, kept in rules.items():
            if not kept:
                raise InterpreterError(
                    f"descriptor of {self.name} (shape {self.shape}, strides {self.strides}, "
                    f"block {self.block_shape}): {rule}"
                )
