"""A calibration made up from known figures: what every probe would report on an SM that has exactly them."""

from __future__ import annotations

import random

from wsopt.calibrate.catalog import MMA_COLUMNS, SCALAR_ASM
from wsopt.calibrate.fits import TILES
from wsopt.calibrate.samples import Document

RATES = {"exp2": 16.0, "fma": 125.0, "max": 64.0}
START, ALONE, CROWDED = 70.0, 0.9, 0.8
LEAST, PER_COLUMN, LEAST_REGISTERS = 16.0, 0.25, 13.0
LATENCY = 56.0


def synthetic(noise: float = 0.0, shift: float = 1.0, rounds: int = 8, seed: int = 0) -> Document:
    """A document of `rounds` samples a name, each off by up to the share `noise`, all times `shift`."""
    exact = {**_scalar(), **_tiles(), **_tensor(), **_rest()}
    dice = random.Random(seed)
    samples = {
        name: tuple(value * shift * (1 + noise * dice.uniform(-1, 1)) for _ in range(rounds))
        for name, value in exact.items()
    }
    machine = {"device": "NVIDIA H200", "driver": "580.1", "multiprocessors": 132}
    return Document("2026-11-21T06:00:00Z", machine, {"triton": "3.6.0"}, samples, {})


def _scalar() -> dict[str, float]:
    return {
        f"scalar.{kind}.{groups}": 128 * groups / RATES.get(kind, 32.0)
        for kind in SCALAR_ASM
        for groups in (1, 2, 3)
    }


def _tiles() -> dict[str, float]:
    found = {}
    for op, base, measured in TILES.values():
        for columns in measured:
            carrier = 2.0 * columns if base else 0.0
            if base:
                found |= {f"{base}.{columns}.{groups}": carrier * groups for groups in (1, 2, 3)}
            found[f"{op}.{columns}.1"] = carrier + START + ALONE * columns
            found[f"{op}.{columns}.3"] = 3 * (carrier + CROWDED * columns)
    return found


def _tensor() -> dict[str, float]:
    found = {}
    for columns in MMA_COLUMNS:
        shared = max(columns / 2, LEAST + PER_COLUMN * columns)
        places = [("shared", shared), ("registers", max(columns / 2, LEAST_REGISTERS))]
        for place, each in places[: 1 if columns == 256 else 2]:
            found[f"mma.bf16.{place}.{columns}.1.1"] = LATENCY + 4 * each
            found[f"mma.bf16.{place}.{columns}.4.2"] = 32 * each
    return {**found, "mma_issue.bf16.128.1.1": 48.0, "mma_issue.bf16.128.4.1": 10 * 64.0}


def _rest() -> dict[str, float]:
    sync = {f"sync.{op}.{warps}": 20.0 for op in ("arrive", "barrier", "fence") for warps in (1, 4)}
    return {
        **sync,
        "sync.wait.4": 70.0,
        "sync.hop.4": 72.0,
        "latency.arithmetic": 4.0,
        "latency.load": 23.0,
        "latency.store_load": 29.0,
        "load.l2.128x64.1.few": 555.0,
        "load.same.128x64.6.all.rate": 2.0e13,
        "load.l2.128x64.6.all.rate": 8.0e12,
        "power.tensor.hot.mhz": 1640.0,
        "launch.empty.graph_us": 0.75,
    }
