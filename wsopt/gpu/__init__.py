"""The gpu room: ahead-of-time compilation and its oracle, launching, measuring.

Importing it needs neither torch nor triton. The modules that run on a GPU import torch, and are imported by
those who need them: `torch_reference`, `baselines`, `inputs`, `launch`, `cuda_clock`, `bench_worker`.
"""

from wsopt.gpu.aot import CompiledKernel, compile_kernel
from wsopt.gpu.errors import CompileError, HangError
from wsopt.gpu.oracle import Expectation, verdict

__all__ = [
    "CompileError",
    "CompiledKernel",
    "Expectation",
    "HangError",
    "compile_kernel",
    "verdict",
]
