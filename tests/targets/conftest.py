"""The card of the second target."""

from __future__ import annotations

from dataclasses import replace

import pytest

from wsopt.machine import Machine, load_machine


@pytest.fixture(scope="session")
def b200() -> Machine:
    return replace(load_machine("b200"), emit_target="sm_100", refusal=None)
