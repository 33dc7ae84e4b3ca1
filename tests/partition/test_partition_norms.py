"""Layer norms of rows that no SM holds, written out; and graphs of which no structure of one kernel fits."""

from __future__ import annotations

import numpy as np
import pytest

from wsopt.errors import InfeasibleError, LoweringError, UndecidedError
from wsopt.graph.builder import GraphBuilder
from wsopt.graph.reference import evaluate, random_inputs
from wsopt.graph.types import Graph
from wsopt.machine.types import Machine
from wsopt.partition.accept import refusal_of
from wsopt.partition.cut import check_cuttable
from wsopt.partition.make import unless_infeasible
from wsopt.partition.norms import with_norms


def norms(columns: int) -> Graph:
    """A layer norm of rows behind another one of short rows."""
    g = GraphBuilder("norms")
    x, short = g.input("x", (3, columns), "f32"), g.input("short", (3, 512), "f32")
    weight, bias = (g.input(name, (columns,), "f32", constant=True) for name in ("weight", "bias"))
    few = g.layer_norm(short, *(g.slice(one, stop=512) for one in (weight, bias)), name="few")
    g.output(g.layer_norm(x, weight, bias, eps=1e-3, name="y"), few)
    return g.build()


def test_a_norm_of_rows_that_no_kernel_holds_is_written_out(h200: Machine) -> None:
    graph = norms(40001)
    written, inputs = with_norms(graph, h200), random_inputs(graph, 0)
    assert [node.name for node in written.nodes if node.op == "layer_norm"] == ["few"]
    same = zip(evaluate(written, inputs).values(), evaluate(graph, inputs).values(), strict=True)
    for one, other in same:
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    assert with_norms(written, h200) is written
    short = norms(1024)
    assert with_norms(short, h200) is short


def test_such_a_norm_is_cut_into_kernels(h200: Machine) -> None:
    g = GraphBuilder("long")
    x = g.input("x", (33, 100001), "f32")
    weight, bias = (g.input(name, (100001,), "f32", constant=True) for name in ("weight", "bias"))
    g.output(g.layer_norm(x, weight, bias, name="y"))
    assert "no SM holds" in refusal_of(g.build(), h200)
    check_cuttable(g.build(), h200)


def test_several_kernels_are_asked_for_where_no_structure_of_one_fits() -> None:
    def refuses(error: Exception) -> str:
        raise error

    none, open_ones = InfeasibleError("no structure fits"), UndecidedError("some are open")
    assert unless_infeasible(lambda: "one", lambda: "several") == "one"
    assert unless_infeasible(lambda: refuses(none), lambda: "several") == "several"
    with pytest.raises(InfeasibleError, match="no structure fits"):
        unless_infeasible(lambda: refuses(none), lambda: refuses(LoweringError("cannot be cut")))
    with pytest.raises(UndecidedError, match="some are open"):
        unless_infeasible(lambda: refuses(open_ones), lambda: "several")
