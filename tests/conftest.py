"""What tests of every room use: helper modules, the machine of most examples, the other release of Triton."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "helpers"))

from wsopt.machine import Machine, load_machine


@pytest.fixture(scope="session")
def h200() -> Machine:
    return load_machine("h200")


@pytest.fixture(scope="session")
def other_triton() -> str:
    python = os.environ.get("WSOPT_TEST_TRITON_OTHER")
    if not python:
        pytest.skip("WSOPT_TEST_TRITON_OTHER names no Python with another Triton")
    return python
