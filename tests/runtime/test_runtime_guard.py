"""The end of a worker process, which waits for nothing."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import atexit
from wsopt.runtime.guard import leave

atexit.register(print, "waited")
print("written", end="")
leave(3)
"""


def test_a_worker_leaves_at_once_with_its_status_and_what_it_has_printed() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, "written", "")
