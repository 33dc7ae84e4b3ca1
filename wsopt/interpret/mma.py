"""wgmma: asynchronous, in order within a partition, reading shared memory until it is retired.

A partition's warpgroups wait as one. On the machine each waits for its own products alone, and meets the others
before one thread of the partition arrives at a barrier: the machine code is read for that (`codegen/arrivals.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wsopt.interpret import dtypes
from wsopt.interpret.agent import Agent
from wsopt.interpret.dtypes import FLOAT32, Array
from wsopt.interpret.faults import InterpreterError
from wsopt.interpret.hazards import Reader
from wsopt.interpret.layouts import DotOperandLayout, NVMMADistributedLayout, check_warps
from wsopt.interpret.memory import SharedView
from wsopt.interpret.program import Program
from wsopt.interpret.tensor import Tensor

_SINGLE_THREAD = 2**18
"""Multiplications up to which BLAS (OpenBLAS's threshold) starts no threads: for tiles they gain nothing, and on
a busy machine each product waits for them."""


TF32_BITS = np.uint32(0xFFFFE000)
"""Bits of an f32 that tf32 has: sign, exponent, and 10 of the fraction (PTX ISA)."""


def check_precision(program: Program, operand: Any) -> None:
    """InterpreterError for a product of f32 whose kernel leaves its precision to Triton and its environment."""
    if operand.dtype is FLOAT32 and program.precision != "tf32":
        raise InterpreterError(
            'a product of float32 operands wants the option default_dot_input_precision="tf32"'
        )


def product(a: Array, b: Array) -> Array:
    """The product of two matrices, by as many rows at a time as one thread takes."""
    rows = max(1, _SINGLE_THREAD // b.size)
    if rows >= len(a):
        return np.asarray(np.matmul(a, b))
    result: Array = np.concatenate([np.matmul(a[i : i + rows], b) for i in range(0, len(a), rows)])
    return result


def multiplied(array: Array) -> Array:
    """An operand's elements as the tensor core multiplies them: of f32 it does not read the last bits."""
    if array.dtype == np.float32:
        cut: Array = (np.ascontiguousarray(array).view(np.uint32) & TF32_BITS).view(np.float32)
        return cut
    return dtypes.to_float32(array)


def added(a: Array, b: Array, before: Array | None) -> Array:
    """The product of two tiles on top of what the accumulator held before, if anything."""
    result = product(a, b)
    if before is not None:
        result += before
    return result


class Mma:
    """One `warpgroup_mma` from its issue to the wait that retires it."""

    wakes = False

    def __init__(self, program: Program, a: Any, b: SharedView, acc: Tensor, use_acc: bool) -> None:
        agent = program.agent
        self.agent, self.line = agent, agent.line
        self.what = f"the wgmma at line {agent.line}"
        self.retired = False
        self._program, self._use_acc = program, use_acc
        self._acc: Any = acc
        self._b: Any = b
        self._a: Any = a if isinstance(a, SharedView) else a.data
        views = [view for view in (a, b) if isinstance(view, SharedView)]
        self._reads = [
            view.allocation.history.read(agent, view.region, Reader.MMA, agent.line) for view in views
        ]
        for view in views:
            view.check_written()
        self._result: Array | None = None

    def possible(self) -> bool:
        """The tensor core keeps the order of issue."""
        for mma in self.agent.mmas:
            if mma._result is None:
                return mma is self
        return False

    def perform(self) -> None:
        """Read the operands and multiply."""
        a = self._a.data if isinstance(self._a, SharedView) else self._a
        before = None
        if self._use_acc:
            before = self._acc.pending.values if self._acc.pending is not None else self._acc.data
        self._result = added(multiplied(a), multiplied(self._b.data), before)
        self._a = self._b = self._acc = None  # or a chain of accumulators would stay alive

    @property
    def values(self) -> Array:
        """The accumulator after it, once performed."""
        if self._result is None:
            raise InterpreterError(f"{self.what} has no result yet")
        return self._result

    def retire(self) -> None:
        """Its partition has waited for it."""
        if self._result is None:
            self._program.scheduler.perform(self)
        self.retired = True
        for read in self._reads:
            read.retire()


def issue(program: Program, a: Any, b: SharedView, acc: Tensor, use_acc: bool, is_async: bool) -> Tensor:
    """`warpgroup_mma`: return the accumulator, pending if asynchronous."""
    agent = program.operation()
    _check_operands(agent, a, b, acc)
    check_precision(program, a)
    mma = Mma(program, a, b, acc, use_acc)
    agent.mmas.append(mma)
    program.scheduler.pending.append(mma)
    token = Tensor(None, FLOAT32, acc.layout, shape=tuple(acc.shape), pending=mma)
    if is_async:
        return token
    _retire(agent, 0)
    return _awaited(token)


def wait(program: Program, outstanding: int, deps: Any) -> Any:
    """`warpgroup_mma_wait`: retire all but the last `outstanding`; give the accumulators back."""
    agent = program.operation()
    if not isinstance(deps, tuple | list) or not all(isinstance(dep, Tensor) for dep in deps):
        raise InterpreterError("warpgroup_mma_wait needs deps, a tuple of tensors")
    if _retire(agent, int(outstanding)):
        program.ending.add(agent.line)
    results = tuple(_awaited(dep) for dep in deps)
    return results[0] if len(results) == 1 else results


def _retire(agent: Agent, outstanding: int) -> int:
    """End all products but the last `outstanding`; return how many ended."""
    done = max(len(agent.mmas) - outstanding, 0)
    for mma in agent.mmas[:done]:
        mma.retire()
    del agent.mmas[:done]
    return done


def _awaited(token: Tensor) -> Tensor:
    if token.pending is None or not token.pending.retired:
        return token
    return Tensor(token.pending.values, token.dtype, token.layout)


def _check_operands(agent: Agent, a: Any, b: Any, acc: Any) -> None:
    """InterpreterError for operands that the instruction does not take."""
    if not isinstance(b, SharedView) or not isinstance(a, SharedView | Tensor) or not isinstance(acc, Tensor):
        raise InterpreterError("warpgroup_mma takes (shared memory or registers, shared memory, accumulator)")
    if not isinstance(acc.layout, NVMMADistributedLayout) or acc.dtype != FLOAT32:
        raise InterpreterError(f"the accumulator must be float32 of a NVMMADistributedLayout, got {acc.type}")
    check_warps(acc.layout, agent.num_warps)
    left, right = a.shape, b.shape
    if len(left) != 2 or len(right) != 2 or [left[0], right[1]] != acc.shape or left[1] != right[0]:
        raise InterpreterError(f"wgmma of {left} by {right} into {acc.shape}")
    if a.dtype is not b.dtype and (
        a.dtype.itemsize != b.dtype.itemsize or a.dtype.is_fp8() != b.dtype.is_fp8()
    ):
        raise InterpreterError(f"wgmma of {a.dtype} by {b.dtype}")
    if isinstance(a, Tensor) and not (
        isinstance(a.layout, DotOperandLayout) and a.layout.parent == acc.layout
    ):
        raise InterpreterError(f"a register operand needs the accumulator's DotOperandLayout, got {a.layout}")
    if a.dtype.itemsize != 2:
        _check_k_major(a, b)


def _check_k_major(a: Any, b: SharedView) -> None:
    """Operands of other than 16 bits cannot be transposed: both must lie along K."""
    for view, axis in ((a, 1), (b, 0)):
        if isinstance(view, SharedView) and view.data.strides[axis] != view.data.itemsize:
            bits = 8 * view.data.itemsize
            raise InterpreterError(
                f"{bits}-bit operand {view.label} of a wgmma must lie along K in shared memory"
            )
