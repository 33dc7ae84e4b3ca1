"""What the compiler makes of a kernel, without a GPU: ahead-of-time compilation, and what ptxas and the SASS say.

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
