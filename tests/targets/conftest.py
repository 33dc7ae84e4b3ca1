"""The card of the second target; what simulations find in its kernels is mostly known."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import simulated

from wsopt.machine import Machine, load_machine


@pytest.fixture(scope="session")
def b200() -> Machine:
    return load_machine("b200")


@pytest.fixture(scope="module", autouse=True)
def runs_that_are_known() -> Iterator[None]:
    """Runs of simulations that have a record are executed now and then only."""
    with simulated.known_runs():
        yield
