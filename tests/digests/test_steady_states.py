"""Every recorded schedule comes to a steady state as it runs, at no less than what its units take."""

from __future__ import annotations

import pytest
import replay

from wsopt.perf.contention import held_cycles
from wsopt.perf.steady_state import steady_state


@pytest.mark.parametrize("name", replay.names())
def test_it_repeats_itself(name: str) -> None:
    verified = replay.verified_of(name)
    found = steady_state(verified)
    assert found.period in (1, 2, 4)
    assert found.interval >= max(held_cycles(verified.program).values()) - 1e-6
    assert found.interval < 2 * verified.schedule.ii
