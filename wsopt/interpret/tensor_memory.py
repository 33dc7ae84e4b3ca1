"""Tensor memory: 512 columns of 128 lanes a block, where tcgen05 products accumulate; loads and stores of it.

A column has 32 bits a lane: one f32, or two neighbours of a row of 16 bits. A tile may be seen as one of another type
in the same columns.

Each warp reaches the 32 lanes of its place in its warpgroup, so a partition that loads or stores has whole
warpgroups, and a register layout that gives each warp its own lanes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from wsopt.interpret.agent import Agent
from wsopt.interpret.dtypes import FLOAT32, Array, DType, poison
from wsopt.interpret.faults import InterpreterError, RaceError
from wsopt.interpret.hazards import History, Reader, Region, Writer
from wsopt.interpret.layouts import BlockedLayout, Layout, check_warps
from wsopt.interpret.program import Program
from wsopt.interpret.tensor import Tensor

COLUMNS = 512
"""Columns of 32 bits a block (PTX ISA, tensor memory)."""

LANES = 128
_LANES_PER_WARP = 32
_WARPS = LANES // _LANES_PER_WARP


@dataclass(frozen=True)
class TensorMemoryLayout(Layout):
    """Layout of a tile in tensor memory: blocks of lanes by columns."""

    block: tuple[int, int]
    col_stride: int
    cga_layout: Any = ()
    two_ctas: bool = False


@dataclass(eq=False)
class TensorAllocation:
    """One `allocate_tensor_memory`; `data` has columns by lanes, `written` says which columns got any."""

    name: str
    program: Program
    data: Array
    written: Array
    history: History = field(default_factory=History)


@dataclass(frozen=True, eq=False)
class TensorView:
    """A `tensor_memory_descriptor`: tiles of an allocation, or some columns of one, from column `start` on."""

    allocation: TensorAllocation
    layout: TensorMemoryLayout
    extents: tuple[int, ...]
    start: int
    label: str
    element: DType = FLOAT32

    @property
    def shape(self) -> list[int]:
        """Extents: of one tile lanes and columns, before them how many tiles."""
        return list(self.extents)

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.element

    @property
    def type(self) -> TensorView:
        """Its type, which knows its layout."""
        return self

    @property
    def _each(self) -> int:
        """Elements of a row in one column."""
        return FLOAT32.itemsize // self.element.itemsize

    @property
    def _columns(self) -> slice:
        if len(self.extents) != 2:
            raise InterpreterError(f"{self.label} of shape {self.shape} is not one tile: index it first")
        return slice(self.start, self.start + self.extents[1] // self._each)

    @property
    def _elements(self) -> Array:
        """The values of a tile where they lie: columns, lanes, and the elements of a row in one column."""
        columns = self.allocation.data[self._columns].view(self.element.numpy)
        return columns.reshape(-1, LANES, self._each)

    @property
    def data(self) -> Array:
        """The values of a tile, lanes by columns."""
        return self._elements.transpose(1, 0, 2).reshape(LANES, -1)

    def put(self, values: Array) -> None:
        """Give a tile its values, lanes by columns."""
        self._elements[...] = values.reshape(LANES, -1, self._each).transpose(1, 0, 2)

    @property
    def region(self) -> Region:
        """The bytes of a tile, for the hazard rules."""
        columns = self._columns
        size = LANES * FLOAT32.itemsize
        return Region(self.allocation.data[columns], columns.start * size, columns.stop * size, self.label)

    def index(self, index: int) -> TensorView:
        """The tile of this number; RaceError outside the allocation."""
        number = int(index)
        if len(self.extents) != 3:
            raise InterpreterError(f"{self.label} of shape {self.shape} has no tiles to index")
        if not 0 <= number < self.extents[0]:
            raise RaceError(
                f"{self.label}[{number}] lies outside the {self.extents[0]} tiles of the allocation"
            )
        start = self.start + number * self.extents[2] // self._each
        return replace(self, extents=self.extents[1:], start=start, label=f"{self.label}[{number}]")

    def slice(self, start: int, length: int, dim: int = 1) -> TensorView:
        """`length` columns from `start` on; RaceError outside the tile."""
        start, length = int(start), int(length)
        if int(dim) != 1 or len(self.extents) != 2:
            raise InterpreterError(
                f"{self.label} of shape {self.shape} is sliced along columns of one tile only"
            )
        if not 0 <= start < start + length <= self.extents[1]:
            raise RaceError(f"{self.label}: columns {start}:{start + length} lie outside {self.extents[1]}")
        if start % self._each or length % self._each:
            raise InterpreterError(f"{self.label}: elements {start}:{start + length} are no whole columns")
        rows, block = self.layout.block
        return replace(
            self,
            layout=replace(self.layout, block=(rows, min(block, length))),
            extents=(self.extents[0], length),
            start=self.start + start // self._each,
            label=f"{self.label}[{start}:{start + length}]",
        )

    def reinterpret(self, dtype: DType, shape: Any, layout: Any) -> TensorView:
        """The same columns as a tile of another type; InterpreterError unless it takes just these."""
        extents = tuple(int(extent) for extent in shape)
        _check_layout(self.label, dtype, extents, layout)
        columns = self._columns
        taken = extents[1] * dtype.itemsize // FLOAT32.itemsize
        if len(extents) != 2 or taken != columns.stop - columns.start:
            raise InterpreterError(
                f"{self.label} has {columns.stop - columns.start} columns; {dtype}{list(extents)} takes {taken}"
            )
        label = f"{self.label} as {dtype}"
        return replace(self, layout=layout, extents=extents, element=dtype, label=label)

    def load(self, layout: Any = None) -> Tensor:
        """Read the tile into registers."""
        agent = self.allocation.program.operation()
        _check_lanes(self, agent, layout)
        self.allocation.history.read(agent, self.region, Reader.LOAD, agent.line)
        self.check_written()
        return Tensor(self.data.copy(), self.element, layout)

    def store(self, value: Tensor, pred: Any = True) -> None:
        """Write registers into the tile."""
        agent = self.allocation.program.operation()
        if not isinstance(value, Tensor) or value.shape != self.shape or value.dtype != self.element:
            raise InterpreterError(f"{self.label} of {self.element}{self.shape} cannot take {value}")
        _check_lanes(self, agent, value.layout)
        if pred:
            self.allocation.history.write(agent, self.region, agent.line, Writer.STORE)
            self.put(value.data)
            self.mark_written()

    def check_written(self) -> None:
        """RaceError where some of the tile never got any data."""
        if not self.allocation.written[self._columns].all():
            raise RaceError(f"{self.label} is read before anything was written into it")

    def mark_written(self) -> None:
        """The tile has data, or will have it when the product under way ends."""
        self.allocation.written[self._columns] = True


def allocate(program: Program, name: str, dtype: DType, shape: Any, layout: Any) -> TensorView:
    """Allocate tiles in tensor memory, all poisoned; InterpreterError beyond the 512 columns of a block."""
    extents = tuple(int(extent) for extent in shape)
    _check_layout(name, dtype, extents, layout)
    tiles = extents[0] if len(extents) == 3 else 1
    columns = tiles * extents[-1] * dtype.itemsize // FLOAT32.itemsize
    program.tensor_columns += columns
    if program.tensor_columns > COLUMNS:
        raise InterpreterError(
            f"{name} takes {columns} columns of tensor memory: {program.tensor_columns} in all, a block has {COLUMNS}"
        )
    data = np.empty((columns, LANES), np.float32)
    poison(data)
    allocation = TensorAllocation(name, program, data, np.zeros(columns, np.bool_))
    return TensorView(allocation, layout, extents, 0, name, dtype)


def _check_layout(name: str, dtype: DType, extents: tuple[int, ...], layout: Any) -> None:
    """InterpreterError unless tiles of a type and shape have a layout that packs them into columns."""
    if not isinstance(layout, TensorMemoryLayout) or layout.col_stride != 1 or layout.two_ctas:
        raise InterpreterError(
            f"{name}: a TensorMemoryLayout of stride 1 of one block is needed, got {layout}"
        )
    if not dtype.floating or dtype.itemsize not in (2, 4) or len(extents) not in (2, 3):
        raise InterpreterError(
            f"{name}: tiles of floats of 32 or 16 bits are needed, got {dtype}{list(extents)}"
        )
    if extents[-2:] != tuple(layout.block):
        raise InterpreterError(f"{name}: tiles of the layout's block are needed, got {extents}")
    if extents[-2] != LANES:
        raise InterpreterError(f"{name}: a tile has {LANES} rows in tensor memory, not {extents[-2]}")


def _check_lanes(view: TensorView, agent: Agent, layout: Any) -> None:
    """InterpreterError unless each warp has the lanes that it reaches in its registers."""
    if agent.num_warps % _WARPS:
        raise InterpreterError(
            f"{view.label} is accessed by a partition of {agent.num_warps} warps: four reach all lanes"
        )
    check_warps(layout, agent.num_warps)
    lanes_first = isinstance(layout, BlockedLayout) and (layout.order[0] == 0 or layout.warps_per_cta[1] == 1)
    if not (
        isinstance(layout, BlockedLayout)
        and lanes_first
        and layout.size_per_thread[0] == 1
        and layout.threads_per_warp == [_LANES_PER_WARP, 1]
        and layout.warps_per_cta[0] == _WARPS
    ):
        raise InterpreterError(
            f"{view.label} needs a BlockedLayout of one lane a thread and {_LANES_PER_WARP} a warp, got {layout}"
        )
