"""The shipped cards against what vendors state, and against arithmetic done by hand."""

from __future__ import annotations

import dataclasses
import itertools
import subprocess
import sys

import pytest

from wsopt.errors import LoweringError
from wsopt.machine import (
    INSTRUCTION_KINDS,
    TILE_KINDS,
    Machine,
    Origin,
    Unit,
    load_machine,
    machine_rows,
    machines,
    require_target,
)

CARDS = (
    "b200",
    "b300",
    "gb200",
    "h100_pcie",
    "h100_sxm",
    "h20",
    "h200",
    "rtx_5090",
    "rtx_pro_6000_blackwell",
)


def test_all_cards_are_shipped_in_order() -> None:
    assert tuple(machine.name for machine in machines()) == CARDS


@pytest.mark.parametrize(
    ("card", "dtype", "dense"),
    [
        ("h100_sxm", "bf16", 989.4),
        ("h100_sxm", "f8e4m3", 1978.9),
        ("h100_sxm", "tf32", 494.7),
        ("h100_pcie", "bf16", 756.5),
        ("h200", "f16", 989.4),
        ("h200", "f8e5m2", 1978.9),
        ("h20", "bf16", 148),
        ("h20", "f8e4m3", 296),
        ("b200", "bf16", 2250),
        ("b200", "f8e4m3", 4500),
        ("b300", "bf16", 2250),
        ("gb200", "bf16", 2500),
        ("rtx_pro_6000_blackwell", "bf16", 503.8),
        ("rtx_5090", "bf16", 209.5),
    ],
)
def test_dense_rates(card: str, dtype: str, dense: float) -> None:
    assert load_machine(card).tflops(dtype) == dense


@pytest.mark.parametrize(
    ("card", "ridge"), [("h100_sxm", 295), ("h200", 206), ("b200", 281), ("h20", 37), ("rtx_5090", 117)]
)
def test_ridge_points(card: str, ridge: float) -> None:
    assert load_machine(card).ridge("bf16") == pytest.approx(ridge, abs=0.5)


@pytest.mark.parametrize("machine", machines(), ids=lambda machine: machine.name)
def test_rates_agree_with_the_stated_tflops(machine: Machine) -> None:
    for dtype, macs in machine.tensor.items():
        reached = machine.sm_count * machine.rated_clock_mhz * 2 * macs / 1e6
        assert reached == pytest.approx(machine.tflops(dtype), rel=0.03)


@pytest.mark.parametrize("machine", machines(), ids=lambda machine: machine.name)
def test_every_figure_has_a_source(machine: Machine) -> None:
    plain = {"name", "title", "architecture", "emit_target", "refusal", "scalar_unit", "sources"}
    tables = {
        "tensor",
        "power_tensor",
        "dense_tflops",
        "scalar",
        "scalar_alone",
        "tile_start",
        "tile_alone",
        "tile_crowded",
    }
    names = {item.name for item in dataclasses.fields(machine)} - plain - tables - {"latency"}
    names |= {f"{table}.{key}" for table in tables for key in getattr(machine, table)}
    names |= {f"latency.{item.name}" for item in dataclasses.fields(machine.latency)}
    assert set(machine.sources) == names
    assert set(machine.scalar) == set(machine.scalar_unit) == set(INSTRUCTION_KINDS)
    assert set(machine.scalar_alone) == set(INSTRUCTION_KINDS)
    assert set(machine.tile_start) == set(machine.tile_alone) == set(machine.tile_crowded) == set(TILE_KINDS)


def test_sources_tell_measurement_from_assumption(h200: Machine) -> None:
    assert h200.origin("dram_sustained_bandwidth") is Origin.MEASURED
    assert "2026-11" in h200.source("dram_sustained_bandwidth")
    assert h200.origin("tensor.bf16") is Origin.DOCUMENTATION
    # The card that was measured rests on nothing else; the others are scaled from it.
    assert h200.assumed() == ()
    scaled = load_machine("h100_sxm")
    assert {"l2_bandwidth", "kernel_launch_us", "latency.tma_load_dram"} <= set(scaled.assumed())
    assert not {"sm_count", "dram_bandwidth"} & set(scaled.assumed())
    with pytest.raises(KeyError):
        h200.source("tensor.f64")


