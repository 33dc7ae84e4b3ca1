"""tcgen05: asynchronous products into tensor memory, and commits that tell a barrier that they have ended.

The tensor core computes a partition's products in the order of their issue, each at some time after it. Their ends
are events of their own: number n is known to who has waited for a barrier at which a commit behind it arrived.
Until then operands must stay as they are, and the accumulator must be neither read nor written.
"""

from __future__ import annotations

import linecache
import sys
from typing import TYPE_CHECKING, Any

from wsopt.interpret import tensor_memory
from wsopt.interpret.agent import Agent
from wsopt.interpret.barrier import Barrier
from wsopt.interpret.clock import Clock
from wsopt.interpret.dtypes import FLOAT32
from wsopt.interpret.faults import InterpreterError
from wsopt.interpret.hazards import Reader, Writer
from wsopt.interpret.memory import SharedView, allocation_name
from wsopt.interpret.mma import multiplied, product
from wsopt.interpret.pairs import PairSums, PairView, allocate_sums, parts_of
from wsopt.interpret.program import Program
from wsopt.interpret.tensor_memory import LANES, TensorMemoryLayout, TensorView

if TYPE_CHECKING:
    from wsopt.interpret.machine import Machine

_MOST_COLUMNS, _COLUMNS_STEP = 256, 16
_DEPTH_BYTES = 32
"""Columns of one product, and bytes of the contracted axis in one instruction (PTX ISA, tcgen05.mma shapes)."""


class TensorCore:
    """The tensor core as it works for one partition: an actor of its own, whose `time` counts products."""

    def __init__(self, agent: Agent, component: int) -> None:
        self.name = agent.name
        self.component = component
        self.clock = Clock()
        self.time = 0
        self.line = 0
        self.queue: list[Product | Commit] = []

    def take(self, agent: Agent) -> None:
        """Know what the partition knows."""
        self.clock.join(agent.clock)

    def begin(self, agent: Agent) -> None:
        """The partition issues a product: ordered after all that the partition knows, and its products before."""
        self.take(agent)
        self.time += 1
        self.clock.set(self.component, self.time)
        self.line = agent.line


class Product:
    """One `tcgen05_mma` between its issue and its end."""

    wakes = True  # a commit behind it may

    def __init__(
        self,
        core: TensorCore,
        agent: Agent,
        a: SharedView | TensorView | PairView,
        b: SharedView | PairView,
        acc: TensorView | PairSums,
        use_acc: bool,
    ):
        self.agent, self.line = agent, agent.line
        self._core, self._a, self._b, self._acc, self._use_acc = core, a, b, acc, use_acc
        for view in (*parts_of(a), *parts_of(b)):
            kind = Reader.PRODUCT if isinstance(view, SharedView) else Reader.OPERAND
            view.allocation.history.read(core, view.region, kind, agent.line)
            view.check_written()
        for sums in parts_of(acc):
            history = sums.allocation.history
            if use_acc:
                history.read(core, sums.region, Reader.SUM, agent.line)
                sums.check_written()
            history.write(core, sums.region, agent.line, Writer.PRODUCT)
            sums.mark_written()
        core.queue.append(self)

    def possible(self) -> bool:
        """The tensor core keeps the order of issue."""
        return self._core.queue[0] is self

    def perform(self) -> None:
        """Read the operands, multiply, and leave the sums in tensor memory."""
        result = product(multiplied(self._a.data), multiplied(self._b.data))
        if self._use_acc:
            result += self._acc.data
        self._acc.put(result)
        self._core.queue.remove(self)


class Commit:
    """One `tcgen05_commit`: arrives at a barrier once all products issued before it have ended. One of a pair arrives
    in both blocks, which is one of these for each.
    """

    wakes = True

    def __init__(self, core: TensorCore, agent: Agent, barrier: Barrier) -> None:
        self.agent, self.line = agent, agent.line
        self.name, self.component, self.time = core.name, core.component, core.time
        self.clock = core.clock.copy()
        self._core, self._barrier = core, barrier
        core.queue.append(self)

    def possible(self) -> bool:
        """It comes after the products before it."""
        return self._core.queue[0] is self

    def perform(self) -> None:
        """Arrive, with the products' ends among what the phase makes known."""
        self._barrier.arrive(self, 1)
        self._core.queue.remove(self)


