"""Compiles a kernel for export, in a process of its own: what it says Triton's metadata and the cubin itself say."""

from __future__ import annotations

import base64
import dataclasses
import re
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wsopt.codegen.aot_child import compile_source, cuobjdump, measure
from wsopt.codegen.errors import CompileError
from wsopt.codegen.kernel_file import load_kernel_file, torch_stand_in

_SWIZZLES = {0: 0, 1: 32, 2: 64, 3: 128}
_PARAMETER = re.compile(
    r"Ordinal\s*:\s*0x([0-9a-f]+)\s+Offset\s*:\s*0x([0-9a-f]+)\s+Size\s*:\s*0x([0-9a-f]+)"
)


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """A Binary's fields for {"source": text, "architecture": name}, or {"error": text}."""
    try:
        with tempfile.TemporaryDirectory(prefix="wsopt-export-") as folder:
            return _answer(request["source"], request["architecture"], Path(folder))
    except CompileError as error:
        return {"error": str(error)}


def _answer(source: str, architecture: str, folder: Path) -> dict[str, Any]:
    started = time.perf_counter()
    cubin, metadata, log = compile_source(source, architecture, folder)
    compiled = measure(cubin, metadata, log, architecture, started, folder)
    path = folder / "kernel.cubin"
    with torch_stand_in():
        signature = tuple(load_kernel_file(folder / "kernel.py").SIGNATURE)
    return {
        "cubin": base64.b64encode(cubin).decode("ascii"),
        "compiled": dataclasses.asdict(compiled),
        "symbol": metadata.name,
        "target": _found(r"code for (sm_\w+)", cuobjdump("-sass", path)),
        "threads": 32 * metadata.num_warps,
        "scratch_bytes": metadata.global_scratch_size + metadata.profile_scratch_size,
        "blocks_together": metadata.num_ctas,
        "cooperative": metadata.launch_cooperative_grid,
        "signature": signature,
        "maps": [_map_facts(facts) for facts in metadata.tensordesc_meta or ()],
        "parameters": _parameters(cuobjdump("-elf", path)),
    }


def _found(pattern: str, listing: str) -> str:
    found = re.search(pattern, listing)
    if found is None:
        raise CompileError(f"the cubin's listing lacks {pattern!r}")
    return found[1]


def _map_facts(facts: dict[str, Any]) -> dict[str, Any]:
    from triton.backends.nvidia.driver import TMA_DTYPE_DEVICE_TO_HOST

    return {
        "box": facts["block_size"],
        "swizzle": _SWIZZLES[facts["swizzle"]],
        "element_type": TMA_DTYPE_DEVICE_TO_HOST[facts["elem_type"]],
    }


def _parameters(listing: str) -> list[dict[str, int]]:
    """The parameters in the kernel's order, from the cubin's table of them."""
    found = {int(m[1], 16): (int(m[2], 16), int(m[3], 16)) for m in _PARAMETER.finditer(listing)}
    return [{"offset": found[place][0], "size": found[place][1]} for place in sorted(found)]
