"""wsopt: warp-specialized GPU schedules found by constraint solving."""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"

__all__ = ["Graph", "__version__", "compile", "load_graph"]


def __getattr__(name: str) -> Any:
    """The public names, imported when first used so that `import wsopt` costs nothing."""
    if name == "Graph":
        from wsopt.graph.builder import GraphBuilder

        return GraphBuilder
    if name == "compile":
        import importlib

        return importlib.import_module("wsopt.driver").compile_graph
    if name == "load_graph":
        from wsopt.graph.parse import load_graph

        return load_graph
    raise AttributeError(f"module 'wsopt' has no attribute {name!r}")
