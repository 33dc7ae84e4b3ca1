"""Shared memory: allocations, the views a kernel takes of them, and ordinary loads and stores."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from wsopt.interpret.barrier import Barrier
from wsopt.interpret.dtypes import Array, DType, poison
from wsopt.interpret.faults import BarrierError, InterpreterError, RaceError
from wsopt.interpret.hazards import History, Reader, Region, Writer
from wsopt.interpret.layouts import check_warps
from wsopt.interpret.program import Program
from wsopt.interpret.tensor import Tensor, TensorType

_ASSIGNED = re.compile(r"\s*(\w+)\s*(?::[^=]+)?=[^=]")


@dataclass(eq=False)
class Allocation:
    """One `allocate_shared_memory`: its bytes, which of them hold data, their layout, and what happened to them."""

    name: str
    program: Program
    dtype: DType
    data: Array
    written: Array
    layout: Any
    history: History = field(default_factory=History)
    barriers: dict[int, Barrier] = field(default_factory=dict)
    start: int = field(init=False)

    def __post_init__(self) -> None:
        self.start = self.data.ctypes.data

    def address(self, view: Array) -> int:
        """Return the offset in bytes of a view's first element."""
        return view.ctypes.data - self.start


def allocate(program: Program, name: str, dtype: DType, shape: list[int], layout: Any) -> SharedView:
    """Allocate shared memory and return the view of all of it; every byte is poisoned."""
    extents = tuple(int(extent) for extent in shape)
    data = np.empty(extents, dtype.numpy)
    poison(data)
    allocation = Allocation(name, program, dtype, data, np.zeros(extents, np.bool_), layout)
    program.histories.append(allocation.history)
    return SharedView(allocation, data, allocation.written, layout, name)


def allocation_name(source_line: str) -> str:
    """Return the variable that a line of source assigns an allocation to."""
    match = _ASSIGNED.match(source_line)
    return match.group(1) if match else "shared memory"


