"""Rows quantized behind a norm, a gate or nothing: scales of rows and of groups, of zeros, ties and no numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emit_builds import Body, case, kernels_of
from other_compiler import compiled_by

from wsopt.codegen.aot import compile_kernel
from wsopt.errors import LoweringError
from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import evaluate, random_inputs
from wsopt.graph.types import DType
from wsopt.program.types import Sharing, Structure

FEW_SEEDS = 2
F8 = DType.F8E4M3.numpy


def _normed(g: GraphBuilder) -> tuple[Symbol, ...]:
    x, weight = g.input("x", (40, 512), "bf16"), g.input("w", (512,), "bf16", constant=True)
    y = g.rms_norm(x, weight)
    return g.quantize(y, "f8e4m3", 512, name="q"), g.quantize_scale(y, "f8e4m3", 512, name="s")


def _ragged(g: GraphBuilder) -> tuple[Symbol, ...]:
    x = g.input("x", (40, 400), "f16")
    return g.quantize(x, "f8e4m3", 400, name="q"), g.quantize_scale(x, "f8e4m3", 400, name="s")


def _gated(g: GraphBuilder) -> tuple[Symbol, ...]:
    x = g.silu(g.input("x", (10, 512), "bf16")) * g.input("u", (10, 512), "bf16")
    return g.quantize(x, "f8e4m3", 128, name="q"), g.quantize_scale(x, "f8e4m3", 128, name="s")


def _plain(g: GraphBuilder) -> tuple[Symbol, ...]:
    x = g.input("x", (10, 512), "f32")
    return g.quantize(x, "f8e4m3", 128, name="q"), g.quantize_scale(x, "f8e4m3", 128, name="s")


def _normed_groups(g: GraphBuilder) -> tuple[Symbol, ...]:
    """Groups of rows that a norm reduces whole, and that end within a tile."""
    x, weight = g.input("x", (10, 384), "bf16"), g.input("w", (384,), "bf16", constant=True)
    y = g.rms_norm(x, weight)
    return g.quantize(y, "f8e4m3", 128, name="q"), g.quantize_scale(y, "f8e4m3", 128, name="s")


def _turned(g: GraphBuilder) -> tuple[Symbol, ...]:
    """The same with scales that lie as a product takes those of its rows."""
    x, weight = g.input("x", (10, 384), "bf16"), g.input("w", (384,), "bf16", constant=True)
    y = g.rms_norm(x, weight)
    scale = g.quantize_scale(y, "f8e4m3", 128)
    return g.quantize(y, "f8e4m3", 128, name="q"), g.transpose(scale, perm=(1, 0), name="s")


def _with_a_sum(g: GraphBuilder) -> tuple[Symbol, ...]:
    """Groups beside a sum of the whole row: the numbers that are quantized are those that come."""
    x = g.input("x", (10, 512), "f32")
    q, s = g.quantize(x, "f8e4m3", 128, name="q"), g.quantize_scale(x, "f8e4m3", 128, name="s")
    return q, s, g.reduce_sum(g.mul(x, 0.0), axis=-1, name="z")


def _product(g: GraphBuilder) -> tuple[Symbol, ...]:
    x, w = g.input("x", (200, 192), "bf16"), g.input("w", (128, 192), "bf16", constant=True)
    y = g.matmul(x, w, transpose_b=True)
    return g.quantize(y, "f8e4m3", 128, name="q"), g.quantize_scale(y, "f8e4m3", 128, name="s")


def _groups_of_product(g: GraphBuilder) -> tuple[Symbol, ...]:
    """Groups of a gate's columns, of which a tile has one, with scales that lie side by side."""
    x = g.input("x", (72, 64), "bf16")
    gate, up = (g.matmul(x, g.input(name, (64, 256), "bf16", constant=True)) for name in "vw")
    y = g.silu(gate) * up
    return g.quantize(y, "f8e4m3", 128, name="q"), g.quantize_scale(y, "f8e4m3", 128, name="s")


def rows(held: int, columns: int) -> Structure:
    return Structure(
        held, columns, 1, 2, 4, Sharing.COOPERATIVE, persistent=True, swap=False, subtiles=1, group=1
    )  # fmt: skip


PRODUCT = replace(rows(64, 128), depth=64)
CASES: dict[str, tuple[Body, Structure]] = {
    "rows behind a norm": (_normed, rows(4, 512)),
    "rows that end within a tile": (_ragged, rows(4, 512)),
    "groups of a gate": (_gated, rows(8, 128)),
    "groups": (_plain, rows(8, 128)),
    "groups behind a norm": (_normed_groups, rows(4, 512)),
    "scales turned": (_turned, rows(4, 512)),
    "groups of whole rows": (_with_a_sum, rows(4, 512)),
    "rows of a product": (_product, PRODUCT),
    "groups of a product": (_groups_of_product, PRODUCT),
}
made = kernels_of(CASES)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_computes(name: str) -> None:
    kernel = made(name)
    assert case(kernel.graph).fault(kernel.source, FEW_SEEDS) is None


