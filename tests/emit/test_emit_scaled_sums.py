"""Scales of groups as factors of partial sums: weights in registers, a set of sums for each group of a K-block."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emit_builds import Body, Emitted, build, case, graph_of, small_case
from emit_mutants import survivors
from other_compiler import compiled_by
from test_emit_quantized import DEEP, _weights

from wsopt.codegen.aot import compile_kernel
from wsopt.emit.source import emit
from wsopt.graph.reference import random_inputs
from wsopt.interpret import Mutant
from wsopt.program.facts import Arithmetic, Promotion
from wsopt.program.types import Structure

SCALED = replace(DEEP, scaled_sums=True)
CASES: dict[str, tuple[Body, Structure]] = {
    "a group a K-block": (_weights(), SCALED),
    "two groups a K-block": (_weights(), replace(SCALED, columns=8, depth=256, consumers=2)),
    "four groups a K-block": (_weights(group=32), replace(SCALED, rows=128)),
    "two K-blocks a group": (_weights("i8", group=256), replace(SCALED, depth=64)),
    "zeros, f16": (_weights(group=64, type_="f16", zero="i8"), SCALED),
    "scales of f32": (_weights(scale="f32", zero=8), replace(SCALED, columns=96, depth=256, subtiles=3)),
    "split sums": (_weights("i8"), replace(SCALED, depth=64, splits=2)),
}
FEW_SEEDS = 2


@functools.cache
def made(name: str) -> Emitted:
    body, chosen = CASES[name]
    return build(graph_of(body), chosen, 60 if name == "two groups a K-block" else 227)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_computes(name: str) -> None:
    kernel = made(name)
    assert case(kernel.graph).fault(kernel.source, FEW_SEEDS) is None
    assert small_case(kernel).fault(kernel.source, 1) is None


FAULTS = {
    "factor": ("gl.convert_layout(p_factor_1", "gl.convert_layout(p_factor_0"),
    "no factor": ("p + p_partial_set_0 * ", "p + p_partial_set_0 + 0 * "),
    "sums of a set": ("p + p_partial_set_1 * ", "p + p_partial_set_0 * "),
    "part of the weights": ("gl.convert_layout(cast_0_0__part_1", "gl.convert_layout(cast_0_0__part_0"),
    "part of the rows": (".slice(128, 128, dim=0)", ".slice(0, 128, dim=0)"),
    "sums that go on": ("use_acc=False", "use_acc=True"),
    "sums that are left": ("p = p + p_partial_set_1", "p = p_partial_set_1"),
    "consumer's scales": ("s_ring.index(slot * 2 + index)", "s_ring.index(slot * 2)"),
    "place of a group": ("k_block * TILE_DEPTH // 128, row_tile", "0 * TILE_DEPTH // 128, row_tile"),
    "products under way": ("= warpgroup_mma_wait(0", "= warpgroup_mma_wait(1"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_found(name: str) -> None:
    before, after = FAULTS[name]
    kernel = made("two groups a K-block")
    assert before in kernel.source
    assert case(kernel.graph).fault(kernel.source.replace(before, after), FEW_SEEDS) is not None


SAME = {
    ("double-wait", "a wait that has passed passes again"),
    ("swap-argument", "workers of as many warps and registers"),
}


@pytest.mark.slow
def test_every_mutant_is_found() -> None:
    kernel = made("two groups a K-block")
    assert kernel.depth == 2

    def place_of(source: str, mutant: Mutant) -> tuple[str, str]:
        return next((one for one in SAME if one[0] == mutant.kind), (mutant.kind, str(mutant.line)))

    cases = [small_case(kernel, k_blocks) for k_blocks in (5, 8)]
    found = survivors(cases, kernel.source, place_of, SAME)
    assert found == Counter(dict.fromkeys(SAME, 2))


@pytest.mark.slow
def test_scales_that_are_no_numbers_reach_the_sums_that_they_scale() -> None:
    kernel, rng = made("two groups a K-block"), np.random.default_rng(0)
    inputs: dict[str, Any] = random_inputs(kernel.graph, 0)
    inputs["q"] = rng.integers(1, 8, inputs["q"].shape, dtype=np.int8)  # no sum of zero times an infinity
    inputs["x"] = np.abs(inputs["x"])
    inputs["s"][3, 1], inputs["s"][5, :], inputs["s"][7, 2] = np.nan, 0, np.inf
    found = case(kernel.graph, inputs=inputs)
    assert found.fault(kernel.source, FEW_SEEDS) is None


def test_no_weight_is_multiplied_and_a_k_block_has_one_slot() -> None:
    source = made("two groups a K-block").source
    consumer = source[source.index("def consumer(") : source.index("def kernel(")]
    assert "mul_bf16" not in source
    assert consumer.count("mbarrier.wait(") == consumer.count("mbarrier.arrive(") == 1
    assert emit(made("two groups a K-block").verified) == source


def test_a_set_of_sums_takes_registers_of_its_own() -> None:
    def registers(name: str) -> int:
        return made(name).verified.program.accumulator_registers

    # Sums of 64 x 16, 64 x 8 and 128 x 16 in four warps, and as many again for each set.
    assert registers("a group a K-block") == 2 * 8
    assert registers("two groups a K-block") == 3 * 4
    assert registers("four groups a K-block") == 5 * 16


@pytest.mark.compiler
def test_the_machine_code_has_the_instructions_that_are_counted() -> None:
    kernel = made("two groups a K-block")
    found = compile_kernel(kernel.source)
    assert (found.stack_bytes, found.spill_loads, found.spill_stores) == (0, 0, 0)
    assert not found.overwritten_operands
    threads, counted = 128, Counter[str]()
    for op in kernel.verified.program.loop:
        if isinstance(op.counts, Promotion):
            counted["FFMA"] += op.counts.elements // threads
        elif isinstance(op.counts, Arithmetic):
            mix = dict(op.counts.mix.items())
            assert {*mix} == {"logic", "add"}
            counted["HADD2"] += round(mix["add"] * op.counts.elements / threads)
            counted["LOP3 and SHF"] += round(mix["logic"] * op.counts.elements / threads)
    opcodes = dict(found.sass)
    assert counted == {"HADD2": 128, "FFMA": 16, "LOP3 and SHF": 224}
    assert opcodes["HADD2"] == counted["HADD2"]
    assert "HMUL2" not in opcodes
    assert 0 <= opcodes["FFMA"] - counted["FFMA"] <= 8
    assert 0 <= opcodes["LOP3"] + opcodes["SHF"] - counted["LOP3 and SHF"] <= 60


@pytest.mark.compiler
def test_the_other_release_of_the_compiler_takes_it(other_triton: str) -> None:
    sources = [
        made(name).source for name in ("two groups a K-block", "four groups a K-block", "scales of f32")
    ]
    assert [found["overwritten_operands"] for found in compiled_by(other_triton, sources)] == [0, 0, 0]
