"""From a build folder to the files of its export: recompiled, checked again, described, with a launcher."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wsopt.codegen.oracle import verdict
from wsopt.emit.recipe import Recipe
from wsopt.emit.recipe_of import launch_recipe
from wsopt.emit.source import emit, expectation
from wsopt.errors import CheckError, InputError, LoweringError, Problem
from wsopt.export.binary import Binary, compile_binary
from wsopt.export.cpp import launcher_files
from wsopt.export.document import launch_document
from wsopt.export.layout import parameters
from wsopt.folder import BuildFolder, check_target, read_folder, replace_folder
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.tensors.views import WITH_ROOM

MAX_RANK = 8
"""Dimensions of a tensor at most: WSOPT_MAX_RANK of the C++ launcher."""


@dataclass(frozen=True, slots=True)
class Export:
    """The files of an export by name, and its facts for people."""

    files: dict[str, str | bytes]
    summary: dict[str, Any]


def export_folder(path: Path, target: Path) -> Export:
    """Write the export of the build at `path` to the folder `target`, whole or not at all.

    Raises InputError for a folder that is no build of this version, or a target that must not be replaced;
    CheckError where the compiled kernel is not what its schedule asked for; LoweringError for more dimensions than
    a launcher takes, and for pairs of blocks.
    """
    folder = read_folder(path)
    name = folder.graph.name
    check_target(target, _file_names(name), "an export")
    _check_text(folder)
    made = make_export(folder.verified)
    replace_folder(target, made.files)
    return made


def make_export(verified: VerifiedSchedule) -> Export:
    """The export of a verified schedule's kernel."""
    recipe = launch_recipe(verified)
    _check_single(verified)
    _check_packed(recipe)
    _check_ranks(recipe)
    binary = compile_binary(emit(verified), verified.machine.architecture)
    _check_code(verified, binary)
    places = parameters(recipe, binary)
    files: dict[str, str | bytes] = {
        f"{recipe.name}.cubin": binary.cubin,
        "launch.json": launch_document(recipe, binary, places),
        **launcher_files(recipe, binary, places),
    }
    assert set(files) == set(_file_names(recipe.name))
    summary = {
        "name": recipe.name,
        "target": binary.target,
        "triton": binary.compiled.triton_version,
        "registers": binary.compiled.registers,
        "threads": binary.threads,
        "dynamic_shared_bytes": binary.compiled.shared_bytes,
        "files": sorted(files),
    }
    return Export(files, summary)


def _check_single(verified: VerifiedSchedule) -> None:
    """LoweringError for pairs of blocks, whose launch and tensor maps the exported launcher does not know."""
    if verified.program.structure.paired:
        raise LoweringError(
            f"graph {verified.program.whole.name}: pairs of blocks work on its tiles, which the exported launcher "
            "does not launch: compile it with `--under paired=no`"
        )


def _file_names(name: str) -> tuple[str, ...]:
    own = tuple(f"{name}.{ending}" for ending in ("cubin", "h", "cpp"))
    return (*own, "launch.json", "wsopt_launch.h", "example.cpp", "README.md")


def _check_text(folder: BuildFolder) -> None:
    """The recipe is of the schedule: a kernel with another text may want another launch."""
    if folder.kernel != emit(folder.verified):
        told = (
            "is not what this version of wsopt writes for schedule.json: it was edited, or another version wrote it; "
            f"`wsopt compile {folder.path / 'graph.json'} -o {folder.path}` writes it anew"
        )
        raise InputError(str(folder.path / "kernel.py"), [Problem("", told)])


def _check_packed(recipe: Recipe) -> None:
    """Nothing is packed that a launcher could not read as it lies: room behind rows is in a tensor's strides."""
    for one in (one for one in recipe.packed if one.packing not in WITH_ROOM):
        raise LoweringError(
            f"graph {recipe.name}, tensor {one.tensor}: the kernel reads it packed ({one.packing}), and an exported "
            "launcher packs nothing; call the kernel from Python, which does"
        )


def _check_ranks(recipe: Recipe) -> None:
    for tensor in recipe.tensors:
        if tensor.rank > MAX_RANK:
            raise LoweringError(
                f"graph {recipe.name}, tensor {tensor.name}: it has {tensor.rank} dimensions, an exported launcher "
                f"takes up to {MAX_RANK}; merge some of them in the graph's shape"
            )


def _check_code(verified: VerifiedSchedule, binary: Binary) -> None:
    complaints = verdict(binary.compiled, expectation(verified))
    if complaints:
        told = "; ".join(complaints)
        raise CheckError(f"graph {verified.program.whole.name}: the kernel compiled for export has {told}")
