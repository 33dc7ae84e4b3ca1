"""Running sums of rows that no SM holds are made of those of parts, and mean what they meant."""

from __future__ import annotations

import math

import numpy as np
import pytest

from wsopt.errors import LoweringError
from wsopt.graph.builder import GraphBuilder
from wsopt.graph.reference import evaluate, random_inputs
from wsopt.graph.types import Graph
from wsopt.machine.types import Machine
from wsopt.partition.cut import check_cuttable
from wsopt.partition.make import build_cut
from wsopt.partition.running_sums import with_parts_of_running_sums


def sums(*shape: int, axis: int = -1) -> Graph:
    g = GraphBuilder("sums")
    g.output(g.cumsum(g.exp(g.input("x", shape, "f32")), axis=axis % len(shape), name="y"))
    return g.build()


@pytest.mark.parametrize(
    ("shape", "axis"), [((3, 100000), 1), ((65536, 24), 0), ((2, 40000, 3), 1), ((1 << 18,), 0)], ids=str
)
def test_running_sums_begin_with_the_parts_before(shape: tuple[int, ...], axis: int, h200: Machine) -> None:
    graph = sums(*shape, axis=axis)
    written, inputs = with_parts_of_running_sums(graph, h200), random_inputs(graph, 0)
    assert written is not graph
    one, other = (evaluate(one, inputs)["y"] for one in (graph, written))
    assert one.shape == other.shape
    np.testing.assert_allclose(other, one, rtol=1e-4)
    check_cuttable(graph, h200)


def test_an_infinity_counts_from_its_place_on(h200: Machine) -> None:
    graph = sums(1, 100000)
    inputs = random_inputs(graph, 0)
    inputs["x"][0, 50001] = math.inf
    one, other = (evaluate(one, inputs)["y"] for one in (graph, with_parts_of_running_sums(graph, h200)))
    assert np.isinf(other[0, 50001:]).all()
    np.testing.assert_allclose(other[0, :50001], one[0, :50001], rtol=1e-4)


def test_rows_that_are_held_stay_whole(h200: Machine) -> None:
    graph = sums(4096, 4096)
    assert with_parts_of_running_sums(graph, h200) is graph


def test_lengths_that_nothing_divides_are_refused(h200: Machine) -> None:
    graph = sums(3, 100003)
    assert with_parts_of_running_sums(graph, h200) is graph
    with pytest.raises(LoweringError, match="split the axis in two"):
        check_cuttable(graph, h200)


@pytest.mark.solver
def test_the_elements_are_read_twice_and_written_once(h200: Machine) -> None:
    found = build_cut(sums(65536, 64, axis=0), h200, use_cache=False)
    assert [step.inputs.count("x") for step in found.record.steps] == [1, 0, 1]
