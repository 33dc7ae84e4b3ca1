"""A finished build of several kernels as Python sees it, and its folder: written, read back and checked again."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from wsopt.build import FinishedBuild
from wsopt.errors import CheckError, InputError, Problem
from wsopt.folder import RANGE, BuildFolder, read_folder, read_record
from wsopt.graph.symbolic import SymbolicGraph, load_any
from wsopt.ranges.document import FORMAT, RECORD, RangeRecord, summary_of
from wsopt.ranges.points import Grid, grid_of
from wsopt.ranges.price import Extents, Kernel

_CLOSE = 1e-9


@dataclass(frozen=True, slots=True, repr=False)
class RangeBuild(FinishedBuild):
    """A finished build of a few kernels that cover a range of extents; a `RangeRecord` says which serves which."""

    @staticmethod
    def load(path: Path) -> ModuleType:
        """The module of a kernel.py that calls one of the kernels beside it, by the extents of its inputs."""
        from wsopt.codegen.kernel_file import load_dispatch_file

        return load_dispatch_file(path)

    @property
    def record(self) -> RangeRecord:
        """Which kernel serves which extents, and the certificate."""
        return RECORD.validate_json(self.files[RANGE])

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
    record, graph = read_record(path / RANGE, RECORD, FORMAT), load_any(path / "graph.json")
    if not isinstance(graph, SymbolicGraph):
        raise InputError(str(path / "graph.json"), [Problem("/dims", "a range's graph has named dimensions")])
    kernels = tuple(read_folder(path / member.folder) for member in record.kernels)
    found = RangeFolder(path, graph, record, kernels)
    _check(found)
    return found


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
