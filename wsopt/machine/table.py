"""The cards as plain rows, for a table a person reads or a program parses; nothing is printed here."""

from __future__ import annotations

from dataclasses import dataclass

from wsopt.machine.load import machines
from wsopt.machine.types import Machine


@dataclass(frozen=True, slots=True)
class MachineRow:
    """One card: dense TFLOP/s by the datasheet, memory in GB (1e9 bytes), bandwidth in TB/s, FLOP a byte."""

    name: str
    title: str
    architecture: str
    sm_count: int
    bf16_tflops: float
    fp8_tflops: float | None
    memory_gb: float
    bandwidth_tb_s: float
    ridge_bf16: float
    targetable: bool


def machine_row(machine: Machine) -> MachineRow:
    """The row of one card."""
    return MachineRow(
        name=machine.name,
        title=machine.title,
        architecture=machine.architecture,
        sm_count=machine.sm_count,
        bf16_tflops=machine.tflops("bf16"),
        fp8_tflops=machine.dense_tflops.get("f8e4m3"),
        memory_gb=machine.dram_bytes / 1e9,
        bandwidth_tb_s=machine.dram_bandwidth / 1e12,
        ridge_bf16=machine.ridge("bf16"),
        targetable=machine.emit_target is not None,
    )


def machine_rows() -> list[MachineRow]:
    """A row for every shipped card, sorted by name."""
    return [machine_row(machine) for machine in machines()]
