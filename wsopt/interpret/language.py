"""The stand-in for `gl`, `mbarrier` and the functions of one architecture: what an emitted kernel calls."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from wsopt.interpret import dtypes, layouts, mathematics, mma, pairs, tcgen05
from wsopt.interpret.agent import Waiting
from wsopt.interpret.constants import constexpr
from wsopt.interpret.copies import Tma
from wsopt.interpret.dtypes import DTYPES, INT32, INT64, DType
from wsopt.interpret.faults import InterpreterError
from wsopt.interpret.memory import SharedView, allocate, allocation_name
from wsopt.interpret.pairs import PairView
from wsopt.interpret.pointer import Pointer
from wsopt.interpret.program import Program
from wsopt.interpret.tensor import Tensor, common_layout

if TYPE_CHECKING:
    from wsopt.interpret.machine import Machine


def language(machine: Machine) -> dict[str, Any]:
    """Return the names of `triton.experimental.gluon.language`."""
    names: dict[str, Any] = {dtype.name: dtype for dtype in DTYPES}
    names |= {name: mathematics.float_function(name) for name in mathematics.GLUON_FUNCTIONS}
    names |= {
        name: getattr(layouts, name)
        for name in (
            "AutoLayout",
            "BlockedLayout",
            "CoalescedLayout",
            "DistributedLinearLayout",
            "DotOperandLayout",
            "NVMMADistributedLayout",
            "NVMMASharedLayout",
            "SliceLayout",
            "SwizzledSharedLayout",
        )
    }
    names |= _PLAIN
    device = Device(machine)
    names |= {name: getattr(device, name) for name in Device.NAMES}
    return names | {
        "barrier": device.thread_barrier,
        "tensor": Tensor,
        "shared_memory_descriptor": SharedView,
    }


def hopper(machine: Machine) -> dict[str, Any]:
    """Return the functions of `...language.nvidia.hopper`, without its modules."""
    device = Device(machine)
    names = ("fence_async_shared", "warpgroup_mma", "warpgroup_mma_wait", "warpgroup_mma_init")
    return {name: getattr(device, name) for name in names}


def blackwell(machine: Machine) -> dict[str, Any]:
    """Return the functions of `...language.nvidia.blackwell`, without its modules."""
    return {"fence_async_shared": Device(machine).fence_async_shared, **tcgen05.names(machine)}


def dependent_launch(machine: Machine) -> dict[str, Any]:
    """Return the names of programmatic dependent launch, which orders whole kernels."""
    device = Device(machine)
    return {
        "gdc_wait": device.dependency_wait,
        "gdc_launch_dependents": device.launch_dependents,
        "globaltimer": device.globaltimer,
    }


def tma(machine: Machine) -> dict[str, Any]:
    """Return the names of the `tma` module, those of Triton 3.6 and those since 3.7."""
    functions = Tma(machine)
    return {
        "async_copy_global_to_shared": functions.load,
        "async_load": functions.load,
        "async_copy_shared_to_global": functions.store,
        "async_store": functions.store,
        "store_wait": functions.store_wait,
    }


def mbarrier(machine: Machine) -> dict[str, Any]:
    """Return the names of the `mbarrier` module."""
    barriers = Mbarrier(machine)
    functions = {name: getattr(barriers, name) for name in ("init", "expect", "arrive", "wait", "invalidate")}
    return functions | {"MBarrierLayout": layouts.MBarrierLayout}


class Device:
    """The functions that depend on the program or the partition that runs."""

    NAMES = (
        "program_id",
        "num_programs",
        "num_warps",
        "num_ctas",
        "warp_specialize",
        "allocate_shared_memory",
        "zeros",
        "full",
        "arange",
        "convert_layout",
        "load",
        "store",
        "atomic_add",
        "thread_barrier",
        "inline_asm_elementwise",
    )

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    @property
    def _program(self) -> Program:
        return self._machine.program

    def program_id(self, axis: int) -> int:
        """This program's number along an axis of the grid."""
        return self._program.program_id[int(axis)]

    def num_programs(self, axis: int) -> int:
        """Programs along an axis of the grid."""
        return self._program.num_programs[int(axis)]

    def num_warps(self) -> int:
        """Warps of the partition."""
        return self._program.agent.num_warps

    def num_ctas(self) -> int:
        """Blocks of a cluster."""
        return self._program.blocks

    def warp_specialize(
        self, functions_and_args: Any, worker_num_warps: Sequence[int], worker_num_regs: Sequence[int]
    ) -> Any:
        """Run partitions side by side."""
        parts = [(function, tuple(arguments)) for function, arguments in functions_and_args]
        warps = [int(count) for count in worker_num_warps]
        if not len(parts) - 1 == len(warps) == len(worker_num_regs):
            raise InterpreterError(
                f"warp_specialize: {len(parts) - 1} workers, {len(warps)} warp counts, "
                f"{len(worker_num_regs)} register counts"
            )
        return self._program.specialize(parts, warps)

    def allocate_shared_memory(
        self, element_ty: DType, shape: Any, layout: Any, value: Tensor | None = None
    ) -> SharedView | PairView:
        """Allocate shared memory, named after the variable that it is assigned to."""
        frame = sys._getframe(1)
        name = allocation_name(linecache.getline(frame.f_code.co_filename, frame.f_lineno))
        make = allocate if self._program.blocks == 1 else pairs.allocate
        view = make(self._program, name, element_ty, list(shape), layout)
        if value is not None:
            view.store(value)
        return view

    def full(self, shape: Any, value: Any, dtype: DType, layout: Any = None) -> Tensor:
        """A tensor of one value."""
        layouts.check_warps(layout, self.num_warps())
        scalar = value.data if isinstance(value, Tensor) else value
        extents = tuple(int(extent) for extent in shape)
        return Tensor(np.full(extents, dtypes.convert(np.asarray(scalar), dtype), dtype.numpy), dtype, layout)

    def zeros(self, shape: Any, dtype: DType, layout: Any = None) -> Tensor:
        """A tensor of zeros."""
        return self.full(shape, 0, dtype, layout)

    def arange(self, start: int, end: int, layout: Any = None) -> Tensor:
        """Consecutive integers; a power of two of them."""
        count = int(end) - int(start)
        if count <= 0 or count & (count - 1):
            raise InterpreterError(f"arange({start}, {end}): the length must be a power of two")
        layouts.check_warps(layout, self.num_warps())
        return Tensor(np.arange(int(start), int(end), dtype=np.int32), INT32, layout)

    def convert_layout(self, value: Tensor, layout: Any, assert_trivial: bool = False) -> Tensor:
        """These values in another layout."""
        layouts.check_warps(layout, self.num_warps())
        return Tensor(value.data, value.dtype, layout)

    def load(self, pointer: Pointer, mask: Any = None, other: Any = None, **_: Any) -> Tensor:
        """Read global memory."""
        self._program.check_dependency(self._program.operation(), pointer.storage.name)
        return pointer.load(mask, other, self._program.launch, self._program)

    def store(self, pointer: Pointer, value: Any, mask: Any = None, **_: Any) -> None:
        """Write global memory."""
        self._program.check_dependency(self._program.operation(), pointer.storage.name)
        pointer.store(value, mask, self._program.launch, self._program)

    def atomic_add(
        self, pointer: Pointer, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
    ) -> Tensor:
        """Add to an element of global memory; return what it was. Triton's defaults are acq_rel and gpu."""
        self._program.check_dependency(self._program.operation(), pointer.storage.name)
        return pointer.atomic_add(val, mask, sem or "acq_rel", scope or "gpu", self._program)

    def inline_asm_elementwise(
        self, asm: str, constraints: str, args: Any, dtype: DType, is_pure: bool = True, pack: int = 1
    ) -> Any:
        """One known instruction. The SM's clock counts its own readings, in the order of this interleaving."""
        if asm == mathematics.CLOCK and not args:
            if is_pure:
                raise InterpreterError("a reading of the clock that is pure may be made once for all")
            return self._machine.read_clock()
        return mathematics.inline_asm(asm, constraints, args, dtype, is_pure, pack)

    def thread_barrier(self) -> None:
        """Join the threads of the partition: what each has done in global memory is known to all of them."""
        agent = self._program.operation()
        agent.joined = agent.time

    def launch_dependents(self) -> None:
        """Let the next kernel start; nothing is ordered by that."""
        self._program.operation()

    def globaltimer(self) -> Tensor:
        """The timer of the card, on which a microsecond passes with every call."""
        self._program.operation()
        self._program.nanoseconds += 1000
        return Tensor(np.asarray(self._program.nanoseconds), INT64, None)

    def dependency_wait(self) -> None:
        """Wait until the kernel launched before has ended, and see all that it wrote."""
        agent = self._program.operation()
        if self._program.previous is not None:
            agent.clock.set(self._program.previous, 1)

    def fence_async_shared(self, cluster: bool = False) -> None:
        """Make this partition's earlier stores and barrier inits visible to the async proxy."""
        agent = self._program.operation()
        for history in self._program.histories:
            history.fence(agent)
        for state in self._program.barriers:
            state.fence(agent)

    def warpgroup_mma(
        self,
        a: Any,
        b: Any,
        acc: Tensor,
        *,
        use_acc: Any = True,
        precision: Any = None,
        max_num_imprecise_acc: Any = None,
        is_async: bool = False,
    ) -> Tensor:
        """Multiply on the tensor core."""
        return mma.issue(self._program, a, b, acc, bool(use_acc), bool(is_async))

    def warpgroup_mma_wait(self, num_outstanding: int = 0, deps: Any = None) -> Any:
        """Wait until at most `num_outstanding` multiplications are in flight."""
        return mma.wait(self._program, num_outstanding, deps)

    def warpgroup_mma_init(self, value: Tensor) -> Tensor:
        """A tensor as an accumulator."""
        return value


