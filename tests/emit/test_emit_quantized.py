"""Products with quantized weights: fragments taken apart in registers, scales of groups and channels, zeros."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emit_builds import Body, Emitted, build, case, graph_of, small_case, structure
from other_compiler import compiled_by

from wsopt.codegen.aot import compile_kernel
from wsopt.emit.source import emit
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import random_inputs
from wsopt.program.facts import Arithmetic
from wsopt.program.types import Structure


def _weights(
    dtype: str = "i4", group: int = 128, type_: str = "bf16", scale: str = "", zero: str | int = ""
) -> Body:
    """y = x w' with quantized weights."""

    def body(g: GraphBuilder) -> Symbol:
        x, q = g.input("x", (64, 512), type_), g.input("q", (256, 512), dtype, constant=True)
        shape = 256, 512 // group
        s = g.input("s", shape, scale or type_, constant=True)
        z = g.input("z", shape, zero, constant=True) if isinstance(zero, str) and zero else zero
        w = g.dequantize(q, s, group, z) if z != "" else g.dequantize(q, s, group)
        return g.cast(g.matmul(x, g.cast(w, type_), transpose_b=True, name="p"), type_, name="y")

    return body


DEEP = structure(columns=16, depth=128)
CASES: dict[str, tuple[Body, Structure]] = {
    "groups": (_weights(), DEEP),
    "two consumers, f16": (_weights(type_="f16"), replace(DEEP, consumers=2)),
    "small groups": (_weights(group=32), DEEP),
    "groups of two K-blocks": (_weights("i8", group=256), replace(DEEP, depth=64)),
    "zero": (_weights(zero=8), DEEP),
    "zeros": (_weights(group=64, zero="i8"), replace(DEEP, rows=128)),
    "zeros of bf16": (_weights(zero="bf16"), DEEP),
    "eight bits, f16": (_weights("i8", type_="f16"), DEEP),
    "channels": (_weights("i8", group=512), DEEP),
    "scales of f32": (_weights(scale="f32"), DEEP),
    "two groups a K-block": (_weights(), replace(DEEP, depth=256)),
    "zeros, two groups a K-block": (_weights(zero="i8"), replace(DEEP, rows=128, depth=256)),
}
FEW_SEEDS = 2


@functools.cache
def made(name: str, transforms: int = 0) -> Emitted:
    body, chosen = CASES[name]
    return build(graph_of(body), replace(chosen, transforms=transforms))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_computes(name: str) -> None:
    kernel = made(name)
    assert small_case(kernel).fault(kernel.source, FEW_SEEDS) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["groups of two K-blocks", "eight bits, f16", "channels"])
def test_every_number_of_eight_bits(name: str) -> None:
    kernel = made(name)
    inputs: dict[str, Any] = random_inputs(kernel.graph, 0)
    inputs["q"] = np.random.default_rng(0).integers(-128, 128, inputs["q"].shape, dtype=np.int8)
    inputs["q"][0, :256] = np.arange(-128, 128)
    assert case(kernel.graph, inputs=inputs).fault(kernel.source, FEW_SEEDS) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["groups", "small groups", "zeros"])
def test_a_transform_warpgroup_takes_fragments_apart(name: str) -> None:
    kernel = made(name, 1)
    assert "def transform(" in kernel.source
    assert small_case(kernel).fault(kernel.source, FEW_SEEDS) is None


