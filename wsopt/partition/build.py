"""A finished build whose kernels run one after the other, as Python sees it, and its folder read back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from wsopt.build import FinishedBuild
from wsopt.errors import CheckError
from wsopt.folder import CUT, BuildFolder, read_folder, read_record
from wsopt.graph.parse import load_graph
from wsopt.graph.types import Graph
from wsopt.partition.check import faults
from wsopt.partition.document import FORMAT, RECORD, CutRecord, summary_of


@dataclass(frozen=True, slots=True, repr=False)
class CutBuild(FinishedBuild):
    """A finished build whose kernels run one after the other; a `CutRecord` says how."""

    @staticmethod
    def load(path: Path) -> ModuleType:
        """The module of a kernel.py that runs the kernels of the folders beside it in their order."""
        from wsopt.codegen.kernel_file import load_sequence_file

        return load_sequence_file(path)

    @property
    def record(self) -> CutRecord:
        """The launches in their order, the workspace, and the certificate."""
        return RECORD.validate_json(self.files[CUT])

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
    record, graph = read_record(path / CUT, RECORD, FORMAT), load_graph(path / "graph.json")
    kernels = {folder: read_folder(path / folder) for folder in record.folders}
    told = [*faults(graph, record, [kernels[step.folder] for step in record.steps])]
    if told:
        raise CheckError(f"{path} rejected: " + "; ".join(told[:5]))
    return CutFolder(path, graph, record, tuple(kernels.values()))
