"""One function for all formats: a file's ending says which it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from wsopt.errors import InputError, Problem
from wsopt.importers.model import Imported
from wsopt.importers.packed import packed
from wsopt.requirements import require_onnx, require_torch

ENDINGS = {".onnx": "ONNX", ".pt2": "torch.export's"}
"""The formats by the endings of their files' names."""


def import_model(path: Path, extents: Mapping[str, int]) -> Imported:
    """The graph of a model's file, open extents fixed by name.

    Raises InputError for another ending, a file that is not what its ending says, and extents that stay open;
    LoweringError with all operations that no graph says; RequirementError without the package that reads it.
    """
    check_format(path)
    if path.suffix.lower() == ".onnx":
        require_onnx("reading an ONNX file")
        from wsopt.importers.onnx_model import import_onnx

        return packed(import_onnx(path, extents))
    require_torch("reading a file of torch.export", "an ONNX file can be read without torch", gpu=False)
    from wsopt.importers.exported import import_exported

    return packed(import_exported(path, extents))


def check_format(path: Path) -> None:
    """Raise InputError for a file whose ending names no format."""
    if path.suffix.lower() not in ENDINGS:
        known = ", ".join(f"{ending} ({what})" for ending, what in ENDINGS.items())
        raise InputError(
            str(path), [Problem("", f"the ending {path.suffix!r} names no format; there are {known}")]
        )