def _odd_inputs() -> dict[str, Any]:
    """Groups of zeros, of ties, with one number that is none, with an infinity; else random ones."""
    x = random_inputs(made("groups").graph, 0)["x"]
    numbers = np.arange(0x7F, dtype=np.uint8).view(F8).astype(np.float32)
    ties = (numbers[:-1] + numbers[1:]) / 2
    x[0, :128] = 0
    x[1, :126], x[1, 126:128] = ties, 448  # the largest makes the scale one
    x[2, 130], x[3, 300], x[4, 400] = np.nan, np.inf, -np.inf
    x[5] *= 1e30
    return {"x": x}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["groups", "groups of whole rows"])
def test_odd_groups_are_as_defined(name: str) -> None:
    kernel, inputs = made(name), _odd_inputs()
    found = case(kernel.graph, inputs=inputs)
    assert found.fault(kernel.source, FEW_SEEDS) is None
    expected = evaluate(kernel.graph, inputs)
    assert expected["s"][0, 0] == expected["s"][1, 0] == 1
    assert np.isnan(expected["s"][2]).tolist() == [False, True, False, False]
    assert np.isinf(expected["s"][3]).tolist() == [False, False, True, False]
    assert not (expected["q"][1, :126].view(np.uint8) % 2).any()


FAULTS = {
    "scale": ("0.002232142857142857", "0.0023"),
    "zero": ("gl.where(", "gl.where(False & "),
    "nan": ("propagate_nan=tl.PropagateNan.ALL", "propagate_nan=tl.PropagateNan.NONE"),
    "magnitude": ("gl.abs(", "("),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_found(name: str) -> None:
    before, after = FAULTS[name]
    kernel = made("groups")
    assert before in kernel.source
    assert case(kernel.graph, inputs=_odd_inputs()).fault(kernel.source.replace(before, after), FEW_SEEDS)


GROUPS = {
    "group": ("tile.shape[1] // group, group]", "tile.shape[1] // (2 * group), 2 * group]"),
    "place": ("columns // 128", "columns // 256"),
    "first": ("columns % 128 == 0", "columns % 256 == 0"),
    "end": (" & (columns < ROW_LENGTH)", ""),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", GROUPS)
def test_faults_of_groups_in_rows_are_found(name: str) -> None:
    before, after = GROUPS[name]
    kernel = made("groups behind a norm")
    assert before in kernel.source
    assert case(kernel.graph).fault(kernel.source.replace(before, after), FEW_SEEDS)


def test_a_group_has_one_division() -> None:
    source = made("groups behind a norm").source
    assert "1.0 / q_" in source
    assert source.count(" / q_") == 1


def _norm_of_288(g: GraphBuilder) -> Symbol:
    return g.rms_norm(g.input("u", (40, 288), "bf16"), g.input("v", (288,), "bf16"))


def _of_a_product(g: GraphBuilder) -> Symbol:
    product = g.matmul(g.input("u", (40, 512), "bf16"), g.input("v", (512, 256), "bf16"))
    return g.quantize(product, "f8e4m3", 64, name="q")


REFUSED = {
    "scales that are computed with": (
        lambda g, y: g.mul(g.quantize_scale(y, "f8e4m3", 128, name="s"), 2.0),
        "node s: scales of groups of rows that are reduced whole are stored",
    ),
    "groups of another size": (
        lambda g, y: g.quantize(_norm_of_288(g), "f8e4m3", 96, name="q"),
        "groups of 96 elements of rows that are reduced whole are not lowered",
    ),
    "small groups of a product": (
        lambda g, y: _of_a_product(g),
        "its result is reduced in parts of 64 columns, of which a tile has one, and at least 128 columns; compute",
    ),
    "blocks": (
        lambda g, y: g.quantize(y, "f8e4m3", block=(8, 128), name="q"),
        "node q: scales of blocks are not computed in a kernel",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    body, told = REFUSED[name]
    g = GraphBuilder("refused")
    g.output(body(g, g.rms_norm(g.input("x", (40, 512), "bf16"), g.input("w", (512,), "bf16"))))
    with pytest.raises(LoweringError, match=told):
        find_region(g.build())


@pytest.mark.compiler
def test_compiles() -> None:
    found = compile_kernel(made("groups behind a norm").source)
    assert (found.stack_bytes, found.spill_loads, found.spill_stores) == (0, 0, 0)


@pytest.mark.compiler
def test_the_other_release_of_the_compiler_takes_it(other_triton: str) -> None:
    sources = [made(name).source for name in ("rows behind a norm", "groups behind a norm")]
    assert [found["stack_bytes"] for found in compiled_by(other_triton, sources)] == [0, 0]
