"""The stand-in for a GPU: launches a grid, program by program, each under the seed's interleaving."""

from __future__ import annotations

from collections.abc import Callable, Collection
from inspect import signature
from itertools import product
from typing import Any

from wsopt.interpret.faults import InterpreterError
from wsopt.interpret.host import HostTensor
from wsopt.interpret.pairs import BLOCKS
from wsopt.interpret.pointer import Pointer
from wsopt.interpret.program import Program
from wsopt.interpret.scheduler import STEP_LIMIT, Scheduler
from wsopt.interpret.storage import Role, Storage, TensorDescriptor
from wsopt.interpret.strategy import Chooser


class Machine:
    """State of one execution of a kernel's source."""

    def __init__(
        self, seed: int, processors: int, filename: str, ends: int = 0, constants: Collection[str] = ()
    ) -> None:
        self._constants = frozenset(constants)
        self.processors = processors
        self.ends = ends
        self.filename = filename
        self.steps = 0
        self.ending: set[int] = set()
        self._readings = 0
        self._chooser = Chooser(seed)
        self._launch = 0
        self._dependent = False
        self._precision = ""
        self._blocks = 1
        self._program: Program | None = None
        self._scratch: list[Storage] = []  # what kernels of a call of the launcher were given
        self._whole = True

    @property
    def program(self) -> Program:
        """The program that runs now."""
        if self._program is None:
            raise InterpreterError("a device operation is used outside a kernel")
        return self._program

    def read_clock(self) -> int:
        """How often the clock was read, this time included: readings of all roles in the order in which they come."""
        self._readings += 1
        return self._readings

    def launch(self, function: Callable[..., Any], grid: Any, args: Any, options: dict[str, Any]) -> None:
        """Run every program of a grid, or so many as the machine has `ends` of its first and of its last ones."""
        shape = tuple(int(extent) for extent in (grid if isinstance(grid, tuple | list) else (grid,)))
        if not 1 <= len(shape) <= 3 or min(shape) < 1:
            raise InterpreterError(f"grid {shape}: one to three extents of at least 1 are needed")
        shape += (1,) * (3 - len(shape))
        self._launch += 1
        device_args = [_device_argument(arg) for arg in args]
        named = {name: _device_argument(value) for name, value in options.items() if name not in _OPTIONS}
        warps = int(options.get("num_warps", 4))
        self._dependent = bool(options.get("launch_pdl"))
        self._precision = str(options.get("default_dot_input_precision", ""))
        self._blocks = int(options.get("num_ctas", 1))
        if self._blocks not in (1, BLOCKS):
            raise InterpreterError(f"clusters of {self._blocks} blocks: one or {BLOCKS} are known")
        programs = list(enumerate(product(*(range(extent) for extent in reversed(shape)))))
        self._whole = not 0 < 2 * self.ends < len(programs)
        if not self._whole:
            programs = programs[: self.ends] + programs[-self.ends :]
        scratch = _scratch(dict(zip(signature(function).parameters, args, strict=False)) | options)
        for name, storage in scratch.items():
            if storage not in self._scratch:
                storage.keep_found()
                self._scratch.append(storage)
            storage.begin_launch(name)
        for number, (z, y, x) in self._chooser.programs(programs):
            self._run(number, (x, y, z), shape, warps, lambda: function(*device_args, **named))
        for storage in scratch.values():
            storage.end_launch()

    def end_call(self) -> bool:
        """The launcher's call is over: was there scratch? InterpreterError where it leaves other than it found."""
        scratch = tuple(self._scratch)
        for storage in scratch if self._whole else ():
            storage.check_left()
        self._scratch.clear()
        return bool(scratch)

    def _run(
        self,
        number: int,
        place: tuple[int, ...],
        count: tuple[int, ...],
        warps: int,
        body: Callable[[], Any],
    ) -> None:
        self._chooser.new_program()
        scheduler = Scheduler(self._chooser, self.filename, STEP_LIMIT - self.steps)
        self._program = Program(
            place, count, warps, self._launch, scheduler, self.filename,
            number=number, dependent=self._dependent, constants=self._constants, precision=self._precision,
            blocks=self._blocks,
        )  # fmt: skip
        try:
            self._program.run(body)
        finally:
            self.steps += scheduler.steps
            self.ending |= self._program.ending
            self._program = None


class JitFunction:
    """A function behind `gluon.jit`: called in kernels, launched as `kernel[grid](...)`."""

    def __init__(self, machine: Machine, function: Callable[..., Any]) -> None:
        self._machine = machine
        self.fn = function
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Call it from device code."""
        return self.fn(*args, **named)

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return lambda *args, **options: self._machine.launch(self.fn, grid, args, options)


_OPTIONS = {
    "num_warps",
    "num_stages",
    "num_ctas",
    "maxnreg",
    "launch_pdl",
    "enable_fp_fusion",
    "debug",
} | {"default_dot_input_precision"}


def _scratch(arguments: dict[str, Any]) -> dict[str, Storage]:
    """The launcher's own tensors among the kernel's arguments, each by the name of its first parameter."""
    found: dict[str, Storage] = {}
    for name, value in arguments.items():
        storage = value.storage if isinstance(value, HostTensor | TensorDescriptor) else None
        if storage is not None and storage.role is Role.SCRATCH and storage not in found.values():
            found[name] = storage
    return found


def _device_argument(value: Any) -> Any:
    """A tensor reaches the kernel as a pointer to its first element."""
    if isinstance(value, HostTensor):
        return Pointer(value.storage, value.dtype.element, value.offset)
    return value
