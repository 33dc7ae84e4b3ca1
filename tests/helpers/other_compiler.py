"""Kernels as the compiler of another Python makes them, one that has another release of Triton."""

from __future__ import annotations

import functools
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import machine_code

_CODE = """
import dataclasses, json, sys, tempfile, time
from pathlib import Path
from wsopt.codegen.aot import check_launchable
from wsopt.codegen.aot_child import compile_source, measure
made = []
for source in json.load(sys.stdin):
    with tempfile.TemporaryDirectory() as folder:
        found = compile_source(source, sys.argv[1], Path(folder))
        made.append(measure(*found, sys.argv[1], time.perf_counter(), Path(folder)))
    check_launchable(made[-1])
print(json.dumps([dataclasses.asdict(one) for one in made]))
"""
"""In one process for all: a new one would read all of Triton again, for a third of a second and more a kernel."""


def compiled_by(python: str, sources: Sequence[str], architecture: str = "sm_90") -> list[dict[str, Any]]:
    """The fields of `CompiledKernel` for each source, by name. CalledProcessError where one does not compile.

    Those of texts that are known are the records, and made anew now and then (`records.py`).
    """
    asked = ({"source": source, "architecture": architecture} for source in sources)
    keys = [machine_code.key_of(_release(python), "other_compiler", request) for request in asked]
    known = machine_code.RECORDS
    wanted = {key: source for source, key in zip(sources, keys, strict=True) if known.is_made(key)}
    made = _made_by(python, [*wanted.values()], architecture) if wanted else []
    found = dict(zip(wanted, made, strict=True))
    return [known.get(key, lambda key=key: found[key]) for key in keys]


@functools.cache
def _release(python: str) -> str:
    """The release of Triton that a Python has."""
    code = "import importlib.metadata; print(importlib.metadata.version('triton'))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def _made_by(python: str, sources: Sequence[str], architecture: str) -> list[dict[str, Any]]:
    """What another Python's compiler makes of sources, in one process."""
    done = subprocess.run(
        [python, "-c", _CODE, architecture],
        input=json.dumps(sources),
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


_IR = """
import sys, tempfile
from pathlib import Path
from wsopt.codegen.aot_child import _triton_compile
from wsopt.codegen.kernel_file import load_kernel_file
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "kernel.py"
    path.write_text(sys.stdin.read())
    print(_triton_compile(load_kernel_file(path), sys.argv[1]).asm["ttgir"])
"""


def ir_by(python: str, source: str, architecture: str = "sm_90") -> str:
    """What the Triton of another Python, or of this one, makes of a kernel before LLVM (TTGIR)."""
    done = subprocess.run(
        [python, "-c", _IR, architecture],
        input=source,
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    return done.stdout
