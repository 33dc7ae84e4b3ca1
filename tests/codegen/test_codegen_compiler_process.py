"""Answers come from forks of a process that has Triton loaded: apart from each other, gone with who asks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from wsopt.codegen import compiler_process
from wsopt.codegen.compiler_process import ask_child
from wsopt.codegen.errors import CompileError

ANSWERS = """
import os, sys
told = []
def answer(request):
    told.append(request)
    if "end" in request:
        print("the last words", file=sys.stderr)
        sys.exit(request["end"])
    if "raise" in request:
        raise LookupError(request["raise"])
    if "kill" in request:
        os.kill(os.getppid() if request["kill"] == "parent" else os.getpid(), 9)
        os._exit(0)
    if "error" in request:
        return {"error": request["error"]}
    return {"parent": os.getppid(), "told": len(told), "triton": "triton" in sys.modules, "x": os.environ.get("X")}
"""


@pytest.fixture(autouse=True)
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "wsopt_test_answers.py").write_text(ANSWERS, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(compiler_process, "_idle", {})
    yield
    compiler_process._end_all()


def ask(**request: object) -> dict[str, object]:
    return ask_child("wsopt_test_answers", request)


def test_forks_know_nothing_of_each_other_and_all_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    first = ask()
    monkeypatch.setenv("X", "now")
    assert first == {"parent": first["parent"], "told": 1, "triton": True, "x": None}
    assert ask() == first | {"x": "now"}


def test_a_fault_is_told_and_the_next_is_answered() -> None:
    parent = ask()["parent"]
    for request, message in (
        ({"end": 3}, "ended with status 1: SystemExit: 3"),
        ({"raise": "no such thing"}, "ended with status 1: LookupError: no such thing"),
        ({"kill": "self"}, "ended with status -9"),
        ({"error": "refused"}, "^refused$"),
    ):
        with pytest.raises(CompileError, match=message):
            ask(**request)
        assert ask()["parent"] == parent


def test_a_process_that_was_killed_is_followed_by_another() -> None:
    parent = ask()["parent"]
    with pytest.raises(CompileError, match="ended with status -9"):
        ask(kill="parent")
    assert ask()["parent"] != parent


def test_a_fork_of_who_asks_has_a_process_of_its_own() -> None:
    parent, reader_writer = ask()["parent"], os.pipe()
    child = os.fork()
    if child == 0:
        os.write(reader_writer[1], str(ask()["parent"]).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(reader_writer[0], 20)) != parent
    assert ask()["parent"] == parent


@pytest.mark.parametrize("how", [0, signal.SIGKILL])
def test_it_ends_with_who_asked(how: int, tmp_path: Path) -> None:
    code = (
        "import os; from wsopt.codegen.compiler_process import ask_child; "
        "print(ask_child('wsopt_test_answers', {})['parent'], flush=True); "
        f"{int(how)} and os.kill(os.getpid(), {int(how)})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        check=False,
    )
    assert done.returncode == -how
    # Its standard output is a pipe of who asked, so that this has waited for nothing that the process still holds.
    pid = int(done.stdout)
    for _ in range(200):
        if not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text():
            return
        time.sleep(0.02)
    raise AssertionError(f"process {pid} is still there")
