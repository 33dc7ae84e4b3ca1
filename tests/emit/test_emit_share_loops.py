"""What a loop over a share's tiles hands on stays handed on in what Triton makes of it.

Triton 3.6 takes a value that is handed on for dead where nothing but the bounds of an inner loop depends on it, and
leaves it at what it was before the loop: the loading warp would then copy other K-blocks than the consumer waits for.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from golden_kernels import emitted

_CODE = """
import sys, tempfile
from pathlib import Path
from wsopt.codegen.aot_child import _triton_compile
from wsopt.codegen.kernel_file import load_kernel_file
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "kernel.py"
    path.write_text(sys.stdin.read())
    print(_triton_compile(load_kernel_file(path), "sm_90").asm["ttgir"])
"""
_HANDED_ON = re.compile(
    r"scf\.for %\S+ = %last_tile\S* to %last_tile\S* .*iter_args\(.*%before\S* = %last_tile"
)


def _loops(python: str) -> list[str]:
    """The loops over tiles that hand on how many K-blocks are before a tile."""
    done = subprocess.run(
        [python, "-c", _CODE],
        input=emitted("shared").source,
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    return [line for line in done.stdout.splitlines() if _HANDED_ON.search(line)]


@pytest.mark.compiler
def test_both_partitions_know_the_k_blocks_before_a_tile() -> None:
    assert len(_loops(sys.executable)) == 2


def test_both_partitions_know_them_by_the_oldest_triton(other_triton: str) -> None:
    assert len(_loops(other_triton)) == 2
