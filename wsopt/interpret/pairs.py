"""Pairs of blocks: memory of which each of two blocks of a cluster has its part, and barriers that both know.

A kernel that is launched with two blocks a cluster is one text for both: its program is a pair, and its layouts say
which part of a tile a block has. Each block runs every partition, with shared and tensor memory of its own. A copy,
a load or a store moves the part of the block whose partition does it; in registers the other block's elements are no
numbers here, so that what mixes them is seen.

A product is issued by the first block's partition alone, reads the operands of both and leaves each its rows of the
sums; commits arrive in both blocks. A barrier is of each block its own, or one in the first block: both arrive there,
and only the first block waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wsopt.interpret import memory, tensor_memory
from wsopt.interpret.agent import Agent
from wsopt.interpret.barrier import Barrier
from wsopt.interpret.dtypes import Array, DType, poison
from wsopt.interpret.faults import InterpreterError
from wsopt.interpret.layouts import MBarrierLayout, SliceLayout
from wsopt.interpret.memory import SharedView
from wsopt.interpret.program import Program
from wsopt.interpret.storage import TensorDescriptor
from wsopt.interpret.tensor import Tensor
from wsopt.interpret.tensor_memory import TensorMemoryLayout, TensorView

BLOCKS = 2


def divided(layout: Any, rank: int) -> int | None:
    """The dimension along which a layout of so many divides a tile between the blocks of a pair; None if both have
    all of it. InterpreterError where it does not say, or divides it otherwise.
    """
    if isinstance(layout, SliceLayout):
        dim = divided(layout.parent, rank + 1)
        return None if dim in (None, layout.dim) else dim - (dim > layout.dim)
    bases = getattr(layout, "cga_layout", None)
    if not bases or len(bases) != 1 or len(bases[0]) != rank or sorted(bases[0])[:-1] != [0] * (rank - 1):
        raise InterpreterError(f"a layout of {rank} dimensions for two blocks is needed, got {layout}")
    (basis,) = bases
    if max(basis) > 1:
        raise InterpreterError(
            f"the second block's part begins {max(basis)} parts behind the first one's: {layout}"
        )
    return basis.index(1) if any(basis) else None


@dataclass(frozen=True, eq=False)
class PairView:
    """A tile in shared memory: each block's part of it, or all of it twice where it is not divided.

    `split` is the dimension along which parts follow each other. Barriers of the `first` block alone have one part.
    """

    parts: tuple[SharedView, ...]
    split: int | None
    layout: Any

    @property
    def first(self) -> bool:
        """Whether the first block has it for both."""
        return len(self.parts) == 1

    @property
    def shape(self) -> list[int]:
        """Extents of the whole."""
        return [n * BLOCKS if dim == self.split else n for dim, n in enumerate(self.parts[0].shape)]

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.parts[0].dtype

    @property
    def label(self) -> str:
        """Name in messages."""
        return self.parts[0].label

    @property
    def data(self) -> Array:
        """All elements, as a product of both blocks reads them."""
        if self.split is None:
            raise InterpreterError(f"{self.label} is no operand of a pair: each block has all of it")
        return np.concatenate([part.data for part in self.parts], axis=self.split)

    def own(self, agent: Agent) -> SharedView:
        """The part of the block of a partition."""
        return self.parts[0 if self.first else agent.block]

    def index(self, index: int) -> PairView:
        """The slot of this number in both blocks."""
        split = None if self.split is None else self.split - 1
        return replace(self, parts=tuple(part.index(index) for part in self.parts), split=split)

    def slice(self, start: int, length: int, dim: int = 0) -> PairView:
        """`length` elements of a dimension that is not divided."""
        if int(dim) == self.split:
            raise InterpreterError(f"{self.label} is sliced along the dimension that two blocks divide")
        return replace(self, parts=tuple(part.slice(start, length, dim) for part in self.parts))

    def permute(self, order: Sequence[int]) -> PairView:
        """The view with its dimensions in another order."""
        axes = tuple(int(axis) for axis in order)
        split = None if self.split is None else axes.index(self.split)
        return replace(self, parts=tuple(part.permute(axes) for part in self.parts), split=split)

    def reshape(self, shape: Sequence[int]) -> PairView:
        """The view without dimensions of one element; InterpreterError for any other shape."""
        extents = [int(extent) for extent in shape]
        kept = [dim for dim, extent in enumerate(self.shape) if extent > 1]
        if [self.shape[dim] for dim in kept] != extents:
            raise InterpreterError(
                f"{self.label} of shape {self.shape} cannot be reshaped to {extents} in two blocks"
            )
        split = None if self.split is None else kept.index(self.split)
        own = tuple(n // BLOCKS if dim == split else n for dim, n in enumerate(extents))
        return replace(self, parts=tuple(part.reshape(own) for part in self.parts), split=split)

    def load(self, layout: Any) -> Tensor:
        """Read the block's part into registers."""
        _check_same(self, layout)
        agent = self.parts[0].allocation.program.agent
        return widened(self.own(agent).load(layout), self.split, agent.block)

    def store(self, value: Tensor) -> None:
        """Write the block's part of registers."""
        if not isinstance(value, Tensor) or value.shape != self.shape:
            raise InterpreterError(f"{self.label} of {self.dtype}{self.shape} cannot take {value}")
        if value.layout is not None:
            _check_same(self, value.layout)
        agent = self.parts[0].allocation.program.agent
        self.own(agent).store(Tensor(_part(value.data, self.split, agent.block), value.dtype, value.layout))

    @property
    def barrier(self) -> Barrier:
        """The mbarrier at which the running partition's block arrives."""
        return self.own(self.parts[0].allocation.program.agent).barrier

    def init_barrier(self, count: int) -> None:
        """`mbarrier.init`: of each block its own, or one at which both blocks arrive so often."""
        for part in self.parts:
            part.init_barrier(count * BLOCKS if self.first else count)

    @property
    def committed(self) -> tuple[Barrier, ...]:
        """The barriers at which a commit of the pair arrives."""
        if self.first:
            raise InterpreterError(f"{self.label} is one barrier for two blocks: a commit arrives in both")
        return tuple(part.barrier for part in self.parts)


