"""The modules that an emitted kernel imports, each a stand-in, and the import that finds them."""

from __future__ import annotations

import builtins
import linecache
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from wsopt.interpret import language, mathematics
from wsopt.interpret.faults import InterpreterError
from wsopt.interpret.host import reinterpret, torch_names
from wsopt.interpret.lines import MARKS, marked
from wsopt.interpret.machine import JitFunction, Machine
from wsopt.interpret.storage import TensorDescriptor

GLUON = "triton.experimental.gluon"
HOPPER = f"{GLUON}.language.nvidia.hopper"
BLACKWELL = f"{GLUON}.language.nvidia.blackwell"


class StandIn(ModuleType):
    """A module that says what it lacks."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the interpreter's {self.__name__} has no {name!r}")


def load(source: str, machine: Machine) -> dict[str, Any]:
    """Execute a kernel's source with the stand-ins and with marks; return its names. Nothing global is touched."""
    filename = machine.filename
    # Tracebacks and the names of allocations are read from the text, which is on no disk.
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    compiled = marked(source, filename)
    names: dict[str, Any] = {
        MARKS: bytearray(len(compiled.lines)),
        "__name__": "kernel",
        "__file__": filename,
        "__builtins__": {**vars(builtins), "__import__": _importer(stand_ins(machine))},
    }
    for part in compiled.code:
        exec(part, names)
    return names


def _importer(modules: Mapping[str, ModuleType]) -> Callable[..., ModuleType]:
    def find(
        name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> ModuleType:
        root = name.partition(".")[0]
        if name in modules:
            return modules[name] if fromlist else modules[root]
        if level == 0 and root in sys.stdlib_module_names:
            return __import__(name, globals, locals, fromlist, level)
        raise InterpreterError(
            f"import of {name}: a kernel may import only torch, triton and the standard library"
        )

    return find


def stand_ins(machine: Machine) -> dict[str, ModuleType]:
    """Return the modules that a kernel may import besides the standard library, by name."""
    contents: dict[str, dict[str, Any]] = {
        "torch": torch_names(machine.processors),
        "triton": _triton_names(),
        "triton.experimental": {},
        "triton.language": {"PropagateNan": mathematics.PropagateNan},
        "triton.language.extra": {},
        "triton.language.extra.libdevice": mathematics.libdevice(),
        "triton.language.extra.cuda": language.dependent_launch(machine),
        GLUON: {"jit": _jit(machine)},
        f"{GLUON}.language": language.language(machine),
        f"{GLUON}.language.nvidia": {},
        HOPPER: language.hopper(machine),
        f"{HOPPER}.tma": language.tma(machine),
        f"{HOPPER}.mbarrier": language.mbarrier(machine),
        BLACKWELL: language.blackwell(machine),
        f"{BLACKWELL}.tma": language.tma(machine),
        f"{BLACKWELL}.mbarrier": language.mbarrier(machine),
        f"{GLUON}.language.extra": {},
        f"{GLUON}.language.extra.libdevice": mathematics.libdevice(),
        f"{GLUON}.nvidia": {},
        f"{GLUON}.nvidia.hopper": {"TensorDescriptor": TensorDescriptor},
    }
    modules: dict[str, ModuleType] = {}
    for path, names in contents.items():
        modules[path] = module = StandIn(path)
        vars(module).update(names)
        parent, _, last = path.rpartition(".")
        if parent:
            setattr(modules[parent], last, module)
    return modules


def _triton_names() -> dict[str, Any]:
    return {
        "__version__": "3.6.0",
        "cdiv": lambda a, b: -(-a // b),
        "next_power_of_2": lambda n: 1 << max(n - 1, 0).bit_length(),
        "set_allocator": lambda _: None,
        "reinterpret": reinterpret,
    }


def _jit(machine: Machine) -> Callable[..., Any]:
    def jit(function: Any = None, **_: Any) -> Any:
        if function is None:
            return lambda inner: JitFunction(machine, inner)
        return JitFunction(machine, function)

    return jit
