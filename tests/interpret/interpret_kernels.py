"""The kernels of the interpreter's tests, their inputs, and what they should compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from wsopt.errors import CheckError
from wsopt.interpret import execute

KERNELS = Path(__file__).parent / "kernels"
BF16 = ml_dtypes.bfloat16
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Case:
    """Inputs and expected outputs of a kernel, and `settings` of its executions beside the seed."""

    source: str
    inputs: Arrays
    expected: Arrays
    settings: Mapping[str, int] = field(default_factory=dict)

    def failure(self, source: str, seed: int) -> str | None:
        """Run a source; return what is wrong with it, None if nothing is."""
        try:
            outputs = execute(source, self.inputs, seed=seed, **self.settings).outputs
        except CheckError as fault:
            return f"{type(fault).__name__}: {fault}"
        worst = max(error(outputs[name], wanted) for name, wanted in self.expected.items())
        return None if worst < 1e-2 else f"wrong values, error {worst}"

    def survives(self, source: str, seeds: int) -> bool:
        """Is nothing found wrong under any of the seeds?"""
        return all(self.failure(source, seed) is None for seed in range(seeds))


def error(found: NDArray[Any], wanted: NDArray[Any]) -> float:
    """Largest difference, relative to the largest value; infinite where a value is NaN."""
    worst = float(np.abs(found.astype(np.float32) - wanted).max() / np.abs(wanted).max())
    return worst if np.isfinite(worst) else float("inf")


def source_of(name: str) -> str:
    return (KERNELS / f"{name}.txt").read_text()


def normal(rng: np.random.Generator, *shape: int, dtype: Any = BF16) -> NDArray[Any]:
    return rng.standard_normal(shape).astype(dtype)


def wide(array: NDArray[Any]) -> NDArray[np.float32]:
    return array.astype(np.float32)


def gemm_residual(K: int = 136, M: int = 200, N: int = 264, batches: int = 2) -> Case:
    rng = np.random.default_rng(0)
    x, w = normal(rng, batches, M, K), normal(rng, N, K)
    b, residual = normal(rng, N), normal(rng, batches, M, N)
    h = wide(x) @ wide(w).T + wide(b)
    inputs = {"x": x, "w": w, "b": b, "residual": residual}
    return Case(source_of("gemm_residual"), inputs, {"h": h, "y": h + wide(residual)})


def scale(rows: int = 300) -> Case:
    x = normal(np.random.default_rng(1), rows, 64)
    return Case(source_of("scale"), {"x": x}, {"y": 2 * wide(x)})


def attention(keys: int = 328) -> Case:
    rng = np.random.default_rng(2)
    q, k, v = (normal(rng, rows, 64) for rows in (128, keys, keys))
    scores = wide(q) @ wide(k).T
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    o = weights @ wide(v) / weights.sum(axis=1, keepdims=True)
    return Case(source_of("attention"), {"q": q, "k": k, "v": v}, {"o": o})


def handoff() -> Case:
    rng = np.random.default_rng(3)
    x, w = (normal(rng, rows, 48, dtype=ml_dtypes.float8_e4m3fn) for rows in (50, 40))
    return Case(source_of("handoff"), {"x": x, "w": w}, {"y": np.tanh(wide(x) @ wide(w).T)})


def tensor_memory(K: int = 200, M: int = 200, N: int = 328) -> Case:
    rng = np.random.default_rng(4)
    x, w = normal(rng, M, K), normal(rng, N, K)
    return Case(source_of("tensor_memory"), {"x": x, "w": w}, {"y": wide(x) @ wide(w).T})


def split_sums(K: int = 424, M: int = 200, N: int = 136, *, processors: int = 4) -> Case:
    """Seven K-blocks in three parts, and six tiles: of four blocks three can be the last at some of the tiles."""
    rng = np.random.default_rng(5)
    x, w, r = normal(rng, M, K), normal(rng, N, K), normal(rng, M, N)
    y = wide(x) @ wide(w).T + wide(r)
    settings = {"processors": processors}
    return Case(source_of("split_sums"), {"x": x, "w": w, "r": r}, {"y": y}, settings)
