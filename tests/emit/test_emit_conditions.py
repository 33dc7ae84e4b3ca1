"""Truth values as outputs: bytes, of which TMA has no map, behind products, in rings of rows, and one a row."""

from __future__ import annotations

import pytest
from emit_builds import Body, check_computes, check_shows, kernels_of, structure

from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.program.types import Sharing, Structure


def positive(g: GraphBuilder) -> Symbol:
    x, w = g.input("x", (256, 128), "bf16"), g.input("w", (256, 128), "bf16")
    return g.greater(g.matmul(x, w, transpose_b=True, name="p"), 0.0, name="y")


def both(g: GraphBuilder) -> Symbol:
    """Truth values of truth values."""
    a, b = (g.input(name, (45, 512), "bool") for name in "ab")
    return g.logical_and(a, g.logical_not(b), name="y")


def largest(g: GraphBuilder) -> tuple[Symbol, Symbol]:
    """Which elements are their row's largest, and whether that is a positive number."""
    x = g.input("x", (45, 512), "f32")
    most = g.reduce_max(x, axis=1, keepdims=True)
    return g.equal(x, most, name="y"), g.greater(most, 0.0, name="z")


def rows(rows: int, columns: int) -> Structure:
    return Structure(rows, columns, 1, 2, 4, Sharing.COOPERATIVE, True, False, 1, 1)


CASES: dict[str, tuple[Body, Structure]] = {
    "positive": (positive, structure(128, 64, 1)),
    "both": (both, rows(4, 512)),
    "largest": (largest, rows(4, 512)),
}
emitted = kernels_of(CASES)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_it_computes_what_the_graph_means(name: str) -> None:
    check_computes(emitted(name))


def test_a_kernel_takes_them_as_bytes() -> None:
    source = emitted("positive").source
    assert '"y": (torch.bool, 2)' in source
    assert "triton.reinterpret(y, gl.int8)" in source


def test_a_run_shows_that_they_are_the_other_ones() -> None:
    check_shows(emitted("positive"), " > 0.0", " <= 0.0")
