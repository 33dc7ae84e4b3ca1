"""What simulations find in the kernels of these tests is mostly known."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import simulated


@pytest.fixture(scope="module", autouse=True)
def runs_that_are_known() -> Iterator[None]:
    """Runs of simulations that have a record are executed now and then only."""
    with simulated.known_runs():
        yield
