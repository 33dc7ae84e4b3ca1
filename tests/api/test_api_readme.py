"""The README's Python lines, as they stand, in a process of their own: once, and once more in the same process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import wsopt

ROOT = Path(__file__).parents[2]
HELPERS = ROOT / "tests" / "helpers"


def readme_lines() -> str:
    """The README's Python block that compiles a graph."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    (lines,) = (block for block in blocks if "wsopt.compile(" in block)
    return str(lines)


@pytest.mark.solver
@pytest.mark.compiler
def test_the_lines_work_twice_in_one_process(tmp_path: Path) -> None:
    program = "\n".join(
        [
            "import forked_command; forked_command.load_all()",  # takes what is known of the kernel from records
            *[readme_lines()] * 2,
            "print(build.summary['name'], callable(wsopt.compile))",
        ]
    )
    paths = os.pathsep.join(filter(None, [str(ROOT), str(HELPERS), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths, "WSOPT_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "mlp_up True\n"
    assert {path.name for path in (tmp_path / "mlp_up.wsopt").iterdir()} >= {"graph.json", "kernel.py"}


def test_no_public_name_is_the_name_of_a_module() -> None:
    # A submodule of the same name would take the place of a function when it is first imported.
    modules = {path.stem for path in (ROOT / "wsopt").iterdir()}
    assert not modules.intersection(wsopt.__all__)