FAULTS = {
    "mask": ("groups", "0x000f000f", "0x00070007"),
    "sign": ("groups", "n, 0x43084308", "n, 0x43004300"),
    "shift": ("groups", "$4, 8;", "$4, 4;"),
    "subtracted number": ("groups", "sub.rn.bf16x2 $2, $2, n;", ""),
    "order of results": ("groups", "gl.join(a, c), gl.join(b, d)", "gl.join(a, b), gl.join(c, d)"),
    "order of elements": ("groups", "(0, 1, 3, 6, 5, 2, 4)", "(0, 1, 3, 5, 6, 2, 4)"),
    "packed order": ("groups", "(0, 1, 5, 2, 6, 4, 3)", "(0, 1, 5, 2, 4, 6, 3)"),
    "packed halves": ("groups", "low | (high << 4)", "high | (low << 4)"),
    "row of scales": ("groups", "// 128, row_tile", "// 64, row_tile"),
    "scale": ("groups", "mul_bf16(q_value, gl.expand_dims(s_value, 1))", "mul_bf16(q_value, q_value)"),
    "packing": ("groups", '"q": "four_bits"', '"q": "turned"'),
    "turning": ("groups", '"s": "turned"', '"s": "four_bits"'),
    "scale of a group": (
        "small groups",
        "= spread(gl.convert_layout(s_ring",
        "= 0 * spread(gl.convert_layout(s_ring",
    ),
    "zero": ("zero", "n, 0x43084308", "n, 0x43004300"),
    "raised zeros": ("zeros", ".to(gl.bfloat16) + 128)", ".to(gl.bfloat16) + 127)"),
    "raised numbers": ("zeros", "mov.b32 x, 0x43004300", "mov.b32 x, 0x43014301"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_found(name: str) -> None:
    of, before, after = FAULTS[name]
    kernel = made(of)
    assert before in kernel.source
    assert small_case(kernel).fault(kernel.source.replace(before, after), FEW_SEEDS) is not None


@pytest.mark.slow
def test_scales_that_are_no_numbers_reach_the_products_that_they_scale() -> None:
    kernel, rng = made("groups"), np.random.default_rng(0)
    inputs: dict[str, Any] = random_inputs(kernel.graph, 0)
    inputs["q"] = rng.integers(1, 8, inputs["q"].shape, dtype=np.int8)  # no zero times an infinity
    inputs["x"] = np.abs(inputs["x"])
    inputs["s"][3, 1], inputs["s"][5, :], inputs["s"][7, 2] = np.nan, 0, np.inf
    found = case(kernel.graph, inputs=inputs)
    assert found.fault(kernel.source, FEW_SEEDS) is None
    expected = np.asarray(found.referee.expected["y"].value, np.float32)
    assert np.isnan(expected[:, 3]).all()
    assert np.isinf(expected[:, 7]).all()
    assert not expected[:, 5].any()


def test_numbers_stay_in_sixteen_bits() -> None:
    source = made("groups").source
    assert "mul_bf16(q_value, gl.expand_dims(s_value, 1))" in source
    body = source[source.index("def consumer(") : source.index("def kernel(")]
    assert ".to(gl.float32)" not in body
    assert "assert_trivial=True" in source  # nothing goes from thread to thread
    assert emit(made("groups").verified) == source


@pytest.mark.slow
@pytest.mark.parametrize("type_", ["bf16", "f16"])
def test_every_zero_of_eight_bits(type_: str) -> None:
    kernel = build(graph_of(_weights(group=64, type_=type_, zero="i8")), replace(DEEP, rows=128))
    inputs: dict[str, Any] = random_inputs(kernel.graph, 0)
    inputs["z"][:] = np.arange(-128, 128, dtype=np.int8)[:, None]
    assert case(kernel.graph, inputs=inputs).fault(kernel.source, FEW_SEEDS) is None


@pytest.mark.compiler
def test_zeros_are_subtracted_together_with_what_the_bits_stand_behind() -> None:
    kernel = made("zeros")
    (work,) = (op.counts for op in kernel.verified.program.loop if op.items)
    assert isinstance(work, Arithmetic)
    counted = {kind: count * work.elements / 128 for kind, count in work.mix.items()}
    # Of 128 x 128 weights in 128 threads 64 pairs each, less their zeros and times their scales.
    assert counted == {"logic": 112, "add": 64, "mul": 64}
    found = dict(compile_kernel(kernel.source).sass)
    # Four rows of a thread have two groups each, whose zeros become numbers of 16 bits and are raised.
    assert counted["add"] < found["HADD2"] <= counted["add"] + 2 * 8
    assert found["HMUL2"] == counted["mul"]


@pytest.mark.compiler
@pytest.mark.parametrize("name", ["groups", "small groups"])
def test_compiles_to_few_instructions(name: str) -> None:
    found = compile_kernel(made(name).source)
    assert (found.stack_bytes, found.spill_loads, found.spill_stores) == (0, 0, 0)
    assert not found.overwritten_operands


@pytest.mark.compiler
def test_the_other_release_of_the_compiler_takes_it(other_triton: str) -> None:
    sources = [made(name).source for name in ("groups", "small groups", "zeros")]
    assert [found["overwritten_operands"] for found in compiled_by(other_triton, sources)] == [0, 0, 0]
