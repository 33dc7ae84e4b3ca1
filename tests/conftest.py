"""What tests of every room use: helper modules, the machine of most examples, the other release of Triton."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "helpers"))

import known_schedules
import machine_code
import solver_answers
from ortools.sat.python import cp_model

from wsopt import candidates
from wsopt.codegen import aot
from wsopt.export import binary
from wsopt.machine import Machine, load_machine
from wsopt.pool import local
from wsopt.solve import optimum

MARKS_OF_FIXTURES = {
    "other_triton": ("compiler", "other_triton"),
    "api.built": ("solver", "compiler"),
    "cli.compiled": ("solver", "compiler"),
    "export.binary": ("compiler",),
    "export.built": ("solver", "compiler"),
    "partition.built": ("solver", "compiler"),
    "ranges.built": ("solver", "compiler"),
    "report.solved": ("solver", "compiler"),
    "tune.cache": ("solver", "compiler"),
    "validate.entries": ("solver",),
    "validate.made": ("solver", "compiler"),
}
"""Marks of every test that asks for a fixture, which may be a room's own."""

_NEW_BEFORE_COLLECTING = 50_000
"""Objects that Python makes before it looks for cycles of garbage among them, instead of 700."""

MARKS_OF_LONG_TESTS = ("solver", "compiler", "torch", "slow")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Each process of pytest-xdist begins to collect in another folder than the others.

    pytest rewrites the assertions of every file, for half a minute of a core, where no process has kept the outcome
    yet; so the processes of one run leave that to each other, instead of all doing the same at the same time.
    """
    given, asked = getattr(session.config, "workerinput", None), list(map(Path, session.config.args))
    if given is None or len(asked) != 1 or not asked[0].is_dir():
        return
    parts = sorted(str(one) for one in asked[0].iterdir() if one.is_dir() or one.match("test_*.py"))
    first = int(given["workerid"].removeprefix("gw")) * len(parts) // int(given["workercount"])
    session.config.args[:] = parts[first:] + parts[:first]


def pytest_collection_finish() -> None:
    """What collecting has made stays to the end: Python looks for garbage among the rest, and seldom, as programs and
    models are many records without cycles.
    """
    gc.freeze()
    gc.set_threshold(_NEW_BEFORE_COLLECTING, 10, 10)


def pytest_sessionfinish() -> None:
    """Python frees all at its end, lest modules in C++ tell of leaks."""
    gc.unfreeze()


@pytest.hookimpl(tryfirst=True)  # before -m chooses among them
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for fixture in getattr(item, "fixturenames", ()):
            for name in (fixture, f"{item.path.parent.name}.{fixture}"):
                for mark in MARKS_OF_FIXTURES.get(name, ()):
                    item.add_marker(mark)
    # Files with long tests first: short ones at the end keep every process busy until all are done.
    long = {item.path for item in items if any(map(item.get_closest_marker, MARKS_OF_LONG_TESTS))}
    items.sort(key=lambda item: (item.path not in long, item.path))


@pytest.fixture(scope="session", autouse=True)
def no_search_beside_the_compiler() -> Iterator[None]:
    """Compiles in the tests' own processes do not search on while the compiler works: another test has that core.

    What is chosen is the same (tests/solve/test_solve_ahead.py), and commands that tests start search on as ever.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "_CORES", sys.maxsize)
        yield


@pytest.fixture(scope="session", autouse=True)
def one_process_a_test() -> Iterator[None]:
    """Work of many tasks is done in a test's own process, where no number of processes is asked for: other tests have
    the other cores, and forks start anew with what the process has learned of graphs and programs between them.

    What processes make is the same (tests/pool), and commands that tests start have as many as ever.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "cores", lambda: 1)
        yield


@pytest.fixture(scope="session", autouse=True)
def machine_code_that_is_known() -> Iterator[None]:
    """Texts of kernels whose machine code has a record are compiled now and then only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aot, "ask_child", machine_code.answer)
        patch.setattr(binary, "ask_child", machine_code.binary)
        yield


@pytest.fixture(scope="session", autouse=True)
def answers_that_are_known() -> Iterator[None]:
    """Models whose answer takes long and has a record are solved now and then only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cp_model.CpSolver, "solve", solver_answers.solve)
        yield


@pytest.fixture(scope="session", autouse=True)
def schedules_that_are_known() -> Iterator[None]:
    """Schedules of programs that have a record are searched for now and then only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optimum, "_searched", known_schedules.searched)
        yield


@pytest.fixture(scope="session")
def h200() -> Machine:
    return load_machine("h200")


@pytest.fixture(scope="session")
def other_triton() -> str:
    python = os.environ.get("WSOPT_TEST_TRITON_OTHER")
    if not python:
        pytest.skip("WSOPT_TEST_TRITON_OTHER names no Python with another Triton")
    return python
