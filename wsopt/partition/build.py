"""A finished build whose kernels run one after the other, as Python sees it, and its folder read back."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from wsopt.build import Files, loaded, with_gpu
from wsopt.errors import CheckError, InputError, Problem
from wsopt.folder import CUT, BuildFolder, check_target, read_folder, replace_folder
from wsopt.graph.parse import load_graph
from wsopt.graph.types import Graph
from wsopt.partition.check import faults
from wsopt.partition.document import FORMAT, RECORD, CutRecord, summary_of

_INSTEAD = "save(DIR) and `wsopt run DIR` execute the kernels without torch and GPU"


@dataclass(frozen=True, slots=True, repr=False)
class CutBuild:
    """A finished build: files by path in its folder, and what `wsopt compile --json` prints of it.

    `seconds` is how long it took to make, or to fetch from the cache.
    """

    files: dict[str, str]
    summary: dict[str, Any]
    seconds: float = field(compare=False)

    @property
    def kernel(self) -> str:
        """The source of kernel.py, which runs the kernels in their order."""
        return self.files["kernel.py"]

    @property
    def report(self) -> str:
        """The report that `wsopt inspect` prints: the kernels, the time line, what lies between them."""
        return self.files["report.txt"]

    @property
    def record(self) -> CutRecord:
        """The launches in their order, the workspace, and the certificate."""
        return RECORD.validate_json(self.files[CUT])

    @property
    def module(self) -> ModuleType:
        """kernel.py as an imported module, with those of its kernels. RequirementError without torch or Triton."""
        return _loaded(tuple(self.files.items()))

    def run(self, /, **tensors: Any) -> Any:
        """The graph's outputs for these tensors, given by input name, on a GPU.

        Raises RequirementError without torch, Triton or a GPU, ValueError for tensors of another shape or type.
        """
        return _launcher(tuple(self.files.items())).run(**tensors)

    def prepare(self, outputs: Mapping[str, Any] | None = None, /, **tensors: Any) -> Any:
        """A function that launches the kernels on these tensors, and its outputs by name; raises as `run`."""
        return _launcher(tuple(self.files.items())).prepare(outputs, **tensors)

    def save(self, directory: str | os.PathLike[str]) -> Path:
        """Write the build folder, whole or not at all; a build there is replaced. InputError as `Build.save`."""
        path = Path(directory)
        check_target(path)
        replace_folder(path, self.files)
        return path

    def __repr__(self) -> str:
        """One line: name, machine, how many launches, and the predicted time."""
        s = self.summary
        return (
            f"<wsopt.CutBuild {s['name']} on {s['machine']}: {len(s['steps'])} launches, "
            f"predicted {s['predicted_us']:.1f} us>"
        )


def cut_build(files: dict[str, str], seconds: float) -> CutBuild:
    """A build of these files."""
    return CutBuild(files, summary_of(RECORD.validate_json(files[CUT])), seconds)


@cache
def _loaded(files: Files) -> ModuleType:
    """The module of a build's kernel.py, loaded once a process."""
    from wsopt.codegen.kernel_file import load_sequence_file

    return loaded(files, load_sequence_file, _INSTEAD)


@cache
def _launcher(files: Files) -> ModuleType:
    """A build's module where it can be called. What it needs is looked for once, not at every call."""
    module = _loaded(files)
    with_gpu(module.KERNELS[0], _INSTEAD)
    return module


# --- the folder, read back ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CutFolder:
    """A build read back: each schedule has passed the checker again, and the launches and the workspace their own.

    `kernels` are the builds of the record's folders, in their order.
    """

    path: Path
    graph: Graph
    record: CutRecord
    kernels: tuple[BuildFolder, ...]


def is_cut(path: Path) -> bool:
    """Whether a folder holds a build whose kernels run one after the other."""
    return (path / CUT).is_file()


def read_cut(path: Path) -> CutFolder:
    """Read a build and check it again.

    Raises InputError for files that are missing or damaged, CheckError for a schedule, a launch or a place in the
    workspace that is not right.
    """
    record, graph = _record(path), load_graph(path / "graph.json")
    kernels = {folder: read_folder(path / folder) for folder in record.folders}
    told = [*faults(graph, record, [kernels[step.folder] for step in record.steps])]
    if told:
        raise CheckError(f"{path} rejected: " + "; ".join(told[:5]))
    return CutFolder(path, graph, record, tuple(kernels.values()))


def _record(path: Path) -> CutRecord:
    where = path / CUT
    try:
        record = RECORD.validate_json(where.read_bytes())
    except OSError as error:
        raise InputError(str(where), [Problem("", f"cannot be read: {error.strerror}")]) from error
    except ValidationError as error:
        first = error.errors()[0]
        place = "/".join(map(str, ("", *first["loc"])))
        raise InputError(str(where), [Problem(place, first["msg"])]) from error
    if record.format != FORMAT:
        raise InputError(str(where), [Problem("/format", f"is not {FORMAT!r}")])
    return record
