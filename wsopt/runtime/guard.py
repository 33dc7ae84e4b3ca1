"""Protocol between a process and the worker that it starts: results as lines of a file, a time limit, and the end.

A worker that says nothing for too long is ended with all that it started; the parent goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

_POLL_S = 0.05
_LAST_BREATH_S = 10.0


def append_line(path: Path, line: Mapping[str, Any]) -> None:
    """Append one JSON object as a line of the file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def grows(path: Path) -> Callable[[], bool]:
    """Whether a file has another size than when it was asked last; True the first time."""
    size = -1

    def grown() -> bool:
        nonlocal size
        before, size = size, path.stat().st_size if path.exists() else 0
        return size != before

    return grown


def watch(process: subprocess.Popen[bytes], spoke: Callable[[], bool], limit_s: float) -> bool:
    """Wait for the end; False if for `limit_s` seconds `spoke` told of nothing new from the worker."""
    since = time.monotonic()
    while process.poll() is None:
        if spoke():
            since = time.monotonic()
        if time.monotonic() - since > limit_s:
            return False
        time.sleep(_POLL_S)
    return True


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill the worker's whole session, for it may have started processes of its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    # A process inside the driver may take its time to die; the next one is started all the same.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_LAST_BREATH_S)


def leave(status: int) -> NoReturn:
    """End this process at once, a worker's: the ordinary way out waits for the device, which a hanging kernel never
    gives back.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def last_words(output: Path, status: int | None) -> str:
    """How the worker ended, and the last line that it printed."""
    text = output.read_text(encoding="utf-8", errors="replace")
    lines = [line for line in text.splitlines() if line.strip()]
    return f"the process ended with status {status}: {lines[-1].strip()[:300] if lines else 'no output'}"
