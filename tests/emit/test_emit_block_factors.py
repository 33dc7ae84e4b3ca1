"""Products of f8 whose K-blocks have factors: scales of groups, blocks, rows and channels, executed and compiled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emit_builds import Body, case, graph_of, h200, kernels_of, small_case, structure
from other_compiler import compiled_by

from wsopt.codegen.aot import compile_kernel
from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import evaluate, random_inputs
from wsopt.lowering.structures import structures
from wsopt.program.types import Sharing, Structure

FEW_SEEDS = 2


def _scaled(
    group: int = 128, block: tuple[int, int] = (128, 128), n: int = 256, k: int = 512, **types: str
) -> Body:
    """y = x w' with scales of groups of x, which lie with the contracted axis first, and of blocks of w."""
    scale, product, f8 = types.get("scale", "f32"), types.get("product", "bf16"), types.get("f8", "f8e4m3")

    def body(g: GraphBuilder) -> Symbol:
        x, sx = g.input("x", (200, k), f8), g.input("sx", (k // group, 200), scale)
        w = g.input("w", (n, k), f8, constant=True)
        sw = g.input("sw", (n // block[0], k // block[1]), scale, constant=True)
        left = g.dequantize(x, g.transpose(sx, perm=(1, 0)), group)
        sides = [g.cast(one, product) for one in (left, g.dequantize(w, sw, block=block))]
        return g.cast(g.matmul(*sides, transpose_b=True, name="p"), "bf16", name="y")

    return body


def _with_bias(g: GraphBuilder) -> Symbol:
    """Numbers of f8 as they are beside weights with scales of blocks; constant scales of rows; a bias."""
    x, w = g.input("x", (200, 512), "f8e4m3"), g.input("w", (256, 512), "f8e4m3", constant=True)
    sw = g.input("sw", (2, 4), "f32", constant=True)
    right = g.cast(g.dequantize(w, sw, block=(128, 128)), "bf16")
    y = g.matmul(g.cast(x, "bf16"), right, transpose_b=True, name="p")
    return g.cast(g.gelu(y + g.input("b", (256,), "bf16", constant=True)), "bf16", name="y")


def _constant_rows(g: GraphBuilder) -> Symbol:
    """Scales of groups of a constant as they come, which are turned before the first launch."""
    x, w = g.input("x", (200, 512), "f8e4m3", constant=True), g.input("w", (256, 512), "f8e4m3")
    left = g.cast(g.dequantize(x, g.input("sx", (200, 4), "f32", constant=True), 128), "bf16")
    right = g.cast(g.dequantize(w, g.input("sw", (2, 4), "f32", constant=True), block=(128, 128)), "bf16")
    return g.cast(g.matmul(left, right, transpose_b=True, name="p"), "bf16", name="y")


def _channels(g: GraphBuilder) -> Symbol:
    """A scale a row and one a channel: the sums are scaled once."""
    x, w = g.input("x", (200, 512), "f8e4m3"), g.input("w", (256, 512), "f8e4m3", constant=True)
    left = g.cast(g.dequantize(x, g.input("sx", (200, 1), "f32"), 512), "bf16")
    right = g.cast(g.dequantize(w, g.input("sw", (256, 1), "f32", constant=True), 512), "bf16")
    return g.cast(g.matmul(left, right, transpose_b=True, name="p"), "bf16", name="y")


DEEP = structure(columns=128, depth=128, consumers=2)
CASES: dict[str, tuple[Body, Structure]] = {
    "groups and blocks": (_scaled(), DEEP),
    "two K-blocks a group": (_scaled(), replace(DEEP, depth=64)),
    "two K-blocks an iteration": (_scaled(), replace(DEEP, copies=2, consumers=1)),
    "narrow tiles": (_scaled(), replace(DEEP, columns=64, consumers=1)),
    "one block of columns": (_scaled(n=128), DEEP),
    "long blocks": (_scaled(256, (64, 256)), replace(DEEP, columns=64)),
    "groups of two sizes": (_scaled(64), replace(DEEP, depth=64, consumers=1)),
    "tiles in turns": (_scaled(), replace(DEEP, sharing=Sharing.PING_PONG)),
    "split sums": (_scaled(k=2048), replace(DEEP, splits=2)),
    "scales of bf16": (_scaled(k=1024, scale="bf16", product="f16"), DEEP),
    "the wider f8": (_scaled(f8="f8e5m2"), DEEP),
    "one side": (_with_bias, DEEP),
    "constant rows": (_constant_rows, DEEP),
    "channels": (_channels, DEEP),
}
made = kernels_of(CASES)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_computes(name: str) -> None:
    kernel = made(name)
    assert small_case(kernel).fault(kernel.source, FEW_SEEDS) is None


FAULTS = {
    "factor": (" * gl.expand_dims(p_factor, 1)", ""),
    "factor of rows": ("sx_ring.index(slot * 2 + index)", "sx_ring.index(slot * 2)"),
    "factor of columns": (" * first_of(", " * 1.0 + 0 * first_of("),
    "first": ("layout=layout) == 0", "layout=layout) == 1"),
    "place of a block": ("column_tile * TILE_COLUMNS // 128, k_block", "column_tile * 0, k_block"),
    "place of a scale that is spread": ("k_block * TILE_DEPTH // 128 * 4", "k_block * TILE_DEPTH // 128"),
    "place of a group": ("k_block * TILE_DEPTH // 128, row_tile", "0 * TILE_DEPTH // 128, row_tile"),
    "sums that go on": ("use_acc=False", "use_acc=True"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_found(name: str) -> None:
    before, after = FAULTS[name]
    kernel = made("groups and blocks")
    assert before in kernel.source
    assert small_case(kernel).fault(kernel.source.replace(before, after), FEW_SEEDS) is not None


@pytest.mark.slow
def test_scales_that_are_no_numbers_reach_what_they_scale() -> None:
    kernel = made("groups and blocks")
    inputs: dict[str, Any] = random_inputs(kernel.graph, 0)
    inputs["x"] = np.abs(inputs["x"].astype(np.float32)).astype(inputs["x"].dtype) + 1
    inputs["w"] = np.abs(inputs["w"].astype(np.float32)).astype(inputs["w"].dtype) + 1
    inputs["sx"], inputs["sw"] = np.abs(inputs["sx"]) + 1, np.abs(inputs["sw"]) + 1
    inputs["sx"][1, 3], inputs["sx"][:, 5], inputs["sx"][2, 7] = np.nan, 0, np.inf
    found = case(kernel.graph, inputs=inputs)
    assert found.fault(kernel.source, FEW_SEEDS) is None
    expected = evaluate(kernel.graph, inputs)["y"].astype(np.float32)
    assert np.isnan(expected[3]).all()
    assert np.isinf(expected[7]).all()
    assert not expected[5].any()


def test_a_channels_scale_is_no_factor_of_a_k_block() -> None:
    source = made("channels").source
    assert "factor" not in source
    assert source.count("warpgroup_mma(") == 1


def test_tiles_have_one_factor_a_row() -> None:
    region = find_region(graph_of(_scaled(64, (64, 64))))
    cuts = [*structures(region, h200())]
    assert cuts
    assert {one.depth for one in cuts} == {64}
    assert max(one.columns for one in cuts) == 64
    assert not any(one.swap for one in cuts)


@pytest.mark.compiler
def test_machine_code_scales_by_one_multiplication_an_element() -> None:
    found = compile_kernel(made("two K-blocks an iteration").source)
    assert (found.stack_bytes, found.spill_loads, found.spill_stores) == (0, 0, 0)
    counts = dict(found.sass)
    each = 2 * 64 * 128 // 128  # two K-blocks, 128 threads
    assert each <= counts["FFMA"] < 4 * each
    assert counts["LDS"] < 40  # of the numbers that come with a block's factor one is read


@pytest.mark.compiler
def test_the_other_release_of_the_compiler_takes_it(other_triton: str) -> None:
    sources = [made(name).source for name in ("groups and blocks", "two K-blocks an iteration")]
    assert [found["spill_loads"] for found in compiled_by(other_triton, sources)] == [0, 0]
