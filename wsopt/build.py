"""A finished build as Python sees it: its files, its schedule and its report, and its kernel, ready to be called."""

from __future__ import annotations

import functools
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from wsopt.errors import RequirementError
from wsopt.folder import check_target, read_schedule, replace_folder, write_folder
from wsopt.requirements import require_torch, require_triton

if TYPE_CHECKING:
    from wsopt.schedule.types import Schedule

_INSTEAD = "save(DIR) and `wsopt run DIR` execute the kernel without torch and GPU"
_INSTEAD_OF_SEVERAL = "save(DIR) and `wsopt run DIR` execute the kernels without torch and GPU"
_Load = Callable[[Path], ModuleType]
_Files = tuple[tuple[str, str], ...]
"""The files of a build, by path in its folder."""


@dataclass(frozen=True, slots=True, repr=False)
class Build:
    """A finished build: the files of its folder by name, and what `wsopt compile --json` prints of it.

    `seconds` is how long it took to make, or to fetch from the cache.
    """

    files: dict[str, str]
    summary: dict[str, Any]
    seconds: float = field(compare=False)

    @property
    def kernel(self) -> str:
        """The source of kernel.py."""
        return self.files["kernel.py"]

    @property
    def report(self) -> str:
        """The report that `wsopt inspect` prints: the schedule in words and figures, and the reasons for it."""
        return self.files["report.txt"]

    @property
    def schedule(self) -> Schedule:
        """The schedule as typed data, in SM cycles and bytes: structure, placed operations, rings, prediction."""
        return read_schedule(self.files["schedule.json"])

    @property
    def module(self) -> ModuleType:
        """The kernel as an imported module, loaded when first asked for; its names are those of kernel.py.

        Raises RequirementError where torch or Triton is not installed.
        """
        return _loaded(self.kernel)

    def run(self, /, **tensors: Any) -> Any:
        """The graph's outputs for these tensors, given by input name, computed on a GPU; see `run` in kernel.py.

        The kernel is loaded by the first call. Raises RequirementError without torch, Triton or a GPU.
        """
        return _launcher(self.kernel).run(**tensors)

    def prepare(self, outputs: Mapping[str, Any] | None = None, /, **tensors: Any) -> Any:
        """A function that launches the kernel on these tensors, and its outputs by name; see `prepare` in kernel.py.

        Raises RequirementError without torch, Triton or a GPU.
        """
        return _launcher(self.kernel).prepare(outputs, **tensors)

    def register(self, name: str | None = None) -> Any:
        """Make `torch.ops.wsopt.NAME` of the kernel, by default of the graph's name, and return that operator.

        Raises RequirementError without torch or Triton, ValueError for a name that another kernel has.
        """
        return self.module.register(name or self.summary["name"])

    def save(self, directory: str | os.PathLike[str]) -> Path:
        """Write the build folder, whole or not at all; a build that is there is replaced. Returns its path.

        Raises InputError for a place that holds something else, or that cannot be written.
        """
        path = Path(directory)
        write_folder(path, self.files)
        return path

    def __repr__(self) -> str:
        """One line: name, machine, how good the schedule is, and its predicted time."""
        s = self.summary
        return (
            f"<wsopt.Build {s['name']} on {s['machine']}: {s['status']}, predicted {s['predicted_us']:.1f} us, "
            f"roofline {s['roofline_us']:.1f} us>"
        )

    def _repr_html_(self) -> str:
        """The build for a notebook: its figures as a table, its report and its kernel to open."""
        from wsopt.report.html import build_html

        return build_html(self.summary, self.report, self.kernel)


@dataclass(frozen=True, slots=True, repr=False)
class BuildOfSeveral(ABC):
    """A finished build of several kernels with one `run`: its files by path, and what `wsopt compile --json` prints.

    `seconds` is how long it took to make, or to fetch from the cache.
    """

    files: dict[str, str]
    summary: dict[str, Any]
    seconds: float = field(compare=False)

    @staticmethod
    @abstractmethod
    def load(path: Path) -> ModuleType:
        """The module of a kernel.py that calls the kernels of the folders beside it."""

    @property
    def kernel(self) -> str:
        """The source of kernel.py, which calls the kernels."""
        return self.files["kernel.py"]

    @property
    def report(self) -> str:
        """The report that `wsopt inspect` prints: the kernels, when each of them runs, and how long."""
        return self.files["report.txt"]

    @property
    def module(self) -> ModuleType:
        """kernel.py as an imported module, with those of its kernels. RequirementError without torch or Triton."""
        return _loaded_several(tuple(self.files.items()), self.load)

    def run(self, /, **tensors: Any) -> Any:
        """The graph's outputs for these tensors, given by input name, computed on a GPU.

        Raises RequirementError without torch, Triton or a GPU, ValueError for tensors that do not fit the graph.
        """
        return _launcher_of_several(tuple(self.files.items()), self.load).run(**tensors)

    def prepare(self, outputs: Mapping[str, Any] | None = None, /, **tensors: Any) -> Any:
        """A function that launches kernels on these tensors, and its outputs by name; raises as `run`."""
        return _launcher_of_several(tuple(self.files.items()), self.load).prepare(outputs, **tensors)

    def save(self, directory: str | os.PathLike[str]) -> Path:
        """Write the build folder, whole or not at all; a build there is replaced. InputError as `Build.save`."""
        path = Path(directory)
        check_target(path)
        replace_folder(path, self.files)
        return path


# --- kernels as modules ---------------------------------------------------------------------------------


@functools.cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    """A folder that lives as long as this process: Triton reads a kernel's source from its file."""
    return tempfile.TemporaryDirectory(prefix="wsopt-kernels-")


def _module(files: _Files, load: _Load, instead: str) -> ModuleType:
    """The module that `load` makes of the kernel.py among these files. Raises RequirementError where torch or Triton
    is not installed; `instead` says what works without.
    """
    require_torch("a kernel's launcher", instead)
    require_triton("a kernel's launcher")
    folder = Path(tempfile.mkdtemp(dir=_scratch().name)) / "build"
    replace_folder(folder, dict(files))
    return load(folder / "kernel.py")


def _require_gpu(kernel: ModuleType, instead: str) -> None:
    """Raise RequirementError where the torch of a kernel's module sees no GPU."""
    if not kernel.torch.cuda.is_available():
        raise RequirementError(f"torch sees no GPU here, and a kernel's launcher needs one; {instead}")


@functools.cache
def _loaded(source: str) -> ModuleType:
    """The module of a kernel's source, loaded once a process."""
    from wsopt.codegen.kernel_file import load_kernel_file

    return _module((("kernel.py", source),), load_kernel_file, _INSTEAD)


@functools.cache
def _launcher(source: str) -> ModuleType:
    """A kernel's module where it can be called. What it needs is looked for once, not at every call."""
    module = _loaded(source)
    _require_gpu(module, _INSTEAD)
    return module


@functools.cache
def _loaded_several(files: _Files, load: _Load) -> ModuleType:
    """The module over several kernels, loaded once a process."""
    return _module(files, load, _INSTEAD_OF_SEVERAL)


@functools.cache
def _launcher_of_several(files: _Files, load: _Load) -> ModuleType:
    """The module over several kernels where it can be called; looked for once, as for one kernel."""
    module = _loaded_several(files, load)
    _require_gpu(module.KERNELS[0], _INSTEAD_OF_SEVERAL)
    return module
