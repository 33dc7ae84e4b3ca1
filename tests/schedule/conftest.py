"""Schedules of small products, each solved once."""

from __future__ import annotations

import pytest
from schedule_examples import EXAMPLES, Example, solved

from wsopt.machine import Machine


@pytest.fixture(scope="session")
def examples(h200: Machine) -> dict[str, Example]:
    return {name: solved(*example, h200) for name, example in EXAMPLES.items()}


@pytest.fixture(scope="session")
def rows(examples: dict[str, Example]) -> Example:
    return examples["cooperative"]