class Mbarrier:
    """The functions of Gluon's `mbarrier` module."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def init(self, mbarrier: SharedView | PairView, count: int) -> None:
        """Initialise a barrier with the arrivals that end a phase."""
        mbarrier.init_barrier(count)

    def invalidate(self, mbarrier: SharedView | PairView) -> None:
        """End a barrier's life."""
        agent = self._machine.program.operation()
        for part in pairs.parts_of(mbarrier):
            part.barrier.check_usable(agent)
            part.barrier.valid = False

    def expect(self, mbarrier: SharedView | PairView, bytes: int, pred: Any = True) -> None:
        """Arrive once and add the bytes that the phase waits for."""
        agent = self._machine.program.operation()
        if pred:
            mbarrier.barrier.arrive(agent, 1, int(bytes))

    def arrive(self, mbarrier: SharedView | PairView, *, count: int = 1, pred: Any = True) -> None:
        """Arrive."""
        agent = self._machine.program.operation()
        if pred:
            mbarrier.barrier.arrive(agent, int(count))

    def wait(self, mbarrier: SharedView | PairView, phase: int, pred: Any = True, deps: Any = ()) -> None:
        """Wait until the phase of this parity has ended."""
        program = self._machine.program
        agent = program.operation()
        if not pred:
            return
        if isinstance(mbarrier, PairView) and mbarrier.first and agent.block:
            return  # the first block alone waits for both
        parity, state = int(phase), mbarrier.barrier
        if parity not in (0, 1):
            raise InterpreterError(f"{state.name}: phase {parity} is neither 0 nor 1")
        state.check_usable(agent)
        if not state.passes(parity):
            text = lambda: f"waits for phase {parity} of {state}"  # noqa: E731
            agent.wait_until(Waiting(lambda: state.passes(parity), text, agent.line))
        state.acquire(agent, parity)


