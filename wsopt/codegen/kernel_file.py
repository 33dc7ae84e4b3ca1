"""Imports an emitted kernel.py, with a stand-in for torch while it loads where there is none."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from wsopt.codegen.errors import CompileError

_LOAD_ERRORS = (SyntaxError, ImportError, NameError, AttributeError, TypeError, ValueError, AssertionError)
_REQUIRED = ("kernel", "SIGNATURE", "OPTIONS", "prepare", "run")
_DISPATCHES = ("KERNELS", "serving", "prepare", "run")
_SEQUENCE = ("KERNELS", "STEPS", "prepare", "run")


class _TorchStandIn(ModuleType):
    """Answers any attribute with `object`: enough to define functions that name torch's types."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return object


@contextlib.contextmanager
def torch_stand_in() -> Iterator[None]:
    """While open, `import torch` gives a stand-in, or the torch that is loaded already: loading it takes seconds."""
    if "torch" in sys.modules:
        yield
        return
    sys.modules["torch"] = _TorchStandIn("torch")
    try:
        yield
    finally:
        del sys.modules["torch"]


@contextlib.contextmanager
def torch_or_stand_in() -> Iterator[None]:
    """While open, `import torch` works; a torch that is installed is left alone."""
    installed = "torch" in sys.modules or importlib.util.find_spec("torch") is not None
    with contextlib.nullcontext() if installed else torch_stand_in():
        yield


def load_kernel_file(path: Path) -> ModuleType:
    """The module of a kernel.py, under a name of its own that does not stay in `sys.modules`.

    Raises CompileError if it does not load or lacks a name of the contract (`kernel`, `SIGNATURE`,
    `OPTIONS`, `prepare`, `run`), OSError if there is no such file.
    """
    return _loaded(path, _REQUIRED)


def load_dispatch_file(path: Path) -> ModuleType:
    """The module of the kernel.py of a build of several kernels, with those of its kernels; raises as above."""
    return _loaded(path, _DISPATCHES)


def load_sequence_file(path: Path) -> ModuleType:
    """The module of the kernel.py of a build whose kernels run one after the other, with theirs; raises as above."""
    return _loaded(path, _SEQUENCE)


def _loaded(path: Path, names: Sequence[str]) -> ModuleType:
    name = "wsopt_kernel_" + hashlib.sha256(str(path).encode() + path.read_bytes()).hexdigest()[:16]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with torch_or_stand_in():
            spec.loader.exec_module(module)
    except _LOAD_ERRORS as error:
        raise CompileError(f"{path.name} does not load: {type(error).__name__}: {error}") from error
    finally:
        del sys.modules[name]
    missing = [required for required in names if not hasattr(module, required)]
    if missing:
        raise CompileError(f"{path.name} lacks {', '.join(missing)}")
    return module