def test_hopper_capacities(h200: Machine) -> None:
    assert h200.shared_memory_per_block_bytes == 227 * 1024
    assert h200.registers_per_sm == 65536
    assert (h200.setmaxnreg_min_registers, h200.setmaxnreg_max_registers) == (24, 240)
    assert load_machine("rtx_5090").shared_memory_per_block_bytes == 99 * 1024


def test_time_runs_at_the_sustained_clock(h200: Machine) -> None:
    assert h200.seconds(h200.sustained_clock_mhz) == pytest.approx(1e-6)
    assert h200.sustained_clock_mhz < h200.clock_mhz


@pytest.mark.parametrize(
    ("cycles", "energy", "idle", "clock"),
    [
        (1, 1, 0, 1000),
        (1, 4, 0, 500),  # four times the energy in the same cycles: half of the clock
        (4, 16, 0, 500),  # it goes with energy a cycle
        (4, 1, 0, 2000),
        (9, 1, 0, 2000),  # and no higher than the sustained one
        (1, 1, 3, 500),  # what the SM takes by itself counts with it
        (2, 10, 4, 1000 / 3),
        (1, 0, 0, 2000),  # nothing to pay for
        (1, 0, 4, 500),
    ],
)
def test_the_power_limit_holds_the_clock(
    h200: Machine, cycles: float, energy: float, idle: float, clock: float
) -> None:
    card = dataclasses.replace(
        h200, clock_mhz=2500.0, sustained_clock_mhz=2000.0, power_clock_mhz=1000.0, power_idle=float(idle)
    )
    assert card.power_clock(cycles, energy) == pytest.approx(clock, rel=1e-12)


@pytest.mark.parametrize("machine", machines(), ids=lambda machine: machine.name)
def test_the_clock_falls_with_energy_and_rises_with_rest(machine: Machine) -> None:
    hot = [machine.power_clock(1000, energy) for energy in range(0, 20_000, 500)]
    assert hot == sorted(hot, reverse=True)
    assert hot[-1] < machine.sustained_clock_mhz == hot[0]
    rest = [machine.power_clock(cycles, 20_000) for cycles in range(1000, 40_000, 500)]
    assert rest == sorted(rest)
    # More cycles take more time all the same: a longer schedule is never a faster one.
    times = [cycles / clock for cycles, clock in zip(range(1000, 40_000, 500), rest, strict=True)]
    assert all(one < other for one, other in itertools.pairwise(times))


def test_the_power_limit_leaves_what_products_reach(h200: Machine) -> None:
    # A tensor core that never waits takes one cycle of energy a cycle, and what the SM takes beside it.
    clock = h200.power_clock_mhz / (1 + h200.power_idle) ** 0.5
    assert h200.power_clock(1024, 1024) == pytest.approx(clock)
    assert h200.sustained_tflops("bf16") == pytest.approx(132 * 2 * 2048 * clock / 1e6, rel=1e-3)
    # The fastest large bf16 product measured on an H200, 2026-11, ran at 714 TFLOP/s.
    assert h200.sustained_tflops("bf16") > 714
    assert clock < h200.sustained_clock_mhz < h200.rated_clock_mhz
    assert h200.origin("sustained_clock_mhz") is h200.origin("power_clock_mhz") is Origin.MEASURED


