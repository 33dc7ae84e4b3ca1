"""Memory of workers: how many fit beside each other, and whether one ended for want of memory."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_KIB = 1024
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
_GPU_WORDS = (
    "OutOfMemoryError",
    "CUDA out of memory",
    "CUDA error: out of memory",
    "CUDA_ERROR_OUT_OF_MEMORY",
)
_HOST_WORDS = ("MemoryError", "Cannot allocate memory", "std::bad_alloc", "failed with error code -9")

GPU = "out of GPU memory"
HOST = "out of host memory"
KILLED = "the system killed the process (signal 9), which it does where host memory ends"


def available_bytes(meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> int:
    """Bytes of host memory that new processes can have: the system's, or what a container's limit leaves."""
    system = _meminfo(meminfo).get("MemAvailable")
    if system is None:
        system = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit, used = (_number(cgroup / name) for name in ("memory.max", "memory.current"))
    if limit is None or used is None:
        return system
    # Pages of files count as used, and are given up when they are wanted.
    return max(0, min(system, limit - used + _statistic(cgroup / "memory.stat", "inactive_file")))


def _meminfo(path: Path) -> dict[str, int]:
    lines = (line.split() for line in _text(path).splitlines())
    return {line[0].rstrip(":"): int(line[1]) * _KIB for line in lines if len(line) == 3}


def _statistic(path: Path, name: str) -> int:
    found = dict(line.split() for line in _text(path).splitlines() if len(line.split()) == 2)
    return int(found.get(name, 0))


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def peak_bytes() -> int:
    """The most host memory that this process and the largest process it has waited for took together."""
    own, other = (
        resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return (own + other) * (1 if sys.platform == "darwin" else _KIB)


def gpu_facts() -> dict[str, int]:
    """GPU memory that is free with this process's own counted in, and the most that it had of it, in bytes."""
    import torch

    free, _ = torch.cuda.mem_get_info()
    held = torch.cuda.memory_reserved()
    return {"gpu_free_bytes": free + held, "gpu_peak_bytes": torch.cuda.max_memory_reserved()}


def at_a_time(most: int, told: Mapping[str, Any], available: int) -> int:
    """How many workers may run beside each other: at least one, and never more than `most`.

    `told` is what the first worker, which ran alone, said of itself. Its share stays free once, on the host and on
    the GPU, for what else runs there and for graphs that take more.
    """
    rooms = [available // int(told["peak_bytes"]) - 1]
    if told.get("gpu_peak_bytes"):
        rooms.append(int(told["gpu_free_bytes"]) // int(told["gpu_peak_bytes"]) - 1)
    return max(1, min(most, *rooms))


def ended_for_memory(status: int | None, output: str) -> str:
    """Why a worker ended, in words, if it was for want of memory; else nothing.

    `status` is the process's, negative for a signal; `output` is what it printed last.
    """
    if any(word in output for word in _GPU_WORDS):
        return GPU
    if any(word in output for word in _HOST_WORDS):
        return HOST
    return KILLED if status == -signal.SIGKILL else ""


def tells_of_memory(message: str) -> bool:
    """Whether a row's message says that there was too little memory."""
    return any(words in message for words in (GPU, HOST, KILLED, *_GPU_WORDS, *_HOST_WORDS))
