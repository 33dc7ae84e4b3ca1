"""A finished build of several kernels as Python sees it, and its folder: written, read back and checked again."""

from __future__ import annotations

import math
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
from wsopt.folder import RANGE, BuildFolder, check_target, read_folder, replace_folder
from wsopt.graph.symbolic import SymbolicGraph, load_any
from wsopt.ranges.document import FORMAT, RECORD, RangeRecord, summary_of
from wsopt.ranges.points import Grid, grid_of
from wsopt.ranges.price import Extents, Kernel

_CLOSE = 1e-9
_INSTEAD = "save(DIR) and `wsopt run DIR` execute the kernels without torch and GPU"


@dataclass(frozen=True, slots=True, repr=False)
class RangeBuild:
    """A finished build of several kernels: files by path in its folder, and what `wsopt compile --json` prints of it.

    `seconds` is how long it took to make, or to fetch from the cache.
    """

    files: dict[str, str]
    summary: dict[str, Any]
    seconds: float = field(compare=False)

    @property
    def report(self) -> str:
        """The report that `wsopt inspect` prints: the kernels, the switches, time and loss by extent."""
        return self.files["report.txt"]

    @property
    def record(self) -> RangeRecord:
        """Which kernel serves which extents, and the certificate."""
        return RECORD.validate_json(self.files[RANGE])

    @property
    def module(self) -> ModuleType:
        """kernel.py as an imported module, with those of its kernels. RequirementError without torch or Triton."""
        return _loaded(tuple(self.files.items()))

    def run(self, /, **tensors: Any) -> Any:
        """The graph's outputs for these tensors, given by input name, by the kernel for their extents, on a GPU.

        Raises RequirementError without torch, Triton or a GPU, ValueError for extents outside of the ranges.
        """
        return _launcher(tuple(self.files.items())).run(**tensors)

    def prepare(self, outputs: Mapping[str, Any] | None = None, /, **tensors: Any) -> Any:
        """A function that launches a kernel on these tensors, and its outputs by name; raises as `run`."""
        return _launcher(tuple(self.files.items())).prepare(outputs, **tensors)

    def save(self, directory: str | os.PathLike[str]) -> Path:
        """Write the build folder, whole or not at all; a build there is replaced. InputError as `Build.save`."""
        path = Path(directory)
        check_target(path)
        replace_folder(path, self.files)
        return path

    def __repr__(self) -> str:
        """One line: name, machine, how many kernels, and the worst predicted loss."""
        s = self.summary
        return (
            f"<wsopt.RangeBuild {s['name']} on {s['machine']}: {len(s['kernels'])} kernels, "
            f"loss at most {s['worst_loss']:.1%}>"
        )


def range_build(files: dict[str, str], seconds: float) -> RangeBuild:
    """A build of these files."""
    return RangeBuild(files, summary_of(RECORD.validate_json(files[RANGE])), seconds)


@cache
def _loaded(files: Files) -> ModuleType:
    """The module of a build's kernel.py, loaded once a process."""
    from wsopt.codegen.kernel_file import load_dispatch_file

    return loaded(files, load_dispatch_file, _INSTEAD)


@cache
def _launcher(files: Files) -> ModuleType:
    """A build's module where it can be called. What it needs is looked for once, not at every call."""
    module = _loaded(files)
    with_gpu(module.KERNELS[0], _INSTEAD)
    return module


# --- the folder, read back ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RangeFolder:
    """A build of several kernels read back: each schedule has passed the checker again, and each predicted time was
    derived again.
    """

    path: Path
    graph: SymbolicGraph
    record: RangeRecord
    kernels: tuple[BuildFolder, ...]


def is_range(path: Path) -> bool:
    """Whether a folder holds a build of several kernels."""
    return (path / RANGE).is_file()


def read_range(path: Path) -> RangeFolder:
    """Read a build of several kernels and check it again.

    Raises InputError for files that are missing or damaged, CheckError for a schedule, a time or a loss that is not
    right.
    """
    record, graph = _record(path), load_any(path / "graph.json")
    if not isinstance(graph, SymbolicGraph):
        raise InputError(str(path / "graph.json"), [Problem("/dims", "a range's graph has named dimensions")])
    kernels = tuple(read_folder(path / member.folder) for member in record.kernels)
    found = RangeFolder(path, graph, record, kernels)
    _check(found)
    return found


def _record(path: Path) -> RangeRecord:
    where = path / RANGE
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


def _check(found: RangeFolder) -> None:
    """Raise CheckError where a record does not say what its kernels are, or its losses are others."""
    record, grid = found.record, grid_of(found.graph.dims)
    ends = {dim.name: own for dim, own in zip(grid.dims, grid.ends, strict=True)}
    counts = {len(record.serves), len(record.predicted_us), len(record.best_us), len(grid.cells)}
    if record.ends != ends or len(counts) > 1 or not {*record.serves} <= {*range(len(found.kernels))}:
        raise CheckError(f"{found.path}: range.json does not have the cells of its graph's dimensions")
    faults = [*_faults(found, grid)]
    if faults:
        raise CheckError(f"{found.path} rejected: " + "; ".join(faults[:5]))


def _faults(found: RangeFolder, grid: Grid) -> list[str]:
    """Cells whose kernel does not take them, or takes another time than is said; and a worst loss that is another."""
    record, told = found.record, []
    extents = Extents(found.graph, found.kernels[0].verified.machine)
    kernels = [
        Kernel(tuple(member.home.values()), one.verified, one.certificate)
        for member, one in zip(record.kernels, found.kernels, strict=True)
    ]
    for cell, number, predicted in zip(grid.cells, record.serves, record.predicted_us, strict=True):
        again = extents.microseconds(kernels[number], cell)
        if not math.isclose(again, predicted, rel_tol=_CLOSE):
            told.append(
                f"kernel {number} at {cell} is said to take {predicted} us, the formula gives {again} us"
            )
    if not math.isclose(max(record.losses), record.certificate.worst_loss, rel_tol=_CLOSE, abs_tol=_CLOSE):
        told.append(f"the worst loss is {max(record.losses)}, said is {record.certificate.worst_loss}")
    return told
