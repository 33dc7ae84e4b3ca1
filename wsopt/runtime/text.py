"""Parts of every emitted kernel.py that are modules of this package: the launcher, and the order of tiles."""

from __future__ import annotations

import ast
import functools
import inspect
from importlib import resources

from wsopt.program import tile_order

_FILES = ("driver.py", "launcher.py")


@functools.cache
def launcher_text() -> str:
    """The code of the launcher's files below their imports, one after the other."""
    return "\n\n".join(
        _below_imports((resources.files(__package__) / name).read_text("utf-8")) for name in _FILES
    )


@functools.cache
def tile_order_text() -> str:
    """The code that writes the order of tiles, below its imports."""
    return _below_imports(inspect.getsource(tile_order))


@functools.cache
def workspace_text() -> str:
    """The code that keeps a kernel's workspace, below its imports; it comes after the launcher's."""
    return _below_imports((resources.files(__package__) / "workspace.py").read_text("utf-8"))


@functools.cache
def packing_text() -> str:
    """The code that packs constants, below its imports and the kernel's own table; it comes after the launcher's."""
    text = _below_imports((resources.files(__package__) / "packing.py").read_text("utf-8"))
    return text[text.index("# For fragments") :]


def _below_imports(text: str) -> str:
    imports = [node for node in ast.parse(text).body if isinstance(node, ast.Import | ast.ImportFrom)]
    last = max(node.end_lineno or 0 for node in imports)
    return "".join(text.splitlines(keepends=True)[last:]).strip("\n") + "\n"
