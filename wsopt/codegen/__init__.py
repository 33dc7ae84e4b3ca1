"""Ahead-of-time compilation of a kernel without a GPU, and the readings of ptxas's report and the SASS.

Importing it needs neither torch nor triton.
"""

from wsopt.codegen.aot import CompiledKernel, compile_kernel
from wsopt.codegen.errors import CompileError, HangError
from wsopt.codegen.oracle import Expectation, verdict

__all__ = [
    "CompileError",
    "CompiledKernel",
    "Expectation",
    "HangError",
    "compile_kernel",
    "verdict",
]
