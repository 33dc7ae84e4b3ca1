"""Products with an operand that is computed element by element: by its consumers, or by a transform warpgroup."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest
from emit_builds import (
    SEEDS,
    Body,
    Emitted,
    build,
    check_computes,
    check_shows,
    graph_of,
    small_case,
    structure,
)
from other_compiler import compiled_by

from wsopt.codegen.aot import compile_kernel
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.interpret import mutants
from wsopt.program.types import Structure


def _weights(g: GraphBuilder) -> Symbol:
    """y = x w' with whole numbers for weights."""
    x, w = g.input("x", (512, 512), "bf16"), g.input("w", (512, 512), "i8", constant=True)
    return g.cast(g.matmul(x, g.cast(w, "bf16"), transpose_b=True, name="p"), "bf16", name="y")


def _rows(g: GraphBuilder) -> Symbol:
    """y = relu(x) w, whose left operand is computed."""
    x, w = g.input("x", (512, 512), "bf16"), g.input("w", (512, 512), "bf16", constant=True)
    return g.cast(g.matmul(g.cast(g.relu(x), "bf16"), w, name="p"), "bf16", name="y")


def _columns(g: GraphBuilder) -> Symbol:
    """y = x w with weights that lie along the columns."""
    x, w = g.input("x", (512, 512), "f16"), g.input("w", (512, 512), "i8", constant=True)
    return g.cast(g.matmul(x, g.cast(w, "f16"), name="p"), "f16", name="y")


def _scaled(g: GraphBuilder) -> Symbol:
    """y = x (w s)' + b, with a scale for every element of the contracted axis."""
    x, w = g.input("x", (512, 512), "bf16"), g.input("w", (512, 512), "i8", constant=True)
    scale, bias = g.input("s", (512,), "f32"), g.input("b", (512,), "bf16")
    left = g.cast(g.mul(g.cast(w, "f32"), scale), "bf16")
    return g.cast(g.add(g.matmul(x, left, transpose_b=True, name="p"), bias), "bf16", name="y")


def _two(g: GraphBuilder) -> Symbol:
    """y = x (a + b)', whose operand is computed of two tensors."""
    x, a = g.input("x", (512, 512), "bf16"), g.input("a", (512, 512), "bf16")
    b = g.input("b", (512, 512), "bf16")
    return g.cast(g.matmul(x, g.cast(g.add(a, b), "bf16"), transpose_b=True, name="p"), "bf16", name="y")


def _shifted(g: GraphBuilder) -> Symbol:
    """y = relu(x + a) w, with a number of each row, which the loop reads."""
    x, a, w = (
        g.input("x", (300, 128), "bf16"),
        g.input("a", (300, 1), "f32"),
        g.input("w", (128, 264), "bf16"),
    )
    return g.cast(g.matmul(g.cast(g.relu(g.add(x, a)), "bf16"), w), "bf16", name="y")


def _outer(g: GraphBuilder) -> Symbol:
    """y = relu(a + b) w, whose operand is computed of vectors alone."""
    a, b, w = g.input("a", (300, 1), "f32"), g.input("b", (1, 128), "f32"), g.input("w", (128, 264), "bf16")
    return g.cast(g.matmul(g.cast(g.relu(g.add(a, b)), "bf16"), w), "bf16", name="y")


def _gated(g: GraphBuilder) -> Symbol:
    """y = silu(x a') (x b') with whole numbers for weights."""
    x = g.input("x", (512, 512), "bf16")
    a, b = (g.cast(g.input(name, (512, 512), "i8"), "bf16") for name in "ab")
    gate, up = (g.matmul(x, one, transpose_b=True) for one in (a, b))
    return g.cast(g.mul(g.silu(gate), up), "bf16", name="y")


FEW_SEEDS = 6
"""Every build is simulated under twenty interleavings besides, before it is handed over."""

CASES: dict[str, tuple[Body, Structure]] = {
    "weights": (_weights, structure()),
    "two consumers": (_weights, structure(consumers=2, subtiles=2)),
    "ping-pong": (_weights, structure(consumers=2, ping_pong=True)),
    "left": (_rows, structure(128, consumers=2)),
    "along columns": (_columns, structure()),
    "scaled": (_scaled, structure()),
    "two tensors": (_two, structure(consumers=2)),
    "gated": (_gated, structure(32)),
    "two warpgroups": (_weights, structure(rows=128, warps=8)),
}


@functools.cache
def made(name: str, transforms: int) -> Emitted:
    body, chosen = CASES[name]
    return build(graph_of(body), replace(chosen, transforms=transforms))


@pytest.mark.slow
@pytest.mark.parametrize("transforms", [0, 1])
@pytest.mark.parametrize("name", CASES)
def test_computes(name: str, transforms: int) -> None:
    kernel = made(name, transforms)
    assert small_case(kernel).fault(kernel.source, FEW_SEEDS) is None
    assert ("def transform(" in kernel.source) == bool(transforms)


@pytest.mark.compiler
@pytest.mark.parametrize("transforms", [0, 1])
@pytest.mark.parametrize("name", ["weights", "along columns", "gated"])
def test_compiles(name: str, transforms: int) -> None:
    found = compile_kernel(made(name, transforms).source)
    assert (found.stack_bytes, found.spill_loads, found.spill_stores) == (0, 0, 0)
    assert not found.overwritten_operands
    assert not found.early_arrivals


@pytest.mark.compiler
def test_no_release_of_the_compiler_overwrites_an_operand_that_a_product_reads(other_triton: str) -> None:
    # ptxas before 13.3 takes an operand's registers for the next one while a product still reads them.
    sources = [made(name, 0).source for name in ("weights", "scaled", "two consumers")]
    assert [found["overwritten_operands"] for found in compiled_by(other_triton, sources)] == [0, 0, 0]


@pytest.mark.slow
def test_mutants_of_a_transform_warpgroup_die() -> None:
    body, chosen = CASES["weights"]
    kernel = build(graph_of(body), replace(chosen, transforms=1), kib=64)  # few slots, which come round
    cases = [small_case(kernel)]
    begin = kernel.source[: kernel.source.index("def transform(")].count("\n")
    end = kernel.source[: kernel.source.index("def consumer(")].count("\n")
    # A second wait for one phase means the same, and so does an earlier return of what is in registers already.
    same = {"double-wait", "early-release"}
    own = [m for m in mutants(kernel.source) if begin < m.line <= end and m.kind not in same]
    assert len(own) >= 6
    for mutant in own:
        assert any(one.fault(mutant.source, SEEDS) for one in cases), f"{mutant.name} survives"


@pytest.mark.slow
@pytest.mark.parametrize("body", [_shifted, _outer])
def test_a_vector_along_rows_is_read_before_the_loop(body: Body) -> None:
    made = build(graph_of(body), structure(128, consumers=2))
    check_computes(made)
    check_shows(made, "mask=rows < row_extent", "mask=rows < row_extent - 1", 1)
