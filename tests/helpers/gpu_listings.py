"""Machine code of kernels, compiled here, as cuobjdump prints it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from wsopt.codegen.aot_child import compile_source, cuobjdump


def listing(source: str, architecture: str = "sm_90") -> str:
    """The listing of a kernel.py's machine code."""
    with tempfile.TemporaryDirectory() as folder:
        binary, _, _ = compile_source(source, architecture, Path(folder))
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(binary)
        return cuobjdump("-sass", path)