def test_products_of_some_types_take_more_power(h200: Machine) -> None:
    assert h200.tensor_energy("bf16") == h200.tensor_energy("tf32") == 1
    for dtype, energy in h200.power_tensor.items():
        assert h200.tensor_energy(dtype) == energy > 1
        clock = h200.power_clock_mhz / (energy + h200.power_idle) ** 0.5
        rate = 132 * 2 * h200.tensor[dtype] * clock / 1e6
        assert h200.sustained_tflops(dtype) == pytest.approx(rate, rel=1e-3)


def test_a_card_that_power_leaves_alone_keeps_its_clock() -> None:
    h20 = load_machine("h20")
    assert h20.sustained_tflops("bf16") == pytest.approx(148 * h20.sustained_clock_mhz / h20.rated_clock_mhz)


@pytest.mark.parametrize("machine", machines(), ids=lambda machine: machine.name)
def test_moving_a_k_block_takes_less_power_than_its_products(machine: Machine) -> None:
    # A K-block of 128x256x64 bf16 keeps the tensor core busy for 1024 cycles and moves 48 KiB.
    energy = (machine.power_cycles_per_l2_byte + machine.power_cycles_per_gpc_byte) * 49152
    energy += machine.power_cycles_per_shared_byte * 2 * (64 + 256) * 128
    assert 0 < energy < 1024
    assert machine.power_cycles_per_l2_byte < machine.power_cycles_per_dram_byte
    assert 0 < machine.joint_warpgroups_loss < 0.1
    assert machine.sms_per_gpc <= machine.sm_count
    assert machine.l2_line_bytes % machine.l2_sector_bytes == 0


def test_a_card_without_a_rate_says_so() -> None:
    with pytest.raises(
        LoweringError, match=r"NVIDIA B300 \(sm_103\) has no tensor rate for i8; it has bf16, f16"
    ):
        load_machine("b300").tflops("i8")


def test_blackwell_ultra_doubles_only_the_exponentials() -> None:
    ultra, plain = load_machine("b300"), load_machine("b200")
    assert (ultra.scalar["exp2"], plain.scalar["exp2"]) == (32, 16)
    assert ultra.scalar["rcp"] == plain.scalar["rcp"]
    assert ultra.scalar_unit["exp2"] is Unit.MUFU


def test_which_cards_can_be_compiled_for() -> None:
    hopper, blackwell = {"h100_pcie", "h100_sxm", "h20", "h200"}, {"b200", "b300", "gb200"}
    assert {row.name for row in machine_rows() if row.targetable} == hopper | blackwell
    assert require_target(load_machine("h20")) == "sm_90"
    assert require_target(load_machine("b200")) == "sm_100"
    with pytest.raises(LoweringError, match=r"RTX 5090 \(sm_120\) cannot be compiled for: .*mma.sync"):
        require_target(load_machine("rtx_5090"))
    with pytest.raises(LoweringError, match=r"RTX PRO 6000 Blackwell \(sm_120\) cannot .*nor tensor memory"):
        require_target(load_machine("rtx_pro_6000_blackwell"))
    assert require_target(load_machine("b300")) == "sm_103"


def test_rows_are_plain() -> None:
    row = next(row for row in machine_rows() if row.name == "h200")
    assert (row.title, row.architecture, row.sm_count) == ("NVIDIA H200, calibrated 2026-11-21", "sm_90", 132)
    assert (row.bf16_tflops, row.fp8_tflops, row.memory_gb, row.bandwidth_tb_s) == (989.4, 1978.9, 141, 4.8)


def test_records_are_values(h200: Machine) -> None:
    assert load_machine("h200") == h200
    assert len({h200, load_machine("h200"), load_machine("h20")}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        h200.sm_count = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        h200.tensor["bf16"] = 1.0  # type: ignore[index]
    smaller = dataclasses.replace(h200, sm_count=4)
    assert smaller.sm_count == 4
    assert hash(smaller) != hash(h200)


def test_importing_pulls_in_no_heavy_package() -> None:
    code = "import sys, wsopt.machine; print({'torch', 'triton', 'ortools', 'numpy'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"
