"""The cost of instruction mixes against values worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from wsopt.machine import InstructionMix, Machine, Unit, alu_cycles, load_machine, unit_cycles

SOFTMAX = InstructionMix({"max": 1, "add": 1, "fma": 1, "mul": 1, "exp2": 1, "convert": 0.5})
TILE = 64 * 128


@pytest.fixture(scope="module")
def card(h200: Machine) -> Machine:
    """A card with the rates that the CUDA programming guide states."""
    rates = {Unit.FMA: 128.0, Unit.ALU: 64.0, Unit.MUFU: 16.0, Unit.LSU: 32.0}
    return replace(h200, scalar={kind: rates[unit] for kind, unit in h200.scalar_unit.items()})


def test_mixes_add_and_scale() -> None:
    gelu = InstructionMix({"fma": 2, "tanh": 1}) + 2 * InstructionMix({"mul": 1.5, "fma": 1})
    assert gelu == InstructionMix({"fma": 4, "tanh": 1, "mul": 3})
    assert gelu.instructions == 8
    assert gelu * 0 == InstructionMix()


def test_mixes_are_values() -> None:
    assert InstructionMix({"add": 0, "mul": 1}) == InstructionMix({"mul": 1})
    assert len({InstructionMix({"add": 1, "mul": 1}), InstructionMix({"mul": 1, "add": 1})}) == 1
    assert list(SOFTMAX) == sorted(SOFTMAX)


def test_exponentials_bind_softmax(card: Machine) -> None:
    cycles = unit_cycles(card, SOFTMAX, TILE)
    assert cycles == {
        Unit.ISSUE: 5.5 * TILE / 128,  # 352: four schedulers, 32 lanes each
        Unit.FMA: 3 * TILE / 128,  # 192
        Unit.ALU: 1.5 * TILE / 64,  # 192: max and the packing conversion share the pipe
        Unit.MUFU: TILE / 16,  # 512
    }
    assert alu_cycles(card, SOFTMAX, TILE) == 512


def test_doubled_exponentials_move_the_bound_to_issue() -> None:
    machine = load_machine("b300")
    assert unit_cycles(machine, SOFTMAX, TILE)[Unit.MUFU] == 256
    assert alu_cycles(machine, SOFTMAX, TILE) == 352


def test_issue_binds_where_pipes_are_balanced(card: Machine) -> None:
    mix = InstructionMix({"fma": 2, "logic": 1})
    # 3 instructions an element over 128 slots; 2 over the FMA pipe's 128; 1 over the ALU's 64.
    assert unit_cycles(card, mix, 128) == {Unit.ISSUE: 3.0, Unit.FMA: 2.0, Unit.ALU: 2.0}
    assert alu_cycles(card, mix, 128) == 3.0


def test_words_to_shared_memory_take_its_128_bytes_a_cycle(card: Machine) -> None:
    assert unit_cycles(card, InstructionMix({"ldst": 1}), 1024)[Unit.LSU] == 1024 * 4 / 128


def test_kinds_of_one_pipe_add_up_at_their_own_rates() -> None:
    machine = load_machine("b300")
    # exp2 at 32 a cycle and rcp at 16 on the same pipe: 64/32 + 64/16.
    assert unit_cycles(machine, InstructionMix({"exp2": 1, "rcp": 1}), 64)[Unit.MUFU] == 6.0


def test_nothing_costs_nothing(h200: Machine) -> None:
    assert unit_cycles(h200, InstructionMix(), TILE) == {}
    assert alu_cycles(h200, InstructionMix(), TILE) == 0.0
    assert alu_cycles(h200, SOFTMAX, 0) == 0.0


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"fmax": 1}, "no instruction kind 'fmax'; there are add, mul"),
        ({"add": -1}, "count of add is -1"),
        ({"add": float("nan")}, "count of add is nan"),
        ({"add": float("inf")}, "count of add is inf"),
    ],
)
def test_bad_counts_are_refused(counts: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        InstructionMix(counts)


def test_negative_elements_are_refused(h200: Machine) -> None:
    with pytest.raises(ValueError, match="-1 elements"):
        unit_cycles(h200, SOFTMAX, -1)
