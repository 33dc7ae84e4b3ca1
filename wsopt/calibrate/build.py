"""Compiles programs ahead of time, without a GPU, in several processes; Triton's cache keeps the results."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
from collections.abc import Callable, Sequence
from typing import Any

from wsopt.calibrate.program import Program
from wsopt.codegen.errors import launch_errors

_TYPES = {"out": "*i64", "sink": "*fp32", "scale": "fp32", "third": "fp32"}
_DTYPES = {"bf16": "bfloat16", "f16": "float16", "f8e4m3": "float8e4nv"}


def build(program: Program, architecture: int = 90) -> Any:
    """The compiled kernel of a program. Takes 0.3 to 4 s, or milliseconds from Triton's cache."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.experimental.gluon._runtime import GluonASTSource

    function = getattr(importlib.import_module(f"wsopt.calibrate.kernels.{program.module}"), program.function)
    constants = {name: _constant(name, value) for name, value in program.constants}
    signature = {name: _type(name, program, constants) for name in function.arg_names}
    options: dict[str, Any] = {"num_warps": program.warps}
    if program.registers is not None:
        options["maxnreg"] = program.registers
    source = GluonASTSource(function, signature, constants)
    return triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=options)


def constant_arguments(program: Program) -> list[Any]:
    """Placeholders for a program's constants among a launch's arguments; the launcher skips them."""
    return [None for _ in program.constants]


def box_layout(program: Program) -> Any:
    """How a box lies in shared memory: rows of up to 128 bytes, swizzled."""
    from triton.experimental.gluon import language as gl

    assert program.box is not None
    return gl.NVMMASharedLayout(swizzle_byte_width=min(128, 2 * program.box[1]), element_bitwidth=16, rank=2)


def build_all(
    programs: Sequence[Program], progress: Callable[[int, int], None], workers: int | None = None
) -> None:
    """Compile programs in processes of their own. To be called before the caller touches CUDA."""
    count = min(len(programs), workers or os.cpu_count() or 1)
    context = multiprocessing.get_context("fork")
    with context.Pool(max(1, count)) as pool:
        for done, _ in enumerate(pool.imap_unordered(_build_quietly, programs, chunksize=1), start=1):
            progress(done, len(programs))


def _build_quietly(program: Program) -> None:
    # A program that does not compile is reported by the probe that needs it.
    with contextlib.suppress(*launch_errors()):
        build(program)


def _constant(name: str, value: int | bool | str) -> Any:
    from triton.experimental.gluon import language as gl

    return getattr(gl, _DTYPES[str(value)]) if name == "DTYPE" else value


def _type(name: str, program: Program, constants: dict[str, Any]) -> str:
    if name in constants:
        return "constexpr"
    if name == "desc":
        assert program.box is not None
        return f"tensordesc<bf16{list(program.box)},{box_layout(program)!r}>"
    if name == "third" and program.module == "sync":
        return "i32"
    return _TYPES.get(name, "i32")
