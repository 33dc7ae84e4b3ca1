"""What a worker takes for a fault of the kernel or the device, and what it does not."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from wsopt.bench.bench_options import BenchOptions
from wsopt.bench.bench_worker import EXIT_ERROR, EXIT_HANG, _bench
from wsopt.codegen.errors import HangError, first_line, launch_errors
from wsopt.errors import InputError, Problem


def _failing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def bench_folder(path: Path, options: BenchOptions) -> None:
        raise error

    module = ModuleType("wsopt.bench.bench_folder")
    module.bench_folder = bench_folder  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)


@pytest.mark.parametrize(
    ("error", "status", "message", "code"),
    [
        (
            RuntimeError("CUDA error: misaligned address\nsee the log"),
            "error",
            "RuntimeError: CUDA",
            EXIT_ERROR,
        ),
        (InputError("kernel.py", [Problem("", "is missing")]), "error", "InputError: kernel.py", EXIT_ERROR),
        (HangError("a sample did not end"), "hang", "a sample did not end", EXIT_HANG),
    ],
)
def test_a_fault_of_the_kernel_is_a_row(
    monkeypatch: pytest.MonkeyPatch, error: Exception, status: str, message: str, code: int
) -> None:
    _failing(monkeypatch, error)
    row, ended = _bench(Path("build"), BenchOptions())
    assert (row.status, ended) == (status, code)
    assert row.message.startswith(message)
    assert "\n" not in row.message


def test_a_fault_of_the_program_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    _failing(monkeypatch, KeyError("rows"))
    with pytest.raises(KeyError, match="rows"):
        _bench(Path("build"), BenchOptions())


def test_what_triton_raises_is_among_them() -> None:
    from triton.compiler.errors import CompilationError
    from triton.runtime.errors import OutOfResources

    assert issubclass(CompilationError, launch_errors())
    assert issubclass(OutOfResources, launch_errors())


def test_an_error_without_a_text_has_a_line() -> None:
    assert first_line(ValueError()) == "ValueError: "
