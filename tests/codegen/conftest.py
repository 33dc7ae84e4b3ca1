"""A kernel that is compiled by most tests of this room."""

from __future__ import annotations

import pytest
from gpu_files import FIXTURES


@pytest.fixture(scope="session")
def small_kernel() -> str:
    return (FIXTURES / "small_kernel.py").read_text(encoding="utf-8")
