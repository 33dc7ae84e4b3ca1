"""A kernel compiled for export: its machine code, and the facts that a launch needs."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from wsopt.codegen import aot_cache
from wsopt.codegen.aot import CompiledKernel, check_launchable
from wsopt.codegen.compiler_process import ask_child

_CHILD = "wsopt.export.binary_child"


@dataclass(frozen=True, slots=True)
class CubinParameter:
    """A parameter of the kernel in its constant bank, in bytes; offsets count from the bank's first parameter."""

    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class MapFacts:
    """Tensor map that the compiled kernel expects: the box of one copy, outermost dimension first, the
    swizzle in bytes, and the element type as the driver numbers it (CUtensorMapDataType).
    """

    box: tuple[int, ...]
    swizzle: int
    element_type: int


@dataclass(frozen=True, slots=True)
class Binary:
    """Machine code with its facts. `threads` of a block, padding included; `scratch_bytes` in device memory and
    `blocks_together` of a cluster, as Triton asks for them; `signature` are the names of the kernel's arguments.
    """

    cubin: bytes
    compiled: CompiledKernel
    symbol: str
    target: str
    threads: int
    scratch_bytes: int
    blocks_together: int
    cooperative: bool
    signature: tuple[str, ...]
    maps: tuple[MapFacts, ...]
    parameters: tuple[CubinParameter, ...]


_BINARY: TypeAdapter[Binary] = TypeAdapter(Binary)


def compile_binary(source: str, architecture: str) -> Binary:
    """Compile the text of a kernel.py for pointers that are multiples of 16 bytes.

    Raises CompileError if Triton or ptxas refuses, or no block could be launched. Takes 1 to 4 s.
    """
    answer: dict[str, Any] = ask_child(_CHILD, {"source": source, "architecture": architecture})
    facts = aot_cache.frozen(answer)
    binary = _BINARY.validate_python(facts | {"cubin": base64.b64decode(facts["cubin"])})
    check_launchable(binary.compiled)
    return binary
