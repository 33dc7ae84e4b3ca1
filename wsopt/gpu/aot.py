"""Compiles an emitted kernel ahead of time, without GPU and torch, and reads what ptxas made of it."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from wsopt.gpu import aot_cache
from wsopt.gpu.errors import CompileError
from wsopt.gpu.kernel_file import load_kernel_file, torch_or_stand_in
from wsopt.gpu.quiet import captured_output
from wsopt.gpu.registers import partition_codes
from wsopt.gpu.sass import (
    SPILL_LOAD,
    SPILL_STORE,
    TENSOR_OPCODES,
    opcode_counts,
    parse_sass,
    spills_in_main_loops,
)

# Bytes of shared memory that a block can have (CUDA programming guide, technical specifications).
_SHARED_LIMIT = {"sm_80": 166912, "sm_90": 232448, "sm_100": 232448, "sm_103": 232448, "sm_120": 101376}
_REGISTER_FILE = 65536

_PTXAS_FAULT = re.compile(r"ptxas\S*\s+(?:error|fatal)\s*:\s*(.+)")
_PTXAS_ADVICE = re.compile(r"ptxas\S*\s+\w+\s*:\s*((?:\(C\d+\))?\s*Potential Performance Loss.+)")
_MLIR_FAULT = re.compile(r"(?:^|\s)error: (.+)")


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """What the compiler made of a kernel.

    `registers` a thread at launch; `warps` of a block, padding included; `stack_bytes` a thread;
    `spill_loads` and `spill_stores` are instructions (LDL, STL), `spills_in_loop` those of them in the
    innermost loops with tensor-core instructions; `wgmma` counts HGMMA, QGMMA and IGMMA; `tensor_registers`
    are what the code of each partition with those names, a thread, and `copy_registers` that of partitions
    that only start copies; `barriers` are
    the hardware barriers of a block; `warnings` are what ptxas says about lost performance; `sass` is the
    number of instructions by mnemonic. `seconds` is the time of the compilation, of the first one if the
    result came from a cache.
    """

    registers: int
    warps: int
    stack_bytes: int
    spill_loads: int
    spill_stores: int
    spills_in_loop: int
    wgmma: int
    tensor_registers: tuple[int, ...]
    copy_registers: tuple[int, ...]
    shared_bytes: int
    barriers: int
    warnings: tuple[str, ...]
    sass: tuple[tuple[str, int], ...]
    architecture: str
    triton_version: str
    seconds: float = field(compare=False)


def compile_kernel(
    source: str, *, architecture: str = "sm_90", cache_dir: Path | None = None
) -> CompiledKernel:
    """Compile the text of a kernel.py down to machine code for `architecture` and measure the result.

    With `cache_dir`, a result is kept there by its source, architecture and Triton release; a damaged
    entry counts as none. Raises CompileError if Triton or ptxas refuses, or no block could be launched.
    Takes 0.6 to 3 s. Redirects the output of the whole process meanwhile, so one call at a time.
    """
    version = importlib.metadata.version("triton")
    key = aot_cache.key(source, architecture, version)
    kept = aot_cache.read(cache_dir, key, CompiledKernel) if cache_dir else None
    if kept is not None:
        return kept
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="wsopt-aot-") as folder:
        binary, metadata, log = _compile(source, architecture, Path(folder))
        result = _measure(binary, metadata, log, architecture, version, started, Path(folder))
    _check_launchable(result)
    if cache_dir:
        aot_cache.write(cache_dir, key, result)
    return result


def _compile(source: str, architecture: str, folder: Path) -> tuple[bytes, Any, str]:
    path = folder / "kernel.py"
    path.write_text(source, encoding="utf-8")
    with _environment(folder), torch_or_stand_in():
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
    return triton.compile(
        GluonASTSource(module.kernel, module.SIGNATURE, {}),
        target=GPUTarget("cuda", capability, 32),
        options=dict(module.OPTIONS),
    )


@contextlib.contextmanager
def _environment(folder: Path) -> Iterator[None]:
    # Triton reads these when it compiles. Its cache is of no use here: it does not keep what ptxas said.
    wanted = {
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "TRITON_ALWAYS_COMPILE": "1",
        "TRITON_DUMP_PTXAS_LOG": "1",
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


def _check_launchable(result: CompiledKernel) -> None:
    limit = _SHARED_LIMIT.get(result.architecture)
    if limit is not None and result.shared_bytes > limit:
        raise CompileError(
            f"out of shared memory: a block takes {result.shared_bytes} bytes, "
            f"{result.architecture} gives it {limit}"
        )
    wanted = result.registers * 32 * result.warps
    if wanted > _REGISTER_FILE:
        raise CompileError(
            f"out of registers: {result.warps} warps of {result.registers} a thread take {wanted}, "
            f"an SM has {_REGISTER_FILE}"
        )


# --- what came out --------------------------------------------------------------------------------------


def _measure(
    binary: bytes, metadata: Any, log: str, architecture: str, version: str, started: float, folder: Path
) -> CompiledKernel:
    path = folder / "kernel.cubin"
    path.write_bytes(binary)
    usage = _cuobjdump("-res-usage", path)
    listing = _cuobjdump("-sass", path)
    instructions, parts = parse_sass(listing), partition_codes(listing)
    counts = dict(opcode_counts(instructions))
    return CompiledKernel(
        registers=_figure(r"\bREG:(\d+)", usage),
        warps=int(metadata.num_warps),
        stack_bytes=_figure(r"\bSTACK:(\d+)", usage),
        spill_loads=counts.get(SPILL_LOAD, 0),
        spill_stores=counts.get(SPILL_STORE, 0),
        spills_in_loop=spills_in_main_loops(instructions),
        wgmma=sum(counts.get(opcode, 0) for opcode in TENSOR_OPCODES),
        tensor_registers=tuple(part.registers for part in parts if part.tensor),
        copy_registers=tuple(part.registers for part in parts if not part.tensor),
        shared_bytes=int(metadata.shared),
        barriers=_figure(r"used (\d+) barriers", log),
        warnings=tuple(dict.fromkeys(line.strip() for line in _PTXAS_ADVICE.findall(log))),
        sass=tuple(sorted(counts.items())),
        architecture=architecture,
        triton_version=version,
        seconds=time.perf_counter() - started,
    )


def _figure(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    if found is None:
        raise CompileError(f"the compiler's report lacks {pattern!r}")
    return int(found[1])


def _cuobjdump(option: str, path: Path) -> str:
    import triton

    tool = triton.knobs.nvidia.cuobjdump.path
    done = subprocess.run([tool, option, str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompileError(f"cuobjdump {option} failed: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout
