"""Kernels as the compiler of another Python makes them, one that has another release of Triton."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_CODE = """
import dataclasses, json, sys
from wsopt.codegen import compile_kernel
made = [compile_kernel(source, architecture=sys.argv[1]) for source in json.load(sys.stdin)]
print(json.dumps([dataclasses.asdict(one) for one in made]))
"""


def compiled_by(python: str, sources: Sequence[str], architecture: str = "sm_90") -> list[dict[str, Any]]:
    """The fields of `CompiledKernel` for each source, by name. CalledProcessError where one does not compile."""
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
