"""The logarithm of a sum of exponentials as one operation: of rows that a block holds, and of longer ones."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import row_graphs
from emit_builds import build, case, graph_of

from wsopt.graph.reference import random_inputs
from wsopt.program.types import Sharing, Structure


@pytest.mark.parametrize(("columns", "tile"), [(512, 512), (33280, 4096)])
def test_rows_with_infinities_are_what_the_graph_means(columns: int, tile: int) -> None:
    s = Structure(2, tile, 1, 2, 4, Sharing.COOPERATIVE, True, False, 1, 1)
    made = build(graph_of(functools.partial(row_graphs.logarithms, columns=columns)), s)
    inputs = random_inputs(made.graph, 0)
    inputs["x"][1], inputs["x"][2, 7] = -np.inf, np.inf
    inputs["x"][3, : columns // 2] = -np.inf
    inputs["x"][4] = 300.0  # whose exponentials no f32 holds
    found = case(made.graph, inputs=inputs)
    assert found.referee.expected["lse"].value[:3, 0].tolist()[1:] == [-np.inf, np.inf]
    assert found.check(made.source, 0) is None
