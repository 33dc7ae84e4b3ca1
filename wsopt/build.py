"""A finished build as Python sees it: its files, its schedule and its report, and its kernel, ready to be called."""

from __future__ import annotations

import functools
import os
import tempfile
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

_INSTEAD = "save(DIR) and `wsopt run DIR` execute the kernel without torch and GPU"


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


@functools.cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    """A folder that lives as long as this process: Triton reads a kernel's source from its file."""
    return tempfile.TemporaryDirectory(prefix="wsopt-kernels-")


Files = tuple[tuple[str, str], ...]
"""The files of a build, by path in its folder."""


def loaded(files: Files, load: Callable[[Path], ModuleType], instead: str) -> ModuleType:
    """The module that `load` makes of the kernel.py among these files. Raises RequirementError where torch or Triton
    is not installed; `instead` says what works without.
    """
    require_torch("a kernel's launcher", instead)
    require_triton("a kernel's launcher")
    folder = Path(tempfile.mkdtemp(dir=_scratch().name)) / "build"
    replace_folder(folder, dict(files))
    return load(folder / "kernel.py")


def with_gpu(kernel: ModuleType, instead: str) -> None:
    """Raise RequirementError where the torch of a kernel's module sees no GPU."""
    if not kernel.torch.cuda.is_available():
        raise RequirementError(f"torch sees no GPU here, and a kernel's launcher needs one; {instead}")


@functools.cache
def _loaded(source: str) -> ModuleType:
    """The module of a kernel's source, loaded once a process."""
    from wsopt.codegen.kernel_file import load_kernel_file

    return loaded((("kernel.py", source),), load_kernel_file, _INSTEAD)


@functools.cache
def _launcher(source: str) -> ModuleType:
    """A kernel's module where it can be called. What it needs is looked for once, not at every call."""
    module = _loaded(source)
    with_gpu(module, _INSTEAD)
    return module
