"""Thresholds from graph to numbers: a kernel that rounds to the other side is right, another limit is not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from emit_builds import build, case, graph_of, structure

from wsopt.errors import CheckError
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import evaluate, relative_error
from wsopt.interpret import execute
from wsopt.lowering.reduced import reduced
from wsopt.simulation import TOLERANCE, simulate


def product(g: GraphBuilder) -> Symbol:
    x, w = g.input("x", (2048, 1024), "bf16"), g.input("w", (1024, 1024), "bf16")
    return g.matmul(x, w, transpose_b=True, name="p")


def above(limit: float, dtype: str = "f32") -> Callable[[GraphBuilder], Symbol]:
    def body(g: GraphBuilder) -> Symbol:
        y = product(g)
        return g.cast(g.where(g.greater(y, limit), y, 0.0), dtype=dtype, name="y")

    return body


def test_a_kernel_with_another_limit_is_refused() -> None:
    made = build(graph_of(above(0.3, "bf16")), structure())
    found = simulate(made.graph, made.verified, made.source, 2)
    assert found.max_relative_error < 1e-2
    assert found.worst.share < 0.5
    assert made.source.count("0.3") == 1
    with pytest.raises(CheckError, match=r"output y on the CPU, seed 0: .*element \[\d+, \d+\] is 0, 0\.3"):
        simulate(made.graph, made.verified, made.source.replace("0.3", "0.4"), 2)


def test_a_kernel_whose_sums_fall_to_the_other_side_is_accepted() -> None:
    """The limit is put where the interpreter's sum and the reference's differ: by the norm alone this is an error."""
    plain = build(graph_of(lambda g: g.cast(product(g), dtype="f32", name="y")), structure())
    small = reduced(plain.graph, plain.verified.program.structure, min(plain.depth, 4) + 1)
    inputs = case(small).inputs
    meant = evaluate(small, inputs)["y"]
    found = execute(plain.source, inputs, seed=0, processors=2).outputs["y"]
    row, column = np.unravel_index(np.argmax(np.where(found > meant, meant, 0)), meant.shape)
    limit = float(meant[row, column])
    assert limit > 1

    made = build(graph_of(above(limit)), structure())
    again = reduced(made.graph, made.verified.program.structure, min(made.depth, 4) + 1)
    judged = case(again, inputs=inputs)
    flipped = execute(made.source, inputs, seed=0, processors=2).outputs["y"]
    expected = judged.referee.expected["y"]
    assert (expected.value[row, column], flipped[row, column]) == (0, found[row, column])
    assert relative_error(flipped, expected.value) > TOLERANCE[made.graph.type_of("y").dtype]
    assert judged.fault(made.source, 2) is None
    assert simulate(made.graph, made.verified, made.source, 2).max_relative_error < 1e-6