def _reduction(name: str) -> Callable[..., Tensor]:
    def reduce(value: Tensor, axis: int | None = None, keep_dims: bool = False) -> Tensor:
        result: Tensor = getattr(value, name)(axis)
        return result.expand_dims(axis) if keep_dims and axis is not None else result

    return reduce


def _associative_scan(value: Tensor, axis: int, combine_fn: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """`gl.associative_scan`: of each and all before it along an axis. Floats are combined in one of the orders that
    Triton may choose.
    """
    found, reach = np.moveaxis(value.data, int(axis), 0).copy(), 1
    while reach < len(found):
        left, right = (Tensor(part, value.dtype, None) for part in (found[:-reach], found[reach:]))
        found = np.concatenate([found[:reach], combine_fn(left, right).data])
        reach *= 2
    return Tensor(np.moveaxis(found, 0, int(axis)), value.dtype, value.layout)


def _reduce(value: Tensor, axis: int, combine_fn: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """`gl.reduce` by a function for which the order does not matter: halves are combined until one is left."""
    data, layout = np.moveaxis(value.data, int(axis), 0), value.layout
    while len(data) > 1:
        half = len(data) // 2
        first, second = (Tensor(part, value.dtype, None) for part in (data[:half], data[half : 2 * half]))
        data = np.concatenate([combine_fn(first, second).data, data[2 * half :]])
    return Tensor(data[0], value.dtype, None if layout is None else layouts.SliceLayout(int(axis), layout))


def _broadcast(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    layout = common_layout((first, second))
    data = np.broadcast_arrays(first.data, second.data)
    return Tensor(data[0].copy(), first.dtype, layout), Tensor(data[1].copy(), second.dtype, layout)


def _static_assert(condition: Any, message: str = "") -> None:
    if not condition:
        raise InterpreterError(f"static_assert failed: {message}")


def _join(a: Tensor, b: Tensor) -> Tensor:
    return Tensor(np.stack([a.data, b.data], axis=-1), a.dtype, None)


def _full_like(value: Tensor, fill: Any) -> Tensor:
    return Tensor(np.full(value.shape, fill, value.dtype.numpy), value.dtype, value.layout)


def _cast(value: Tensor | int, dtype: DType) -> Tensor:
    """A tensor's elements in another type, or a scalar of the kernel's, which is a number here."""
    return (
        value.to(dtype) if isinstance(value, Tensor) else Tensor(np.asarray(value, dtype.numpy), dtype, None)
    )


_PLAIN: dict[str, Any] = {
    "constexpr": constexpr,
    "static_range": lambda *bounds: range(*(int(bound) for bound in bounds)),
    "static_assert": _static_assert,
    "static_print": lambda *_: None,
    "assume": lambda _: None,
    "multiple_of": lambda value, _: value,
    "max_contiguous": lambda value, _: value,
    "cdiv": lambda a, b: -(-a // b),
    "abs": mathematics.absolute,
    "maximum": mathematics.maximum,
    "minimum": mathematics.minimum,
    "fdiv": mathematics.fdiv,
    "div_rn": mathematics.fdiv,
    "fma": mathematics.fma,
    "where": mathematics.where,
    "sum": _reduction("sum"),
    "max": _reduction("max"),
    "min": _reduction("min"),
    "associative_scan": _associative_scan,
    "reduce": _reduce,
    "expand_dims": lambda value, axis: value.expand_dims(axis),
    "reshape": lambda value, *shape: value.reshape(*shape),
    "permute": lambda value, *order: value.permute(*order),
    "split": lambda value: value.split(),
    "join": _join,
    "cast": _cast,
    "broadcast": _broadcast,
    "full_like": _full_like,
    "zeros_like": lambda value: _full_like(value, 0),
    "to_tensor": lambda value: value,
}
