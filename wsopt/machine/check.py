"""Conditions between the figures of a card, beyond the range of each.

A check is a function whose parameters name the figures it needs; one that needs a figure which is itself
at fault is skipped, so that a file's faults are reported together and none because of another.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from wsopt.errors import Problem
from wsopt.machine.types import INSTRUCTION_KINDS, TILE_KINDS

TFLOPS_TOLERANCE = 0.03
"""Vendors round: the stated TFLOP/s and SMs x clock x multiply-adds may differ by this share."""

REQUIRED_DTYPES = ("bf16", "f16")


def cross_faults(values: Mapping[str, Any]) -> list[Problem]:
    """Every fault between figures; `values` maps the names of the sound fields to their plain values."""
    found: list[Problem] = []
    for check in CHECKS:
        needs = inspect.signature(check).parameters
        if values.keys() >= needs.keys():
            found += check(**{name: values[name] for name in needs})
    return found


def _at_most(low: str, low_value: float, high: str, high_value: float) -> Iterator[Problem]:
    if low_value > high_value:
        yield Problem(f"/{low}", f"{low_value:g} exceeds {high}, {high_value:g}")


def _multiple(name: str, value: int, of: str, step: int) -> Iterator[Problem]:
    if value % step:
        yield Problem(f"/{name}", f"{value} is not a multiple of {of}, {step}")


def _target(architecture: str, emit_target: str | None, refusal: str | None) -> Iterator[Problem]:
    if emit_target is None and refusal is None:
        yield Problem(
            "/refusal", "missing: without emit_target, say why kernels cannot be written for the card"
        )
    if emit_target is not None and refusal is not None:
        yield Problem("/refusal", "stands beside emit_target; a card has one of the two")
    if emit_target is not None and emit_target != architecture:
        yield Problem("/emit_target", f"{emit_target} is not the card's architecture, {architecture}")


def _clocks(clock_mhz: float, rated_clock_mhz: float, sustained_clock_mhz: float) -> Iterator[Problem]:
    yield from _at_most("rated_clock_mhz", rated_clock_mhz, "clock_mhz", clock_mhz)
    yield from _at_most("sustained_clock_mhz", sustained_clock_mhz, "clock_mhz", clock_mhz)


def _dtypes(tensor: Mapping[str, float], dense_tflops: Mapping[str, float]) -> Iterator[Problem]:
    for dtype in REQUIRED_DTYPES:
        if dtype not in tensor and dtype not in dense_tflops:
            yield Problem(f"/tensor/{dtype}", "missing: multiply-adds per SM and cycle")
    for dtype in sorted(tensor.keys() - dense_tflops.keys()):
        yield Problem(
            f"/dense_tflops/{dtype}", "missing: the vendor's dense figure that tensor is checked by"
        )
    for dtype in sorted(dense_tflops.keys() - tensor.keys()):
        yield Problem(f"/tensor/{dtype}", "missing: dense_tflops states a figure for it")


def _tflops(
    sm_count: int, rated_clock_mhz: float, tensor: Mapping[str, float], dense_tflops: Mapping[str, float]
) -> Iterator[Problem]:
    for dtype in sorted(tensor.keys() & dense_tflops.keys()):
        reached = sm_count * tensor[dtype] * 2 * rated_clock_mhz * 1e6 / 1e12
        stated = dense_tflops[dtype]
        if abs(reached - stated) > TFLOPS_TOLERANCE * stated:
            yield Problem(
                f"/tensor/{dtype}",
                f"{sm_count} SMs x 2 x {tensor[dtype]:g} at {rated_clock_mhz:g} MHz are {reached:.4g} "
                f"TFLOP/s, but dense_tflops states {stated:g} (is that the 2:4-sparse figure?)",
            )


def _scalar_kinds(scalar: Mapping[str, float]) -> Iterator[Problem]:
    for kind in INSTRUCTION_KINDS:
        if kind not in scalar:
            yield Problem(
                f"/scalar/{kind}", "missing: instructions per SM and cycle, with the unit they go to"
            )


def _scalar_alone(scalar_alone: Mapping[str, float]) -> Iterator[Problem]:
    for kind in INSTRUCTION_KINDS:
        if kind not in scalar_alone:
            yield Problem(f"/scalar_alone/{kind}", "missing: instructions per SM and cycle of one warpgroup")


def _tile_kinds(
    tile_start: Mapping[str, float], tile_alone: Mapping[str, float], tile_crowded: Mapping[str, float]
) -> Iterator[Problem]:
    tables = {"tile_start": tile_start, "tile_alone": tile_alone, "tile_crowded": tile_crowded}
    for table, costs in tables.items():
        for kind in TILE_KINDS:
            if kind not in costs:
                yield Problem(f"/{table}/{kind}", "missing: cycles of the tile operation")


def _scalar_rates(
    schedulers_per_sm: int, threads_per_warp: int, scalar: Mapping[str, float]
) -> Iterator[Problem]:
    issued = schedulers_per_sm * threads_per_warp
    for kind in sorted(scalar):
        if scalar[kind] > issued:
            yield Problem(
                f"/scalar/{kind}", f"{scalar[kind]:g} exceeds what the schedulers issue, {issued} a cycle"
            )


def _scalar_units(scalar_unit: Mapping[str, str]) -> Iterator[Problem]:
    for kind in sorted(scalar_unit):
        if scalar_unit[kind] == "issue":
            yield Problem(
                f"/scalar/{kind}/unit", "every instruction takes an issue slot; name the pipe it goes to"
            )


def _role_registers(
    register_granularity: int,
    setmaxnreg_min_registers: int,
    setmaxnreg_max_registers: int,
    max_registers_per_thread: int,
) -> Iterator[Problem]:
    low, high = ("setmaxnreg_min_registers", "setmaxnreg_max_registers")
    yield from _multiple(low, setmaxnreg_min_registers, "register_granularity", register_granularity)
    yield from _multiple(high, setmaxnreg_max_registers, "register_granularity", register_granularity)
    yield from _at_most(low, setmaxnreg_min_registers, high, setmaxnreg_max_registers)
    yield from _at_most(high, setmaxnreg_max_registers, "max_registers_per_thread", max_registers_per_thread)


def _register_file(
    registers_per_sm: int, max_warps_per_block: int, threads_per_warp: int, setmaxnreg_min_registers: int
) -> Iterator[Problem]:
    least = max_warps_per_block * threads_per_warp * setmaxnreg_min_registers
    if least > registers_per_sm:
        yield Problem("/registers_per_sm", f"{registers_per_sm} do not hold a full block's {least}")


def _warps(
    warps_per_warpgroup: int, max_warps_per_block: int, max_warps_per_sm: int, schedulers_per_sm: int
) -> Iterator[Problem]:
    yield from _multiple(
        "max_warps_per_block", max_warps_per_block, "warps_per_warpgroup", warps_per_warpgroup
    )
    yield from _at_most("max_warps_per_block", max_warps_per_block, "max_warps_per_sm", max_warps_per_sm)
    # The cost of an instruction mix takes one warp of a warpgroup to sit on each scheduler.
    yield from _multiple("warps_per_warpgroup", warps_per_warpgroup, "schedulers_per_sm", schedulers_per_sm)


def _shared_memory(
    shared_memory_per_block_bytes: int, shared_memory_per_sm_bytes: int, shared_memory_reserved_bytes: int
) -> Iterator[Problem]:
    used = shared_memory_per_block_bytes + shared_memory_reserved_bytes
    if used > shared_memory_per_sm_bytes:
        yield Problem(
            "/shared_memory_per_block_bytes",
            f"{shared_memory_per_block_bytes} and the reserved {shared_memory_reserved_bytes} exceed "
            f"shared_memory_per_sm_bytes, {shared_memory_per_sm_bytes}",
        )


def _memory(
    dram_bandwidth: float,
    dram_sustained_bandwidth: float,
    dram_read_bandwidth: float,
    l2_bandwidth: float,
    l2_distinct_bandwidth: float,
) -> Iterator[Problem]:
    copies, reads = "dram_sustained_bandwidth", "dram_read_bandwidth"
    yield from _at_most(copies, dram_sustained_bandwidth, "dram_bandwidth", dram_bandwidth)
    yield from _at_most(reads, dram_read_bandwidth, "dram_bandwidth", dram_bandwidth)
    if dram_read_bandwidth >= 2 * dram_sustained_bandwidth:
        yield Problem(
            f"/{reads}", f"{dram_read_bandwidth:g} is twice {copies} or more: writes would take no time"
        )
    if l2_bandwidth < dram_bandwidth:
        yield Problem("/l2_bandwidth", f"{l2_bandwidth:g} is below dram_bandwidth, {dram_bandwidth:g}")
    else:
        yield from _at_most("l2_distinct_bandwidth", l2_distinct_bandwidth, "l2_bandwidth", l2_bandwidth)


def _capacities(l2_bytes: int, dram_bytes: int) -> Iterator[Problem]:
    yield from _at_most("l2_bytes", l2_bytes, "dram_bytes", dram_bytes)


def _sectors(l2_line_bytes: int, l2_sector_bytes: int) -> Iterator[Problem]:
    yield from _multiple("l2_line_bytes", l2_line_bytes, "l2_sector_bytes", l2_sector_bytes)


def _mma(mma_columns_step: int, mma_columns_max: int) -> Iterator[Problem]:
    yield from _multiple("mma_columns_max", mma_columns_max, "mma_columns_step", mma_columns_step)


def _latencies(latency: Mapping[str, float]) -> Iterator[Problem]:
    near, far = latency["tma_load_l2"], latency["tma_load_dram"]
    yield from _at_most("latency/tma_load_l2", near, "latency/tma_load_dram", far)


CHECKS: tuple[Callable[..., Iterator[Problem]], ...] = (
    _target,
    _clocks,
    _dtypes,
    _tflops,
    _scalar_kinds,
    _scalar_alone,
    _tile_kinds,
    _scalar_rates,
    _scalar_units,
    _role_registers,
    _register_file,
    _warps,
    _shared_memory,
    _memory,
    _capacities,
    _sectors,
    _mma,
    _latencies,
)
"""All checks between figures, in the order in which their faults are reported."""
