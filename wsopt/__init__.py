"""wsopt: warp-specialized GPU kernels from compute graphs, their schedules found and proved by constraint solving.

    import wsopt

    g = wsopt.Graph("mlp_up")
    x = g.input("x", (8192, 4096), "bf16")
    w = g.input("w", (14336, 4096), "bf16", constant=True)
    g.output(g.cast(g.gelu(g.matmul(x, w, transpose_b=True)), "bf16", name="y"))
    build = wsopt.compile(g, machine="h200", directory="mlp_up.wsopt")
    y = build.run(x=x_tensor, w=w_tensor)  # torch tensors on a GPU

Graph          a graph in the making: inputs, one method for every operation, outputs
load_graph     the graph in a graph.json
compile        a graph to a Build: the best schedule, proved, checked, as a kernel; a CutBuild where it takes several
Build          what compile returns: run, schedule, report, kernel, save
compile_range  a graph with named dimensions to a RangeBuild: a few kernels for all their extents
WsoptError     every error that a user can cause or must know of; `exit_status` is the command line's

The command `wsopt` does the same and more: `wsopt --help`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wsopt.api import compile as compile
    from wsopt.api import compile_range as compile_range
    from wsopt.build import Build as Build
    from wsopt.errors import WsoptError as WsoptError
    from wsopt.graph.builder import GraphBuilder as Graph
    from wsopt.graph.parse import load_graph as load_graph

__version__ = "0.1.0"

_HOMES = {
    "Build": ("wsopt.build", "Build"),
    "Graph": ("wsopt.graph.builder", "GraphBuilder"),
    "WsoptError": ("wsopt.errors", "WsoptError"),
    "compile": ("wsopt.api", "compile"),
    "compile_range": ("wsopt.api", "compile_range"),
    "load_graph": ("wsopt.graph.parse", "load_graph"),
}
"""Where each public name is at home. No module of the package may bear one of them: it would take its place."""

__all__ = ["Build", "Graph", "WsoptError", "__version__", "compile", "compile_range", "load_graph"]


def __getattr__(name: str) -> Any:
    """The public names, imported when first used so that `import wsopt` costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'wsopt' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
