"""TMA: copies between global and shared memory that happen some time after their issue."""

from __future__ import annotations

from typing import Any

from wsopt.interpret.agent import Agent
from wsopt.interpret.barrier import Barrier
from wsopt.interpret.dtypes import poison
from wsopt.interpret.faults import InterpreterError
from wsopt.interpret.hazards import Reader, Writer
from wsopt.interpret.memory import SharedView
from wsopt.interpret.pairs import PairView, box_of, parts_of
from wsopt.interpret.program import Program
from wsopt.interpret.storage import TensorDescriptor


class LoadCopy:
    """A copy from global to shared memory in flight: garbage at its issue, data when it lands."""

    wakes = True

    def __init__(
        self, program: Program, descriptor: TensorDescriptor, box: Any, barrier: Barrier, target: SharedView
    ) -> None:
        agent = program.agent
        self.agent, self.line = agent, agent.line
        self._descriptor, self._box, self._barrier, self._target = descriptor, box, barrier, target
        self._write = target.allocation.history.write(agent, target.region, agent.line, Writer.COPY)
        # What is copied when the kernel before has ended comes when it has ended.
        previous = program.previous
        ended = previous is not None and agent.clock.knows(previous, 1)
        self._behind = previous if ended else None
        descriptor.storage.check_read(descriptor.stamps, box[0], program.launch)
        poison(target.data)

    def possible(self) -> bool:
        """Copies land in any order."""
        return True

    def perform(self) -> None:
        """Write the data, deliver the bytes."""
        outer, inner = self._box
        found = self._descriptor.elements[outer]
        if found.shape != self._target.data.shape:
            self._target.data[...] = 0
        self._target.data[inner] = found
        self._target.mark_written()
        phase = self._barrier.deliver(self._target.nbytes, self._behind)
        self._write.land(self._barrier.component, phase)


class StoreCopy:
    """A copy from shared to global memory; it reads its buffer at any time until it is waited for."""

    wakes = False

    def __init__(self, program: Program, descriptor: TensorDescriptor, box: Any, source: SharedView) -> None:
        agent = program.agent
        self.agent, self.line = agent, agent.line
        self.what = f"the TMA store to {descriptor.name}"
        self._program, self._descriptor, self._box, self._source = program, descriptor, box, source
        self._read = source.allocation.history.read(agent, source.region, Reader.STORE, agent.line)
        source.check_written()

    def possible(self) -> bool:
        """Stores happen in any order."""
        return True

    def perform(self) -> None:
        """Read the buffer and write it where it lies inside the tensor."""
        outer, inner = self._box
        descriptor = self._descriptor
        descriptor.storage.mark_written(descriptor.stamps, outer, self._program.launch)
        descriptor.elements[outer] = self._source.data[inner]

    def retire(self) -> None:
        """It has been waited for."""
        if self in self._program.scheduler.pending:
            self._program.scheduler.perform(self)
        self._read.retire()


class Tma:
    """The functions of Gluon's `tma` module."""

    def __init__(self, machine: Any) -> None:
        self._machine = machine

    def load(self, desc: TensorDescriptor, coord: Any, barrier: Any, result: Any, pred: Any = True) -> None:
        """Issue a copy of a block into a shared-memory view, signalling its bytes on a barrier."""
        program: Program = self._machine.program
        agent = program.operation()
        if not pred:
            return
        _check_block(desc, result)
        state: Barrier = barrier.barrier
        program.check_dependency(agent, desc.name)
        state.check_async(agent)
        box, target = _own(desc, coord, result, agent)
        program.scheduler.pending.append(LoadCopy(program, desc, box, state, target))

    def store(self, desc: TensorDescriptor, coord: Any, src: SharedView) -> None:
        """Issue a copy of a shared-memory view to global memory, a bulk group of its own."""
        program: Program = self._machine.program
        agent: Agent = program.operation()
        _check_block(desc, src)
        program.check_dependency(agent, desc.name)
        box, source = _own(desc, coord, src, agent)
        copy = StoreCopy(program, desc, box, source)
        program.scheduler.pending.append(copy)
        agent.stores.append(copy)

    def store_wait(self, pendings: int) -> None:
        """Wait until all but the last `pendings` stores of this partition have read their buffers."""
        program: Program = self._machine.program
        agent = program.operation()
        done = max(len(agent.stores) - int(pendings), 0)
        for copy in agent.stores[:done]:
            copy.retire()
            program.ending.add(agent.line)
        del agent.stores[:done]


def _own(descriptor: TensorDescriptor, coordinates: Any, view: Any, agent: Agent) -> tuple[Any, SharedView]:
    """The box and the view of a copy: of a pair of blocks the part of the one that starts it."""
    if isinstance(view, PairView):
        return box_of(descriptor, coordinates, view, agent.block), view.own(agent)
    return descriptor.box(coordinates), view


def _check_block(descriptor: TensorDescriptor, view: Any) -> None:
    if not isinstance(descriptor, TensorDescriptor) or not isinstance(view, SharedView | PairView):
        raise InterpreterError("a TMA copy needs a descriptor and a shared-memory view")
    if view.shape != descriptor.block_shape or view.dtype != descriptor.dtype:
        raise InterpreterError(
            f"descriptor of {descriptor.name} moves {descriptor.dtype}{descriptor.block_shape}, "
            f"but {view.label} is {view.dtype}{view.shape}"
        )
    if view.layout is not None and view.layout != descriptor.layout:
        raise InterpreterError(
            f"{view.label} has layout {view.layout}, the descriptor of {descriptor.name} {descriptor.layout}"
        )
    if not all(part.data.flags.c_contiguous for part in parts_of(view)):
        raise InterpreterError(f"{view.label} is not the plain block that a TMA copy moves")
