"""Answers requests in forks of a process that has Triton loaded, so that each starts as one of its own at once.

`ask_child` asks for one answer; `python -m wsopt.codegen.compiler_process` is the process that is forked. Loading
Triton takes half a second, which a new process for every kernel would spend again; a fork keeps apart what one would.
A line of the forked process's input is a request, a line of its output the answer, both JSON objects.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import IO, Any

from wsopt.codegen.errors import CompileError

_Key = tuple[int, str, tuple[str, ...]]
_idle: dict[_Key, list[_Process]] = {}


def ask_child(module: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """What `module.answer(request)` gives in a process of its own, with the environment of this one.

    Raises CompileError with the text of an answer {"error": text}, or if the process ends without one.
    """
    # A process that was forked from this one has its own: two cannot talk over one pipe.
    key = (os.getpid(), sys.executable, tuple(sys.path))
    idle = _idle.setdefault(key, [])
    process = idle.pop() if idle else _Process()
    try:
        answer = process.ask({"module": module, "request": dict(request), "environment": dict(os.environ)})
    except BaseException:  # an interrupt too: its answer would be read as that of the next request
        process.end()
        raise
    idle.append(process)
    if "error" in answer:
        raise CompileError(answer["error"])
    return answer


class _Process:
    """The process that is forked, for one request at a time."""

    def __init__(self) -> None:
        # In a session of its own an interrupt from the keyboard does not reach it: who asks ends it.
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._printed,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,
        )

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a request. Raises CompileError if the process has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        except (OSError, ValueError):
            status = self._process.wait()
            raise CompileError(_ended(status, self._printed)) from None
        return answer

    def end(self) -> None:
        """End it, with what it has forked."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._printed):
            if file is not None:
                with contextlib.suppress(OSError):
                    file.close()


def _ended(status: int, printed: IO[bytes]) -> str:
    """What is said of a process that ended without an answer, with the last line that it printed."""
    printed.seek(0)
    last = printed.read().decode(errors="replace").strip().splitlines()[-1:]
    return f"the compiler ended with status {status}: {''.join(last)}"


@atexit.register
def _end_all() -> None:
    for (pid, *_), processes in _idle.items():
        for process in processes if pid == os.getpid() else ():
            process.end()


# --- the process that is forked -------------------------------------------------------------------------


def main() -> None:
    """Answer requests on standard input until it ends."""
    import triton.backends.compiler
    import triton.experimental.gluon._runtime  # noqa: F401

    for line in sys.stdin.buffer:
        asked = json.loads(line)
        with tempfile.TemporaryFile() as printed:
            child = os.fork()
            if child == 0:
                _answer(asked, printed)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if status:
                _say({"error": _ended(status, printed)})


def _answer(asked: Mapping[str, Any], printed: IO[bytes]) -> None:
    """Answer and end, in the fork: what would run at the end of the process that was forked does not."""
    status = 1
    try:
        os.dup2(printed.fileno(), 2)
        os.environ.clear()
        os.environ.update(asked["environment"])
        _say(importlib.import_module(asked["module"]).answer(asked["request"]))
        status = 0
    finally:
        if status:
            sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
        os._exit(status)


def _say(answer: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
