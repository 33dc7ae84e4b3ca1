"""Products of two operands of i8 are products of the same numbers in bf16, where fractions are made of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from wsopt.errors import LoweringError
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import evaluate, random_inputs
from wsopt.graph.types import Graph
from wsopt.machine.types import Machine
from wsopt.partition.cut import check_cuttable
from wsopt.partition.make import build_cut
from wsopt.partition.whole_products import with_wide_products

Of = Callable[[GraphBuilder, Symbol], Symbol]


def product(of: Of, rows: int = 64, columns: int = 48, inner: int = 4096) -> Graph:
    g = GraphBuilder("whole")
    x, w = g.input("x", (rows, inner), "i8"), g.input("w", (columns, inner), "i8", constant=True)
    g.output(of(g, g.matmul(x, w, transpose_b=True)))
    return g.build()


def scaled(g: GraphBuilder, sums: Symbol) -> Symbol:
    rows, columns = sums.shape
    factors = g.input("sx", (rows, 1), "f32") * g.input("sw", (columns,), "f32")
    return g.cast(g.cast(sums, "f32") * factors + g.input("b", (columns,), "bf16"), "bf16", name="y")


WRITTEN: dict[str, Of] = {
    "scaled": scaled,
    "scaled as they are": lambda g, sums: g.mul(sums, g.input("sx", (64, 1), "f32"), name="y"),
    "with a bias of whole numbers": lambda g, sums: g.cast(
        sums + g.input("b", (48,), "i32"), "f32", name="y"
    ),
    "seen in another shape": lambda g, sums: g.cast(g.reshape(sums, shape=(4, 16, 48)), "f32", name="y"),
}


@pytest.mark.parametrize("form", WRITTEN)
def test_sums_that_are_read_as_fractions_are_of_bf16(form: str, h200: Machine) -> None:
    graph = product(WRITTEN[form])
    written, inputs = with_wide_products(graph, h200), random_inputs(graph, 0)
    (found,) = (node for node in written.nodes if node.op == "matmul")
    assert {written.type_of(name).dtype.value for name in found.tensors} == {"bf16"}
    one, other = (evaluate(one, inputs)["y"].astype(np.float64) for one in (graph, written))
    np.testing.assert_allclose(other, one, rtol=1e-2, atol=1e-6 * np.abs(one).max())
    check_cuttable(graph, h200)


STAY: dict[str, Of] = {
    "given out": lambda g, sums: sums,
    "compared": lambda g, sums: g.cast(sums > 0, "bf16"),
}


@pytest.mark.parametrize("form", STAY)
def test_others_are_refused(form: str, h200: Machine) -> None:
    graph = product(STAY[form])
    assert with_wide_products(graph, h200) is graph
    with pytest.raises(LoweringError, match="operands of i8 are not lowered"):
        check_cuttable(graph, h200)


@pytest.mark.solver
def test_weights_are_read_as_they_lie(h200: Machine) -> None:
    found = build_cut(product(scaled, 64, 256, 512), h200, use_cache=False)
    assert [("x" in step.inputs, "w" in step.inputs) for step in found.record.steps] == [
        (True, False), (False, True),
    ]  # fmt: skip
