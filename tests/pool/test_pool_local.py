"""Work by processes of this machine: results in order, progress, errors, and processes that are lost."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from wsopt.errors import InfeasibleError, InputError, InternalError, Problem, RequirementError
from wsopt.pool import local
from wsopt.pool.local import Forks, Interpreters
from wsopt.pool.workers import Workers

ALL = pytest.mark.parametrize(
    "workers", [Forks(1), Forks(3), Interpreters(2)], ids=["one", "forks", "interpreters"]
)


def halved(task: int) -> int:
    """Half of a number. Sums of names of modules of the tests cannot be sent, so this stands where they can be."""
    if task % 2:
        raise InfeasibleError(f"{task} is odd")
    return task // 2


def ended_once(task: tuple[str, int]) -> int:
    """A number, from the second process on that is asked for 3."""
    folder, number = Path(task[0]), task[1]
    with (folder / "asked").open("a") as file:
        file.write(f"{number}\n")
    if number == 3 and not (folder / "ended").exists():
        (folder / "ended").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def ended_always(task: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return task


def told(_task: int) -> int:
    raise InputError("here", [Problem("/there", "wrong"), Problem("", "too")])


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interpreters find this file's functions where this process has them."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@ALL
def test_results_are_in_the_order_of_tasks(workers: Workers) -> None:
    steps: list[tuple[int, int]] = []
    kept: dict[int, int] = {}
    found = workers.results(
        halved, [8, 2, 6], lambda done, total: steps.append((done, total)), kept.__setitem__
    )
    assert found == [4, 1, 3]
    assert kept == {0: 4, 1: 1, 2: 3}
    assert steps[0] == (0, 3)
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert workers.results(halved, []) == []


@ALL
def test_the_first_error_in_order_is_raised_and_what_ended_is_kept(workers: Workers) -> None:
    kept: dict[int, int] = {}
    with pytest.raises(InfeasibleError, match="3 is odd"):
        workers.results(halved, [2, 3, 5], keep=kept.__setitem__)
    assert kept == {0: 1}
    with pytest.raises(InputError) as caught:
        workers.results(told, [1])
    assert [str(one) for one in caught.value.problems] == ["/there: wrong", "too"]


@pytest.mark.parametrize("workers", [Forks(2), Interpreters(2)])
def test_what_a_lost_process_had_is_done_again(workers: Workers, tmp_path: Path) -> None:
    found = workers.results(ended_once, [(str(tmp_path), number) for number in range(6)])
    assert found == list(range(6))
    asked = (tmp_path / "asked").read_text().split()
    assert asked.count("3") == 2


def test_processes_that_end_again_and_again_are_told() -> None:
    with pytest.raises(RequirementError, match="were ended 3 times before their work was done"):
        Forks(2).results(ended_always, [1, 2, 3])


def test_an_interpreter_that_fails_is_our_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local.sys, "executable", "/bin/false")
    with pytest.raises(InternalError, match="ended with: status 1"):
        Interpreters(1).results(halved, [2])


def test_errors_reach_another_process_whole() -> None:
    import pickle

    errors: list[Any] = [InternalError("a"), InputError("b", [Problem("/c", "d")]), RequirementError("e")]
    for error in errors:
        found = pickle.loads(pickle.dumps(error))
        assert (type(found), str(found)) == (type(error), str(error))
