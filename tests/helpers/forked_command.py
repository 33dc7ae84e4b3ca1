"""Runs `wsopt` in forks of a process that has loaded all of it, so that a test does not load it for each command.

`run` asks for one command; `python forked_command.py` is the process that is forked. What loading does, and what a
process of its own does at its end, is for the tests that start one (`test_cli_commands.py`, `test_cli_progress.py`).
Where something is to be done before `wsopt` is loaded, such as hiding a package from it, the process that is forked
(`python forked_command.py packages`) has loaded the packages that it always needs, and nothing of `wsopt`.
Kernels whose machine code has a record are compiled now and then only, as in the tests' own processes: most commands
compile the same few, and would search on meanwhile for each.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LOADED = (
    "cli",
    "driver",
    "folder",
    "partition.build",
    "ranges.build",
    "simulation",
    "solve.search",
    "codegen",
)
PACKAGES = (
    "diskcache",
    "greenlet",
    "jinja2",
    "ml_dtypes",
    "networkx",
    "numpy",
    "ortools.sat.python.cp_model",
    "pydantic",
    "pygments",
    "rich",
    "typer",
)
OPTIONAL = frozenset({"matplotlib", "torch", "triton"})
"""Packages that are not installed everywhere, which tests hide: none may have been loaded by then."""
SECONDS = 120


def run(
    cwd: Path, arguments: tuple[str, ...], environment: Mapping[str, str], first: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `wsopt` with these arguments, as `subprocess.run` would; a run of two minutes is killed.

    Where `first` is given, that program is run before anything of `wsopt` is loaded.
    """
    process = _process(*(("packages",) if first else ()))
    with tempfile.TemporaryDirectory() as folder:
        asked = {"cwd": str(cwd), "arguments": arguments, "environment": dict(environment), "folder": folder}
        asked["first"] = first
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
        status = int(process.stdout.readline())
        out, error = (
            (Path(folder) / name).read_text(encoding="utf-8", errors="surrogateescape") for name in ("1", "2")
        )
    return subprocess.CompletedProcess(["wsopt", *arguments], status, out, error)


@cache
def _process(*arguments: str) -> Any:
    process = subprocess.Popen(
        [sys.executable, __file__, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
    )
    atexit.register(process.communicate)
    return process


def _load_packages() -> None:
    for name in PACKAGES:
        importlib.import_module(name)
    assert not OPTIONAL & sys.modules.keys()
    assert "wsopt" not in sys.modules


def load_all() -> None:
    """Load all that a command needs, with what tests know of kernels, models and schedules."""
    import known_schedules
    import machine_code
    import solver_answers
    from ortools.sat.python import cp_model

    from wsopt.codegen import aot
    from wsopt.export import binary
    from wsopt.solve import optimum

    for name in LOADED:
        importlib.import_module(f"wsopt.{name}")
    aot.ask_child = machine_code.answer
    binary.ask_child = machine_code.binary
    cp_model.CpSolver.solve = solver_answers.solve
    optimum._searched = known_schedules.searched
    for known in (known_schedules, machine_code, solver_answers):
        known.read()


def _serve() -> None:
    gc.freeze()  # a fork looks for garbage in what is its own, and copies no page of the rest for it
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            _command(asked)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _command(asked: Mapping[str, Any]) -> None:
    """The command, in the fork, from the state in which Python starts a module."""
    status = 1
    try:
        signal.alarm(SECONDS)
        os.chdir(asked["cwd"])
        os.environ.clear()
        os.environ.update(asked["environment"])
        for number, name in ((1, "stdout"), (2, "stderr")):
            file = os.open(Path(asked["folder"]) / str(number), os.O_WRONLY | os.O_CREAT)
            os.dup2(file, number)
            setattr(sys, name, io.TextIOWrapper(os.fdopen(number, "wb", closefd=False), encoding="utf-8"))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.argv = ["wsopt", *asked["arguments"]]
        exec(asked["first"], {})
        importlib.import_module("wsopt.cli").main()
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    finally:
        if sys.exc_info()[0] is not None:
            sys.excepthook(*sys.exc_info())
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _load_packages() if sys.argv[1:] == ["packages"] else load_all()
    _serve()
