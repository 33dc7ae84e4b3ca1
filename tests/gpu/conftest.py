"""Fixtures of the gpu tests: none of them needs a GPU."""

from __future__ import annotations

import os

import pytest
from gpu_files import FIXTURES


@pytest.fixture(scope="session")
def small_kernel() -> str:
    return (FIXTURES / "small_kernel.py").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def other_triton() -> str:
    python = os.environ.get("WSOPT_TEST_TRITON_OTHER")
    if not python:
        pytest.skip("WSOPT_TEST_TRITON_OTHER names no Python with another Triton")
    return python
