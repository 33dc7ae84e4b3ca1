"""Compiles one kernel with Triton and reads what came of it: what `compile_kernel` asks a process of its own for."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from wsopt.codegen.aot import CompiledKernel
from wsopt.codegen.arrivals import early_arrivals
from wsopt.codegen.async_reads import overwritten_operands
from wsopt.codegen.errors import CompileError
from wsopt.codegen.kernel_file import load_kernel_file, torch_stand_in
from wsopt.codegen.quiet import captured_output
from wsopt.codegen.registers import partition_codes
from wsopt.codegen.sass import (
    SPILL_LOAD,
    SPILL_STORE,
    TENSOR_OPCODES,
    opcode_counts,
    parse_sass,
    spills_in_main_loops,
)

_PTXAS_FAULT = re.compile(r"ptxas\S*\s+(?:error|fatal)\s*:\s*(.+)")
_PTXAS_ADVICE = re.compile(r"ptxas\S*\s+\w+\s*:\s*((?:\(C\d+\))?\s*Potential Performance Loss.+)")
_MLIR_FAULT = re.compile(r"(?:^|\s)error: (.+)")


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """A CompiledKernel's fields for {"source": text, "architecture": name}, or {"error": text}."""
    try:
        return dataclasses.asdict(_compiled(request["source"], request["architecture"]))
    except CompileError as error:
        return {"error": str(error)}


def _compiled(source: str, architecture: str) -> CompiledKernel:
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="wsopt-aot-") as folder:
        binary, metadata, log = compile_source(source, architecture, Path(folder))
        return measure(binary, metadata, log, architecture, started, Path(folder))


def compile_source(source: str, architecture: str, folder: Path) -> tuple[bytes, Any, str]:
    """The machine code of a kernel.py's text, Triton's metadata and what ptxas said; files go to `folder`.

    All pointers are multiples of 16 bytes, as allocators give them and as durations are priced: a thread moves 16
    bytes at a time. A launch with others compiles a kernel of its own. Raises CompileError.
    """
    path = folder / "kernel.py"
    path.write_text(source, encoding="utf-8")
    with _environment(folder), torch_stand_in():
        return _compile_file(path, architecture)


def _compile_file(path: Path, architecture: str) -> tuple[bytes, Any, str]:
    from triton.errors import TritonError

    captured = None
    try:
        with captured_output() as captured:
            module = load_kernel_file(path)
            compiled = _triton_compile(module, architecture)
    except (TritonError, RuntimeError, ValueError, AssertionError) as error:
        printed = captured.text if captured else ""
        raise CompileError(_explain(error, printed)) from None
    return compiled.asm["cubin"], compiled.metadata, captured.text


def _triton_compile(module: ModuleType, architecture: str) -> Any:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.experimental.gluon._runtime import GluonASTSource

    capability = int(architecture.removeprefix("sm_"))
    kinds = enumerate(module.SIGNATURE.values())
    multiples = {(place,): [["tt.divisibility", 16]] for place, kind in kinds if kind[0] == "*"}
    with _no_digest_of_triton():
        return triton.compile(
            GluonASTSource(module.kernel, module.SIGNATURE, {}, multiples or None),
            target=GPUTarget("cuda", capability, 32),
            options=dict(module.OPTIONS),
        )


@contextlib.contextmanager
def _no_digest_of_triton() -> Iterator[None]:
    """Triton's version in place of a digest of its files, half a gigabyte: a third of a second for the name of an
    entry in a cache that is thrown away. A release without that function is left as it is.
    """
    import triton
    from triton.runtime import cache

    digest = getattr(cache, "triton_key", None)
    if digest is None:
        yield
        return
    cache.triton_key = lambda: triton.__version__
    try:
        yield
    finally:
        cache.triton_key = digest


@contextlib.contextmanager
def _environment(folder: Path) -> Iterator[None]:
    # Triton reads these when it compiles. Its cache is of no use here: it does not keep what ptxas said.
    wanted = {
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "TRITON_ALWAYS_COMPILE": "1",
        "TRITON_DUMP_PTXAS_LOG": "1",
        "TRITON_DISABLE_LINE_INFO": "1",  # it would put the name of `folder` into the machine code
    }
    saved = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in saved.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


# --- what went wrong ------------------------------------------------------------------------------------


def _explain(error: Exception, printed: str) -> str:
    """One or two lines of the many that Triton prints."""
    text = str(error)
    faults = [line for line in _PTXAS_FAULT.findall(text) if "aborted due to errors" not in line]
    if faults:
        return "ptxas: " + "\n".join(faults[:2])
    faults = _MLIR_FAULT.findall(printed)
    if faults:
        return f"Triton: {faults[0].strip()}"
    cause = _root(error)
    lines = [line.strip() for line in str(cause).splitlines() if line.strip() not in ("", "^")]
    place = re.match(r"at (\d+):\d+:", str(cause))
    told = f": line {place[1]} of its function: {lines[-1]}" if place else f": {lines[-1]}" if lines else ""
    return f"Triton: {type(cause).__name__}{told}"


def _root(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


# --- what came out --------------------------------------------------------------------------------------


def measure(
    binary: bytes, metadata: Any, log: str, architecture: str, started: float, folder: Path
) -> CompiledKernel:
    """Read a compiled kernel's resources from its machine code; `started` by time.perf_counter."""
    path = folder / "kernel.cubin"
    path.write_bytes(binary)
    usage = cuobjdump("-res-usage", path)
    listing = cuobjdump("-sass", path)
    instructions, parts = parse_sass(listing), partition_codes(listing)
    counts = dict(opcode_counts(instructions))
    return CompiledKernel(
        registers=_figure(r"\bREG:(\d+)", usage),
        warps=int(metadata.num_warps),
        stack_bytes=_figure(r"\bSTACK:(\d+)", usage),
        spill_loads=counts.get(SPILL_LOAD, 0),
        spill_stores=counts.get(SPILL_STORE, 0),
        spills_in_loop=spills_in_main_loops(instructions),
        overwritten_operands=overwritten_operands(instructions),
        early_arrivals=early_arrivals(instructions),
        tensor_instructions=sum(counts.get(opcode, 0) for opcode in TENSOR_OPCODES),
        tensor_registers=tuple(part.registers for part in parts if part.tensor),
        copy_registers=tuple(part.registers for part in parts if not part.tensor),
        shared_bytes=int(metadata.shared),
        tensor_columns=int(metadata.tmem_size or 0),
        barriers=_figure(r"used (\d+) barriers", log),
        warnings=tuple(dict.fromkeys(line.strip() for line in _PTXAS_ADVICE.findall(log))),
        sass=tuple(sorted(counts.items())),
        architecture=architecture,
        triton_version=importlib.metadata.version("triton"),
        seconds=time.perf_counter() - started,
    )


def _figure(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    if found is None:
        raise CompileError(f"the compiler's report lacks {pattern!r}")
    return int(found[1])


def cuobjdump(option: str, path: Path) -> str:
    """Output of the cuobjdump that comes with Triton for a cubin. Raises CompileError."""
    import triton

    tool = triton.knobs.nvidia.cuobjdump.path
    done = subprocess.run([tool, option, str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompileError(f"cuobjdump {option} failed: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout
