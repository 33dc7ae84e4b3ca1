"""Fixtures of the solver's tests."""

from __future__ import annotations

import pytest

from wsopt.machine import Machine, load_machine


@pytest.fixture(scope="session")
def h200() -> Machine:
    return load_machine("h200")
