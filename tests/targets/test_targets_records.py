"""The records of targets: what the interpreter and Triton know of the names that their kernels import."""

from __future__ import annotations

import dataclasses
import importlib

import pytest

from wsopt.errors import LoweringError
from wsopt.interpret.machine import Machine as Interpreter
from wsopt.interpret.modules import stand_ins
from wsopt.machine import Machine, load_machine
from wsopt.targets import HOPPER, TARGETS, Sums, Target, target_of

GLUON = "triton.experimental.gluon.language.nvidia"


@pytest.fixture(params=TARGETS.values(), ids=TARGETS)
def target(request: pytest.FixtureRequest) -> Target:
    found: Target = request.param
    return found


def test_the_interpreter_knows_every_name_that_a_kernel_imports(target: Target) -> None:
    module = stand_ins(Interpreter(0, 1, "kernel.py"))[f"{GLUON}.{target.module}"]
    assert [
        name for name in target.imports(products=True, shared_columns=True) if not hasattr(module, name)
    ] == []


@pytest.mark.compiler
def test_triton_knows_them_too(target: Target) -> None:
    module = importlib.import_module(f"{GLUON}.{target.module}")
    assert [
        name for name in target.imports(products=True, shared_columns=True) if not hasattr(module, name)
    ] == []


def test_a_card_has_the_target_of_its_architecture(h200: Machine) -> None:
    assert target_of(h200) is HOPPER
    with pytest.raises(LoweringError, match=r"RTX 5090 \(sm_120\) cannot be compiled for"):
        target_of(load_machine("rtx_5090"))


def test_sums_in_registers_are_one_set() -> None:
    with pytest.raises(AssertionError):
        dataclasses.replace(HOPPER, sum_sets=(1, 2))
    assert HOPPER.sums is Sums.REGISTERS
