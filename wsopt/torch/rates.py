"""What Inductor would take for a piece: its bytes and products at the best rates that kernels which Inductor calls or
writes were measured to reach (`rates.json`, which names the measurement of each).

That is no model of Inductor's time. It is less than what Inductor takes, so that a piece is only taken where its
kernel is faster than a better one than Inductor has.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from wsopt.frontend.needed import needed_bytes, needed_flops
from wsopt.frontend.region import find_region
from wsopt.graph.types import Graph
from wsopt.machine.load import load_machine
from wsopt.machine.types import Machine

_FILE = Path(__file__).parent / "rates.json"


@dataclass(frozen=True, slots=True)
class Rate:
    """A measured rate: work a second, and where it was measured."""

    per_second: float
    source: str


@cache
def measured() -> tuple[str, dict[str, Rate]]:
    """The machine of the measurements, and the rates by kind: `products`, `fused`, `attention` and `bytes`."""
    document: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    rates = {
        one["kind"]: Rate(one["rate"], f"{one['baseline']} on {one['row']}, {one['file']}")
        for one in document["rates"]
    }
    return document["machine"], rates


def inductor_us(graph: Graph, machine: Machine) -> float:
    """Microseconds of a piece's bytes, or of its products if they take longer, at the measured rates.

    On another machine than the measured one rates are in proportion to what the machine sustains. Raises
    LoweringError for a graph that is no region.
    """
    region = find_region(graph)
    name, rates = measured()
    there = load_machine(name)
    memory = rates["bytes"].per_second * machine.dram_sustained_bandwidth / there.dram_sustained_bandwidth
    seconds = needed_bytes(region) / memory
    if region.contractions:
        kind = "attention" if region.chained else "products" if _is_bare(graph) else "fused"
        dtype = region.operands[0].dtype.value
        # Measured with operands of 16 bits; other types in proportion to the machine's own rates.
        share = rates[kind].per_second / there.sustained_tflops("bf16")
        seconds = max(seconds, needed_flops(region) / (share * machine.sustained_tflops(dtype)))
    return seconds * 1e6


def _is_bare(graph: Graph) -> bool:
    """Whether a graph is a product alone, which a library has: nothing but views and casts beside it."""
    return all(node.op in ("matmul", "cast", "reshape", "transpose") for node in graph.nodes)