class Tcgen05:
    """The functions of `...language.nvidia.blackwell` on products and tensor memory."""

    NAMES = ("allocate_tensor_memory", "tcgen05_mma", "tcgen05_commit")

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def allocate_tensor_memory(
        self, element_ty: Any, shape: Any, layout: Any, value: Any = None
    ) -> TensorView | PairSums:
        """Allocate tensor memory, named after the variable that it is assigned to."""
        frame = sys._getframe(1)
        name = allocation_name(linecache.getline(frame.f_code.co_filename, frame.f_lineno))
        make = tensor_memory.allocate if self._machine.program.blocks == 1 else allocate_sums
        view = make(self._machine.program, name, element_ty, shape, layout)
        if value is not None:
            view.store(value)
        return view

    def tcgen05_mma(
        self,
        a: Any,
        b: Any,
        acc: Any,
        *,
        use_acc: Any = True,
        pred: Any = True,
        mbarriers: Any = None,
        mbarrier_preds: Any = None,
    ) -> None:
        """Issue a product, and a commit for each of `mbarriers`."""
        program = self._machine.program
        agent = program.operation()
        _check_operands(a, b, acc)
        if pred and not agent.block:  # the first block of a pair issues it for both
            core = _core_of(program, agent)
            core.begin(agent)
            program.scheduler.pending.append(Product(core, agent, a, b, acc, bool(use_acc)))
        preds = [True] * len(mbarriers or ()) if mbarrier_preds is None else mbarrier_preds
        for barrier, wanted in zip(mbarriers or (), preds, strict=True):
            self.tcgen05_commit(barrier, wanted)

    def tcgen05_commit(self, barrier: SharedView | PairView, pred: Any = True) -> None:
        """Let a barrier have an arrival when all products that this partition has issued have ended; of a pair's
        blocks each its own.
        """
        program = self._machine.program
        agent = program.operation()
        told = barrier.committed if isinstance(barrier, PairView) else (barrier.barrier,)
        for one in told if pred and not agent.block else ():
            one.check_async(agent)
            core = _core_of(program, agent)
            core.take(agent)
            program.scheduler.pending.append(Commit(core, agent, one))


def names(machine: Machine) -> dict[str, Any]:
    """Return the names on products and tensor memory of `...language.nvidia.blackwell`."""
    functions = Tcgen05(machine)
    found: dict[str, Any] = {name: getattr(functions, name) for name in Tcgen05.NAMES}
    return found | {"TensorMemoryLayout": TensorMemoryLayout, "tensor_memory_descriptor": TensorView}


def _core_of(program: Program, agent: Agent) -> TensorCore:
    if agent.tensor_core is None:
        agent.tensor_core = TensorCore(agent, program.components.new())
    core: TensorCore = agent.tensor_core
    return core


def _check_operands(a: Any, b: Any, acc: Any) -> None:
    """InterpreterError for operands that the instruction does not take."""
    paired = isinstance(acc, PairSums)
    left = isinstance(a, PairView if paired else SharedView | TensorView)
    if (
        not left
        or not isinstance(b, PairView if paired else SharedView)
        or not isinstance(acc, TensorView | PairSums)
    ):
        raise InterpreterError("tcgen05_mma takes (shared or tensor memory, shared memory, tensor memory)")
    if paired and (getattr(a, "split", None), getattr(b, "split", None)) != (0, 1):
        raise InterpreterError(
            "tcgen05 product of two blocks: each has rows of the left operand, columns of the other"
        )
    if acc.dtype != FLOAT32:
        raise InterpreterError(f"tcgen05 sums of {acc.dtype}: they are float32")
    fits = len(a.shape) == len(b.shape) == len(acc.shape) == 2
    if not fits or [a.shape[0], b.shape[1]] != acc.shape or a.shape[1] != b.shape[0]:
        raise InterpreterError(f"tcgen05 product of {a.shape} by {b.shape} into {acc.shape}")
    if a.dtype.itemsize != b.dtype.itemsize or a.dtype.is_fp8() != b.dtype.is_fp8():
        raise InterpreterError(f"tcgen05 product of {a.dtype} by {b.dtype}")
    rows, columns = acc.shape
    if rows != LANES * len([*parts_of(acc)]) or columns > _MOST_COLUMNS or columns % _COLUMNS_STEP:
        raise InterpreterError(f"tcgen05 product of {rows} rows and {columns} columns")
    if a.shape[1] * a.dtype.itemsize % _DEPTH_BYTES:
        raise InterpreterError(f"tcgen05 product along {a.shape[1]} elements of {a.dtype}")
