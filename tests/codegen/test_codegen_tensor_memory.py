"""Kernels with sums in tensor memory: what the compilers make of the interpreter's example, for sm_100."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import gpu_listings
import pytest
from other_compiler import compiled_by

from wsopt.codegen import CompiledKernel, Expectation, compile_kernel, verdict
from wsopt.codegen.arrivals import early_arrivals
from wsopt.codegen.sass import parse_sass

pytestmark = pytest.mark.compiler

ROOT = Path(__file__).parents[2]
SOURCE = (ROOT / "tests" / "interpret" / "kernels" / "tensor_memory.txt").read_text(encoding="utf-8")
ARCHITECTURE = "sm_100"


@pytest.fixture(scope="module")
def compiled() -> CompiledKernel:
    return compile_kernel(SOURCE, architecture=ARCHITECTURE)


def test_measures_the_kernel(compiled: CompiledKernel) -> None:
    # One product of four k16 steps; two tiles of 64 columns; a warpgroup, and two warps with two for padding.
    assert (compiled.tensor_instructions, compiled.tensor_columns) == (4, 128)
    assert (compiled.registers, compiled.warps) == (128, 8)
    assert (compiled.stack_bytes, compiled.spill_loads, compiled.spill_stores) == (0, 0, 0)
    assert (len(compiled.tensor_registers), len(compiled.copy_registers)) == (1, 1)
    assert dict(compiled.sass)["LDTM"] == 2
    assert dict(compiled.sass)["UTCBAR"] == 2  # commits


def test_verdict(compiled: CompiledKernel) -> None:
    asked = Expectation(tensor_instructions=4, shared_bytes=compiled.shared_bytes, tensor_columns=128)
    assert verdict(compiled, asked) == ()
    assert verdict(compiled, replace(asked, tensor_columns=64)) == (
        "128 columns of tensor memory, expected at most 64",
    )


def test_a_pass_that_is_peeled_off_a_loop_is_no_fault_and_more_is(compiled: CompiledKernel) -> None:
    asked = Expectation(2, compiled.shared_bytes, tensor_columns=128, peelable=2)
    assert verdict(compiled, asked) == ()
    for wrong in (replace(asked, peelable=1), replace(asked, tensor_instructions=5)):
        (complaint,) = verdict(compiled, wrong)
        assert complaint.startswith("4 tensor-core instructions, expected")


def test_the_arrival_that_hands_the_sums_back_comes_after_a_meeting() -> None:
    listing = gpu_listings.listing(SOURCE, ARCHITECTURE)
    assert early_arrivals(parse_sass(listing)) == 0
    loads, end = listing.rindex("LDTM"), listing.index(".A1T0", listing.rindex("LDTM"))
    meetings = re.findall(r"BAR\.SYNC[^;]*", listing[loads:end])
    assert meetings
    apart = listing[:loads] + re.sub(r"BAR\.SYNC[^;]*", "NOP ", listing[loads:end]) + listing[end:]
    assert early_arrivals(parse_sass(apart)) == 1


def test_another_triton_release(other_triton: str, compiled: CompiledKernel) -> None:
    (found,) = compiled_by(other_triton, [SOURCE], ARCHITECTURE)
    assert found["triton_version"] != compiled.triton_version
    for name in ("tensor_instructions", "tensor_columns", "stack_bytes", "early_arrivals", "shared_bytes"):
        assert found[name] == getattr(compiled, name), name
