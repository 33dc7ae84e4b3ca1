"""The card of the second target."""

from __future__ import annotations

import pytest

from wsopt.machine import Machine, load_machine


@pytest.fixture(scope="session")
def b200() -> Machine:
    return load_machine("b200")