@dataclass(frozen=True, eq=False)
class PairSums:
    """Sums in the tensor memory of both blocks, each of its rows."""

    parts: tuple[TensorView, ...]
    layout: TensorMemoryLayout

    @property
    def shape(self) -> list[int]:
        """Extents of the whole."""
        *tiles, rows, columns = self.parts[0].shape
        return [*tiles, rows * BLOCKS, columns]

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.parts[0].dtype

    @property
    def data(self) -> Array:
        """The values of both blocks."""
        return np.concatenate([part.data for part in self.parts])

    def put(self, values: Array) -> None:
        """Give both blocks their rows."""
        for part, rows in zip(self.parts, np.split(values, BLOCKS), strict=True):
            part.put(rows)

    def index(self, index: int) -> PairSums:
        """The tile of this number in both blocks."""
        return replace(self, parts=tuple(part.index(index) for part in self.parts))

    def slice(self, start: int, length: int, dim: int = 1) -> PairSums:
        """`length` columns from `start` on, in both blocks."""
        return replace(self, parts=tuple(part.slice(start, length, dim) for part in self.parts))

    def load(self, layout: Any = None) -> Tensor:
        """Read the block's rows into registers."""
        if divided(layout, 2) != 0:
            raise InterpreterError(f"{self.parts[0].label} has rows in two blocks, {layout} has not")
        agent = self.parts[0].allocation.program.agent
        return widened(self.parts[agent.block].load(layout), 0, agent.block)

    def store(self, value: Tensor, pred: Any = True) -> None:
        """Write the block's rows of registers."""
        if divided(value.layout, 2) != 0:
            raise InterpreterError(f"{self.parts[0].label} has rows in two blocks, {value.layout} has not")
        agent = self.parts[0].allocation.program.agent
        own = Tensor(_part(value.data, 0, agent.block), value.dtype, value.layout)
        self.parts[agent.block].store(own, pred)


def allocate(program: Program, name: str, dtype: DType, shape: Sequence[int], layout: Any) -> PairView:
    """Allocate shared memory in both blocks: each its part of tiles, behind a leading dimension of slots."""
    extents = [int(extent) for extent in shape]
    barrier = isinstance(layout, MBarrierLayout)
    rank = (
        1 if barrier else len(layout.cga_layout[0]) if getattr(layout, "cga_layout", None) else len(extents)
    )
    found, before = divided(layout, rank), len(extents) - rank
    split = None if found is None else before + found
    own = [extent // BLOCKS if dim == split else extent for dim, extent in enumerate(extents)]
    blocks = 1 if barrier and split is None else BLOCKS
    names = [f"{name} of block {block}" for block in range(blocks)]
    return PairView(tuple(memory.allocate(program, one, dtype, own, layout) for one in names), split, layout)


def allocate_sums(program: Program, name: str, dtype: DType, shape: Sequence[int], layout: Any) -> PairSums:
    """Allocate tiles of sums in the tensor memory of both blocks, which have equally many columns."""
    if not isinstance(layout, TensorMemoryLayout) or not layout.two_ctas or divided(layout, 2) != 0:
        raise InterpreterError(
            f"{name}: a TensorMemoryLayout with the rows of two blocks is needed, got {layout}"
        )
    *tiles, rows, columns = (int(extent) for extent in shape)
    taken, own = program.tensor_columns, replace(layout, cga_layout=(), two_ctas=False)
    parts = []
    for block in range(BLOCKS):
        program.tensor_columns = taken
        extents = [*tiles, rows // BLOCKS, columns]
        parts.append(tensor_memory.allocate(program, f"{name} of block {block}", dtype, extents, own))
    return PairSums(tuple(parts), layout)


def parts_of(view: Any) -> Iterator[Any]:
    """The views of single blocks that a view has: itself, or each block's part."""
    yield from view.parts if isinstance(view, PairView | PairSums) else (view,)


def box_of(descriptor: TensorDescriptor, coordinates: Sequence[int], view: PairView, block: int) -> Any:
    """The part of a descriptor's box that a block copies, as `TensorDescriptor.box` says it."""
    own = view.parts[block].shape
    begins = [own[dim] * block if dim == view.split else 0 for dim in range(len(own))]
    places = [int(place) + begin for place, begin in zip(coordinates, begins, strict=True)]
    return descriptor.box(places, own)


def widened(value: Tensor, split: int | None, block: int) -> Tensor:
    """A block's part of a tensor at its place in the whole, whose other elements are no numbers."""
    if split is None:
        return value
    shape = [n * BLOCKS if dim == split else n for dim, n in enumerate(value.shape)]
    whole = np.empty(shape, value.data.dtype)
    poison(whole)
    np.split(whole, BLOCKS, axis=split)[block][...] = value.data
    return Tensor(whole, value.dtype, value.layout)


def _part(data: Array, split: int | None, block: int) -> Array:
    return data if split is None else np.split(data, BLOCKS, axis=split)[block]


def _check_same(view: PairView, layout: Any) -> None:
    """InterpreterError where registers are divided between blocks in another way than a view."""
    if divided(layout, len(view.shape)) != view.split:
        raise InterpreterError(f"{view.label} is divided between two blocks in another way than {layout}")
