"""Compiles an emitted kernel ahead of time, without GPU and torch, and reads its resources.

The compiler runs in a process of its own (`aot_child`, `compiler_process`): what Triton prints, how it ends and what
it leaves in the process are nobody else's.
"""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass, field
from pathlib import Path

from wsopt.codegen import aot_cache
from wsopt.codegen.compiler_process import ask_child
from wsopt.codegen.errors import CompileError

# Bytes of shared memory that a block can have (CUDA programming guide, technical specifications).
_SHARED_LIMIT = {"sm_80": 166912, "sm_90": 232448, "sm_100": 232448, "sm_103": 232448, "sm_120": 101376}
_REGISTER_FILE = 65536
_CHILD = "wsopt.codegen.aot_child"


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A compiled kernel's resources, as ptxas and the machine code state them.

    `registers` a thread at launch; `warps` of a block, padding included; `stack_bytes` a thread;
    `spill_loads` and `spill_stores` are instructions (LDL, STL), `spills_in_loop` those of them in the
    innermost loops with tensor-core instructions; `overwritten_operands` are writes there to registers that a
    product under way reads; `early_arrivals` are barrier arrivals of one thread before the other warps of its
    partition are known to be done; `tensor_instructions` are those of warpgroups and those into tensor memory alike;
    `tensor_registers` are what the code of each partition with sums in registers names, a thread, and
    `copy_registers` that of partitions that only start copies; `tensor_columns` are those of tensor memory that a
    block allocates, `barriers` its hardware barriers; `warnings` are what ptxas says about lost performance;
    `sass` is the number of instructions by mnemonic. `seconds` is the time of the compilation, of the first if the
    result came from a cache.
    """

    registers: int
    warps: int
    stack_bytes: int
    spill_loads: int
    spill_stores: int
    spills_in_loop: int
    overwritten_operands: int
    early_arrivals: int
    tensor_instructions: int
    tensor_registers: tuple[int, ...]
    copy_registers: tuple[int, ...]
    shared_bytes: int
    tensor_columns: int
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
    Takes 1 to 4 s.
    """
    version = importlib.metadata.version("triton")
    key = aot_cache.key(source, architecture, version)
    kept = aot_cache.read(cache_dir, key, CompiledKernel) if cache_dir else None
    if kept is not None:
        return kept
    answer = ask_child(_CHILD, {"source": source, "architecture": architecture})
    result = CompiledKernel(**aot_cache.frozen(answer))
    check_launchable(result)
    if cache_dir:
        aot_cache.write(cache_dir, key, result)
    return result


def check_launchable(result: CompiledKernel) -> None:
    """Raise CompileError for a kernel of which no block can be launched."""
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
