"""Pointers into global memory: loads, stores and atomics through them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from wsopt.interpret import dtypes
from wsopt.interpret.dtypes import Array, DType
from wsopt.interpret.faults import InterpreterError, RaceError
from wsopt.interpret.storage import Storage
from wsopt.interpret.tensor import Tensor, TensorType, common_layout

if TYPE_CHECKING:
    from wsopt.interpret.program import Program


@dataclass(frozen=True, eq=False)
class Pointer:
    """A pointer to an element, or with a tensor of offsets to many."""

    storage: Storage
    dtype: DType
    offset: Any = 0

    def __add__(self, other: Any) -> Pointer:
        offset = other + self.offset if isinstance(other, Tensor) else self.offset + other
        return Pointer(self.storage, self.dtype, offset)

    __radd__ = __add__

    @property
    def type(self) -> TensorType:
        """Shape and layout of the offsets, element type of what they point to."""
        if isinstance(self.offset, Tensor):
            return TensorType(tuple(self.offset.shape), self.dtype, self.offset.layout)
        return TensorType((), self.dtype, None)

    @property
    def shape(self) -> list[int]:
        """Extents of the offsets."""
        return list(self.type.shape)

    def load(self, mask: Any, other: Any, launch: int, program: Program | None = None) -> Tensor:
        """`gl.load` in `program`: masked elements become `other` (poison without one)."""
        offsets, active, chosen, layout = self._addresses(mask)
        result = np.empty(offsets.shape, self.dtype.numpy)
        dtypes.poison(result)
        if other is not None:
            result[...] = other.data if isinstance(other, Tensor) else other
        if self.storage.scratch is None or program is None:
            self.storage.check_read(self.storage.stamps, chosen, launch)
        else:
            self.storage.check_written(self.storage.stamps[chosen])
            self.storage.scratch.load(program, chosen)
        result[active] = self.storage.flat[chosen]
        return Tensor(result, self.dtype, layout)

    def store(self, value: Any, mask: Any, launch: int, program: Program | None = None) -> None:
        """`gl.store` in `program`: each element at most once a launch, but of scratch."""
        offsets, active, chosen, layout = self._addresses(mask)
        if isinstance(value, Tensor) and value.shape and value.layout != layout:
            raise InterpreterError(
                f"a tensor of layout {value.layout} is stored through pointers of {layout}"
            )
        data = value.data if isinstance(value, Tensor) else np.asarray(value)
        if _some_twice(chosen):
            raise RaceError(f"{self.storage.name} is written twice by one store at the same place")
        if self.storage.scratch is None or program is None:
            self.storage.mark_written(self.storage.stamps, chosen, launch)
        else:
            self.storage.scratch.store(program, chosen, scalar=not self.type.shape)
            self.storage.stamp(self.storage.stamps, chosen, launch)
        wanted = np.broadcast_to(data, offsets.shape)[active]
        self.storage.put(chosen, dtypes.convert(wanted, self.dtype))

    def atomic_add(self, value: Any, mask: Any, semantics: str, scope: str, program: Program) -> Tensor:
        """`gl.atomic_add` in `program`: the value before of a scalar, poison where it is masked and of a tensor,
        whose elements are added in whatever order blocks come.

        InterpreterError for a tensor that is no scratch (sums would depend on the order of blocks), and for types
        without such an instruction.
        """
        storage, shape = self.storage, self.type.shape
        if storage.scratch is None:
            what = f"{storage.name}, an input or an output"
            raise InterpreterError(f"atomic_add to {what}: only memory of the launcher's own is known")
        if self.dtype.itemsize < 4:
            raise InterpreterError(f"atomic_add to {storage.name} of {self.dtype}")
        offsets, active, chosen, layout = self._addresses(mask)
        if _some_twice(chosen):
            raise RaceError(f"{storage.name} is added to twice by one atomic at the same place")
        result = np.empty(offsets.shape, self.dtype.numpy)
        dtypes.poison(result)
        if chosen.size:
            storage.check_written(storage.stamps[chosen])
            if shape:
                storage.scratch.add(program, chosen, semantics, scope)
            else:
                storage.scratch.atomic(program, chosen, semantics, scope)
                result[...] = storage.flat[chosen[0]]
            storage.stamp(storage.stamps, chosen, program.launch)
            added = value.data if isinstance(value, Tensor) else np.asarray(value)
            storage.add(chosen, dtypes.convert(np.broadcast_to(added, offsets.shape)[active], self.dtype))
        return Tensor(result, self.dtype, layout)

    def _addresses(self, mask: Any) -> tuple[Array, Array, Array, Any]:
        """Return offsets, which of them are active, these alone, and the layout; InterpreterError outside the
        tensor.
        """
        offset, layout = self.offset, None
        if isinstance(offset, Tensor):
            layout = common_layout((offset, mask))
            offset = offset.data
        mask = mask.data if isinstance(mask, Tensor) else True if mask is None else mask
        offsets, active = np.asarray(offset), np.asarray(mask, np.bool_)
        if offsets.shape != active.shape:
            offsets, active = np.broadcast_arrays(offsets, active)
        chosen = offsets[active]
        if chosen.size and not (chosen.min() >= 0 and chosen.max() < self.storage.flat.size):
            wrong = chosen[(chosen < 0) | (chosen >= self.storage.flat.size)][0]
            raise InterpreterError(
                f"{self.storage.name}: element {wrong} of {self.storage.flat.size} is accessed"
            )
        return offsets, active, chosen, layout


def _some_twice(elements: Array) -> bool:
    """Whether an element is among others twice. Most come in order, which is seen sooner than they are sorted."""
    if (elements[1:] > elements[:-1]).all():
        return False
    in_order = np.sort(elements)  # NumPy's `unique` hashes, which takes ten times as long
    return bool((in_order[1:] == in_order[:-1]).any())
