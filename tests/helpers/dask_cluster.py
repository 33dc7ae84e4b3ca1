"""A real Dask scheduler with workers, each a process of this machine, for as long as a context lasts."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_LIMIT_S = 60.0


@dataclass(frozen=True)
class Running:
    """A scheduler's address, the processes of its workers, and the folder that they work in."""

    folder: Path
    address: str
    workers: list[subprocess.Popen[bytes]]


@contextlib.contextmanager
def running(folder: Path, workers: int, threads: int = 1, **variables: str) -> Iterator[Running]:
    """A scheduler and its workers, which have these variables too; all are ended with the context."""
    contact, started = folder / "scheduler.json", list[subprocess.Popen[bytes]]()
    plain = ("--no-dashboard", "--scheduler-file", str(contact), "--host", "127.0.0.1")
    try:
        started.append(_dask(folder, "scheduler", *plain, "--port", "0"))
        until = time.monotonic() + _LIMIT_S
        while not (contact.exists() and contact.read_text()):
            assert time.monotonic() < until, (folder / "scheduler.log").read_text()
            time.sleep(0.1)
        worker = (
            "worker",
            *plain,
            "--nthreads",
            str(threads),
            "--no-nanny",
            "--local-directory",
            str(folder),
        )
        started += [_dask(folder, *worker, **variables) for _ in range(workers)]
        yield Running(folder, json.loads(contact.read_text())["address"], started[1:])
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()


def _dask(folder: Path, *arguments: str, **variables: str) -> subprocess.Popen[bytes]:
    environment: Mapping[str, str] = {
        **os.environ,
        **variables,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    with (folder / f"{arguments[0]}.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "dask", *arguments], cwd=folder, env=environment, stdout=log, stderr=log
        )
