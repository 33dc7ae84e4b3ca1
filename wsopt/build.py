"""A finished build as Python sees it: its files and its report, and what computes the graph, ready to be called."""

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
from wsopt.folder import read_schedule, replace_folder, write_folder
from wsopt.requirements import require_torch, require_triton

if TYPE_CHECKING:
    from wsopt.schedule.types import Schedule

_INSTEAD = "save(DIR) and `wsopt run DIR` execute a kernel without torch and GPU"
_Load = Callable[[Path], ModuleType]
_Files = tuple[tuple[str, str], ...]
"""The files of a build, by path in its folder."""


@dataclass(frozen=True, slots=True, repr=False)
class FinishedBuild(ABC):
    """A finished build: its files by path in its folder, and what `wsopt compile --json` prints of it.

    `seconds` is how long it took to make, or to fetch from the cache.
    """

    files: dict[str, str]
    summary: dict[str, Any]
    seconds: float = field(compare=False)

    @staticmethod
    @abstractmethod
    def load(path: Path) -> ModuleType:
        """The module of a kernel.py, and of the kernels in the folders beside it, if it calls others."""

    @property
    def kernel(self) -> str:
        """The source of kernel.py, which is the kernel or calls the kernels."""
        return self.files["kernel.py"]

    @property
    def report(self) -> str:
        """The report that `wsopt inspect` prints: of one kernel the schedule in words and figures and the reasons for
        it, of several when each of them runs, and how long.
        """
        return self.files["report.txt"]

    @property
    def module(self) -> ModuleType:
        """kernel.py as an imported module, with those of the kernels that it calls, loaded when first asked for.

        Raises RequirementError where torch or Triton is not installed.
        """
        return _loaded(self._loadable, self.load)

    def run(self, /, **tensors: Any) -> Any:
        """The graph's outputs for these tensors, given by input name, computed on a GPU; see `run` in kernel.py.

        What it takes is loaded by the first call. Raises RequirementError without torch, Triton or a GPU, ValueError
        for tensors that do not fit the graph.
        """
        return _launcher(self._loadable, self.load).run(**tensors)

    def prepare(self, outputs: Mapping[str, Any] | None = None, /, **tensors: Any) -> Any:
        """A function that launches what computes the graph on these tensors, and its outputs by name; see `prepare`
        in kernel.py. Raises as `run`.
        """
        return _launcher(self._loadable, self.load).prepare(outputs, **tensors)

    def save(self, directory: str | os.PathLike[str]) -> Path:
        """Write the build folder, whole or not at all; a build that is there is replaced. Returns its path.

        Raises InputError for a place that holds something else, or that cannot be written.
        """
        path = Path(directory)
        write_folder(path, self.files)
        return path

    @property
    def _loadable(self) -> _Files:
        """The files that the module is loaded from."""
        return tuple(self.files.items())


@dataclass(frozen=True, slots=True, repr=False)
class Build(FinishedBuild):
    """A finished build of one kernel."""

    @staticmethod
    def load(path: Path) -> ModuleType:
        """The module of a kernel's source."""
        from wsopt.codegen.kernel_file import load_kernel_file

        return load_kernel_file(path)

    @property
    def schedule(self) -> Schedule:
        """The schedule as typed data, in SM cycles and bytes: structure, placed operations, rings, prediction."""
        return read_schedule(self.files["schedule.json"])

    def register(self, name: str | None = None) -> Any:
        """Make `torch.ops.wsopt.NAME` of the kernel, by default of the graph's name, and return that operator.

        Raises RequirementError without torch or Triton, ValueError for a name that another kernel has.
        """
        return self.module.register(name or self.summary["name"])

    @property
    def _loadable(self) -> _Files:
        """The kernel alone: builds whose kernels are the same share its module."""
        return (("kernel.py", self.kernel),)

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


# --- kernels as modules ---------------------------------------------------------------------------------


@functools.cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    """A folder that lives as long as this process: Triton reads a kernel's source from its file."""
    return tempfile.TemporaryDirectory(prefix="wsopt-kernels-")


@functools.cache
def _loaded(files: _Files, load: _Load) -> ModuleType:
    """The module that `load` makes of the kernel.py among these files, once a process. Raises RequirementError where
    torch or Triton is not installed.
    """
    require_torch("a kernel's launcher", _INSTEAD)
    require_triton("a kernel's launcher")
    folder = Path(tempfile.mkdtemp(dir=_scratch().name)) / "build"
    replace_folder(folder, dict(files))
    return load(folder / "kernel.py")


@functools.cache
def _launcher(files: _Files, load: _Load) -> ModuleType:
    """The module where it can be called: whether its torch sees a GPU is looked for once, not at every call."""
    module = _loaded(files, load)
    (kernel, *_) = getattr(module, "KERNELS", (module,))
    if not kernel.torch.cuda.is_available():
        raise RequirementError(f"torch sees no GPU here, and a kernel's launcher needs one; {_INSTEAD}")
    return module
