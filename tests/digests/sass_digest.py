"""Prints digests of machine code, one a line: of each kernel.py in the JSON list on standard input.

A digest is of a kernel's instructions, and of nothing beside them.

Needs Triton and this package's `gpu` room alone, so that any Python with a Triton can be asked.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tempfile
from pathlib import Path

from wsopt.codegen.aot_child import compile_source, cuobjdump

INSTRUCTION = re.compile(
    r"/\*[0-9a-f]{4,}\*/\s+(.+?)\s*;\s*/\* (0x[0-9a-f]{16}) \*/|^\s*/\* (0x[0-9a-f]{16}) \*/", re.M
)
"""An instruction's text and its 128 bits, which stand in two lines."""


def digest(source: str) -> str:
    """The first half of the SHA-256 of a kernel's instructions, for sm_90."""
    with tempfile.TemporaryDirectory() as scratch:
        binary, _, _ = compile_source(source, "sm_90", Path(scratch))
        path = Path(scratch) / "kernel.cubin"
        path.write_bytes(binary)
        found = INSTRUCTION.findall(cuobjdump("-sass", path))
    assert found, "the disassembly has no instruction"
    return hashlib.sha256("\n".join("".join(parts) for parts in found).encode()).hexdigest()[:32]


if __name__ == "__main__":
    for kernel in json.load(sys.stdin):
        print(digest(kernel))
