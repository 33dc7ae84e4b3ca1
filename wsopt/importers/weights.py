"""A model's constants as a file beside its graph, by the names that the graph's inputs have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from wsopt.errors import InputError, Problem
from wsopt.importers.model import Array
from wsopt.requirements import require_safetensors

ENDINGS = (".safetensors", ".npz")
_TYPES_OF_NPZ = ("float32", "float16", "int32", "int8", "bool")


def check_weights(path: Path) -> None:
    """Raise InputError for a file whose ending names no format, RequirementError without the package for it."""
    if path.suffix not in ENDINGS:
        told = f"the ending {path.suffix!r} names no format of arrays; there are {', '.join(ENDINGS)}"
        raise InputError(str(path), [Problem("", told)])
    if path.suffix == ".safetensors":
        require_safetensors("writing a .safetensors file", "a .npz file needs nothing more")


def write_weights(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays by name. Raises InputError for types that the format lacks, and where it cannot be written."""
    try:
        if path.suffix == ".safetensors":
            from safetensors.numpy import save_file

            save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)
            return
        others = sorted({str(one.dtype) for one in arrays.values()} - set(_TYPES_OF_NPZ))
        if others:
            told = f"NumPy's files have no {', '.join(others)}; give a name that ends in .safetensors"
            raise InputError(str(path), [Problem("", told)])
        with path.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
    except OSError as error:
        raise InputError(str(path), [Problem("", f"cannot be written: {error.strerror or error}")]) from error
