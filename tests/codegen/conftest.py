"""A kernel that is compiled by most tests of this room, by the compiler itself: none of its answers is a record."""

from __future__ import annotations

import pytest
from gpu_files import FIXTURES

from wsopt.codegen import aot, compiler_process


@pytest.fixture(scope="session")
def small_kernel() -> str:
    return (FIXTURES / "small_kernel.py").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aot, "ask_child", compiler_process.ask_child)
