"""Tensors may be called anything: Python's words, the kernel's own, and what it derives from other names."""

from __future__ import annotations

import pytest
from emit_builds import build, graph_of, small_case, structure
from golden_kernels import emitted

from wsopt.graph.builder import GraphBuilder, Symbol

# What x, w, b, r, the product, its sum with b, that with r, and the outputs are called.
NAMES = [
    "for gl ring tile x x_desc outputs lambda kernel",
    "x w b r y_desc row visit y z",
    "x x_desc x_ptr x_ring bf16_staging x_tile bf16_staging_0 y y_full",
    "RING_DEPTH TILE_ROWS run prepare SUBTILE_LAYOUT rows gl_ Y X_LAYOUT",
    "x X b B p P s y Y",
    "x w b r p p_0 p_0_to_1 y z",
    "x w b r r_tile b_tile low y z",
    "x w b r y_extents x_strides r_input y r_full",
    "device grid arguments triton tensors read name size z",
    "x w b r p h s run processors",
    "_1 _2 _ _4 _5 __1 _7 _8 tensor1",
]
STRUCTURES = {
    "subtiles": structure(columns=128, subtiles=4),
    "ping-pong": structure(consumers=2, ping_pong=True),
    "single": structure(persistent=False),
}


@pytest.mark.slow
@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("how", STRUCTURES)
def test_names(names: str, how: str) -> None:
    def body(g: GraphBuilder) -> tuple[Symbol, ...]:
        x, w, b, r, p, h, s, y, z = names.split()
        left, right = g.input(x, (1024, 512), "bf16"), g.input(w, (1024, 512), "bf16", constant=True)
        bias, full = g.input(b, (1024,), "f32"), g.input(r, (1024, 1024), "f32")
        biased = g.add(g.matmul(left, right, transpose_b=True, name=p), bias, name=h)
        total = g.add(full, biased, name=s)
        return g.cast(total, dtype="f32", name=y), g.cast(biased, dtype="bf16", name=z)

    kernel = build(graph_of(body), STRUCTURES[how])
    assert small_case(kernel).fault(kernel.source, 2) is None


@pytest.mark.parametrize("names", ["p p_0", "p p_partial", "p P", "a_desc y_desc"])
def test_names_of_two_products(names: str) -> None:
    def body(g: GraphBuilder) -> Symbol:
        x = g.input("x", (1024, 512), "bf16")
        a, b = (g.input(name, (1024, 512), "bf16", constant=True) for name in "ab")
        left, right = (
            g.matmul(x, w, transpose_b=True, name=n) for w, n in zip((a, b), names.split(), strict=True)
        )
        return g.cast(left * right, dtype="bf16", name="y")

    kernel = build(graph_of(body), structure(subtiles=2))
    assert small_case(kernel).fault(kernel.source, 2) is None


def test_held_vectors_have_an_ending_that_means_nothing_else() -> None:
    source = emitted("streamed_rows").source
    for name in ("weight", "bias"):
        assert f"{name}_raw = gl.load({name}_ptr + columns" in source
        assert f"{name}_value = {name}_raw.to(gl.float32)" in source
