"""A backend of `torch.compile`: parts of a model's graph run as kernels of ours, all else as Inductor has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wsopt.torch.compiler import backend as backend
    from wsopt.torch.report import Report as Report
    from wsopt.torch.report import explain as explain

__all__ = ["Report", "backend", "explain"]

_HOMES = {
    "Report": "wsopt.torch.report",
    "backend": "wsopt.torch.compiler",
    "explain": "wsopt.torch.report",
}
"""Where each name is at home; loaded when it is first used, so that this room can be imported without torch."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'wsopt.torch' has no attribute {name!r}")
    import importlib

    from wsopt.requirements import require_torch

    require_torch("the backend of torch.compile")
    return getattr(importlib.import_module(_HOMES[name]), name)
