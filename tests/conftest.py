"""What tests of every room use: helper modules, the machine of most examples, the other release of Triton."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "helpers"))

from wsopt.machine import Machine, load_machine

MARKS_OF_FIXTURES = {
    "other_triton": ("compiler", "other_triton"),
    "api.built": ("solver", "compiler"),
    "cli.compiled": ("solver", "compiler"),
    "export.binary": ("compiler",),
    "export.built": ("solver", "compiler"),
    "ranges.built": ("solver", "compiler"),
    "report.solved": ("solver", "compiler"),
    "tune.cache": ("solver", "compiler"),
    "validate.entries": ("solver",),
    "validate.made": ("solver", "compiler"),
}
"""Marks of every test that asks for a fixture, which may be a room's own."""


@pytest.hookimpl(tryfirst=True)  # before -m chooses among them
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for fixture in getattr(item, "fixturenames", ()):
            for name in (fixture, f"{item.path.parent.name}.{fixture}"):
                for mark in MARKS_OF_FIXTURES.get(name, ()):
                    item.add_marker(mark)


@pytest.fixture(scope="session")
def h200() -> Machine:
    return load_machine("h200")


@pytest.fixture(scope="session")
def other_triton() -> str:
    python = os.environ.get("WSOPT_TEST_TRITON_OTHER")
    if not python:
        pytest.skip("WSOPT_TEST_TRITON_OTHER names no Python with another Triton")
    return python
