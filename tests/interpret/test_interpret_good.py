"""Kernels with right synchronization pass every interleaving with right values."""

from __future__ import annotations

import dataclasses

import interpret_kernels as kernels
import numpy as np
import pytest

from wsopt.interpret import execute
from wsopt.interpret.strategy import STRATEGIES

CASES = {
    "gemm_residual": kernels.gemm_residual,
    "scale": kernels.scale,
    "attention": kernels.attention,
    "handoff": kernels.handoff,
    "tensor_memory": kernels.tensor_memory,
    "split_sums": kernels.split_sums,
}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", CASES)
def test_good_kernel_passes(name: str, seed: int) -> None:
    case = CASES[name]()
    assert case.failure(case.source, seed) is None


def test_seeds_cover_every_strategy() -> None:
    assert len(STRATEGIES) <= 20


def test_same_seed_same_execution() -> None:
    case = kernels.gemm_residual()
    first, second = (execute(case.source, case.inputs, seed=3) for _ in range(2))
    assert first.steps == second.steps
    assert all(first.outputs[name].tobytes() == second.outputs[name].tobytes() for name in first.outputs)


def test_triton_3_7_names_and_more_processors() -> None:
    case = kernels.scale()
    newer = case.source.replace("async_copy_global_to_shared", "async_load")
    newer = newer.replace("async_copy_shared_to_global", "async_store")
    assert execute(newer, case.inputs, seed=0, processors=4).steps > 0


def test_strided_input() -> None:
    case = kernels.scale()
    wide = np.zeros((300, 128), kernels.BF16)
    wide[:, :64] = case.inputs["x"]
    strided = dataclasses.replace(case, inputs={"x": wide[:, :64]})
    assert strided.failure(case.source, 0) is None


def test_nothing_global_is_left() -> None:
    import sys

    before = set(sys.modules)
    case = kernels.scale()
    execute(case.source, case.inputs, seed=0)
    assert {"torch", "triton"}.isdisjoint(set(sys.modules) - before)
