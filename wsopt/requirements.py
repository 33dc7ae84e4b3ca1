"""Checks for packages that only some commands need, each with a remedy that works on the machine in question.

A package that is missing is no fault of the input and no check that failed: see RequirementError.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import platform

from wsopt.errors import RequirementError

TORCH = "torch>=2.9,<3"
TRITON = "triton>=3.6,<4"
MATPLOTLIB = "matplotlib>=3.9,<4"
ONNX = "onnx>=1.19,<2"
SAFETENSORS = "safetensors>=0.5,<1"
DISTRIBUTED = "distributed>=2025.1"


def require_torch(what: str, instead: str = "", *, gpu: bool = True) -> None:
    """Raise RequirementError unless torch is installed. `what` needs it, and a `gpu`; `instead` is what else can be
    done.
    """
    if importlib.util.find_spec("torch") is None:
        other = f"; {instead}" if instead else ""
        where = " on a machine with a GPU" if gpu else ""
        raise RequirementError(
            f"torch is not installed, and {what} needs it: pip install '{TORCH}'{where}{other}"
        )


def require_triton(what: str) -> None:
    """Raise RequirementError unless Triton is installed; says what works without it. `what` needs it."""
    if importlib.util.find_spec("triton") is not None:
        return
    system = platform.system()
    remedy = (
        f"pip install '{TRITON}'"
        if system == "Linux"
        else f"it has wheels for Linux alone, and this is {'macOS' if system == 'Darwin' else system}"
    )
    raise RequirementError(
        f"Triton is not installed, and {what} needs it: {remedy}; without it `wsopt inspect DIR` and "
        "`wsopt run DIR` work on folders that were compiled elsewhere, and `wsopt ops`, `machines` and `schema`"
    )


@functools.cache
def triton_release() -> tuple[int, int] | None:
    """Major and minor number of the Triton that compiles here; None where there is none."""
    try:
        major, minor, *_ = importlib.metadata.version("triton").split(".")
    except importlib.metadata.PackageNotFoundError:
        return None
    return int(major), int(minor)


def require_matplotlib(what: str) -> None:
    """Raise RequirementError unless matplotlib is installed. `what` needs it."""
    _require("matplotlib", MATPLOTLIB, what)


def require_onnx(what: str) -> None:
    """Raise RequirementError unless onnx is installed. `what` needs it."""
    _require("onnx", ONNX, what)


def require_safetensors(what: str, instead: str) -> None:
    """Raise RequirementError unless safetensors is installed. `what` needs it; `instead` is what else can be done."""
    _require("safetensors", SAFETENSORS, what, instead)


def require_distributed(what: str) -> None:
    """Raise RequirementError unless Dask's scheduler is installed. `what` needs it."""
    _require("distributed", DISTRIBUTED, what, "without it the work is done by processes here")


def _require(package: str, release: str, what: str, instead: str = "") -> None:
    if importlib.util.find_spec(package) is None:
        other = f"; {instead}" if instead else ""
        raise RequirementError(
            f"{package} is not installed, and {what} needs it: pip install '{release}'{other}"
        )