class SharedView:
    """A `shared_memory_descriptor`: a slot, permutation or reshape of an allocation."""

    __slots__ = ("_region", "_views", "_whole", "allocation", "data", "label", "layout", "written")

    def __init__(self, allocation: Allocation, data: Array, written: Array, layout: Any, label: str) -> None:
        self.allocation = allocation
        self.data = data
        self.written = written
        self.layout = layout
        self.label = label
        self._region: Region | None = None
        self._whole = False  # all of it is known to have been written; that stays so
        self._views: dict[
            tuple[Any, ...], SharedView
        ] = {}  # of it that were taken: a kernel takes few, often

    @property
    def shape(self) -> list[int]:
        """Extents of the view."""
        return list(self.data.shape)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return self.data.ndim

    @property
    def numel(self) -> int:
        """Number of elements."""
        return self.data.size

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.allocation.dtype

    @property
    def type(self) -> TensorType:
        """Shape, element type and layout."""
        return TensorType(tuple(self.data.shape), self.dtype, self.layout)

    @property
    def nbytes(self) -> int:
        """Bytes of the view."""
        return self.data.nbytes

    @property
    def region(self) -> Region:
        """The bytes of the view, for the hazard rules."""
        if self._region is None:
            low = self.allocation.address(self.data)
            spans = (
                (extent - 1) * stride
                for extent, stride in zip(self.data.shape, self.data.strides, strict=True)
            )
            high = low + sum(spans) + self.data.itemsize
            self._region = Region(self.data, low, high, self.label)
        return self._region

    def index(self, index: int) -> SharedView:
        """Return the slot `index` of the leading dimension; RaceError outside the allocation."""
        slot = int(index)
        known = self._views.get(("index", slot))
        if known is not None:
            return known
        if not 0 <= slot < self.data.shape[0]:
            raise RaceError(
                f"{self.label}[{slot}] lies outside the {self.data.shape[0]} slots of the allocation"
            )
        label = f"{self.label}[{slot}]"
        view = SharedView(self.allocation, self.data[slot], self.written[slot], self.layout, label)
        return self._views.setdefault(("index", slot), view)

    def slice(self, start: int, length: int, dim: int = 0) -> SharedView:
        """Return `length` elements of a dimension from `start` on; RaceError outside the view."""
        start, length = int(start), int(length)
        known = self._views.get(("slice", start, length, dim))
        if known is not None:
            return known
        if not 0 <= start <= start + length <= self.data.shape[dim]:
            raise RaceError(
                f"{self.label}: slice {start}:{start + length} lies outside {self.data.shape[dim]}"
            )
        key = (slice(None),) * dim + (slice(start, start + length),)
        label = f"{self.label}[{start}:{start + length}]"
        view = SharedView(self.allocation, self.data[key], self.written[key], self.layout, label)
        return self._views.setdefault(("slice", start, length, dim), view)

    def permute(self, order: tuple[int, ...]) -> SharedView:
        """Return the view with its dimensions in another order."""
        axes = tuple(int(axis) for axis in order)
        known = self._views.get(("permute", *axes))
        if known is not None:
            return known
        data, written = self.data.transpose(axes), self.written.transpose(axes)
        view = SharedView(self.allocation, data, written, None, self.label)
        return self._views.setdefault(("permute", *axes), view)

    def reshape(self, shape: tuple[int, ...]) -> SharedView:
        """Return the view with other extents over the same bytes."""
        extents = tuple(map(int, shape))
        known = self._views.get(("reshape", *extents))
        if known is not None:
            return known
        if prod(extents) != self.data.size:
            raise InterpreterError(f"{self.label} of shape {self.shape} cannot be reshaped to {extents}")
        data = self.data.reshape(extents)
        if data.size and not np.shares_memory(data, self.data):
            raise InterpreterError(f"{self.label}: a permuted view cannot be reshaped")
        view = SharedView(self.allocation, data, self.written.reshape(extents), None, self.label)
        return self._views.setdefault(("reshape", *extents), view)

    def load(self, layout: Any) -> Tensor:
        """Read the view into registers."""
        program = self.allocation.program
        agent = program.operation()
        check_warps(layout, agent.num_warps)
        self.check_order()
        self.allocation.history.read(agent, self.region, Reader.LOAD, agent.line)
        self.check_written()
        return Tensor(self.data.copy(), self.dtype, layout)

    def store(self, value: Tensor) -> None:
        """Write registers into the view; shape and element type must agree."""
        agent = self.allocation.program.operation()
        if not isinstance(value, Tensor):
            raise InterpreterError(f"{self.label}: store needs a tensor, got {type(value).__name__}")
        if value.shape != self.shape or value.dtype != self.dtype:
            raise InterpreterError(
                f"{self.label} of {self.dtype}{self.shape} cannot take a tensor of {value.dtype}{value.shape}"
            )
        self.check_order()
        data = value.data
        self.allocation.history.write(agent, self.region, agent.line, Writer.STORE)
        self.data[...] = data
        self.mark_written()

    def check_order(self) -> None:
        """RaceError where threads access a transposed view of what TMA lays out without a swizzle.

        Triton 3.6 computes addresses as if the view were not transposed; 3.9 does it right (both seen in machine
        code, and 3.6's on a GPU as wrong results).
        """
        if getattr(self.allocation.layout, "swizzle_byte_width", 1) or self.data.ndim < 2:
            return
        outer, inner = self.data.strides[-2:]
        if inner > outer and min(self.data.shape[-2:]) > 1:
            raise RaceError(
                f"{self.label} is transposed and not swizzled, and Triton 3.6 accesses it as it lies: load or store "
                "it so, and permute it in registers"
            )

    def check_written(self) -> None:
        """RaceError where some of the view never got any data."""
        if not self._whole and not self.written.all():
            raise RaceError(f"{self.label} is read before anything was written into it")
        self._whole = True

    def mark_written(self) -> None:
        """Note that all of the view has got data."""
        if not self._whole:
            self.written[...] = True
            self._whole = True

    @property
    def barrier(self) -> Barrier:
        """The mbarrier in this view; BarrierError before its `init`."""
        barrier = self.allocation.barriers.get(self.region.low)
        if barrier is None:
            raise BarrierError(f"{self.label} is used before mbarrier.init")
        return barrier

    def init_barrier(self, count: int) -> None:
        """`mbarrier.init`."""
        program = self.allocation.program
        agent = program.operation()
        if self.data.size != 1 or self.dtype.name != "int64":
            raise InterpreterError(f"{self.label} of {self.dtype}{self.shape} is not one mbarrier")
        address = self.region.low
        if address in self.allocation.barriers and self.allocation.barriers[address].valid:
            raise BarrierError(f"{self.label} is initialised twice without being invalidated")
        barrier = Barrier(self.label, int(count), program.components.new(), agent)
        self.allocation.barriers[address] = barrier
        program.barriers.append(barrier)
