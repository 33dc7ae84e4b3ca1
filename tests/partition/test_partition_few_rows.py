"""A few long rows in parts: the same results, and a cut where one block a row would leave most SMs idle."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import simulated

from wsopt.deadline import Deadline
from wsopt.errors import InfeasibleError, LoweringError, TimeOverError, UndecidedError
from wsopt.graph.builder import GraphBuilder
from wsopt.graph.needed import needed
from wsopt.graph.reference import evaluate, random_inputs
from wsopt.graph.types import Graph
from wsopt.machine.types import Machine
from wsopt.partition.cut import cut, cutter_of, settled
from wsopt.partition.few_rows import with_parts_of_rows
from wsopt.partition.make import build_cut, if_several_are_faster, is_weighed, one_or_several
from wsopt.partition.pieces import Piece
from wsopt.partition.prices import Level, Price, Prices


@pytest.fixture(scope="module", autouse=True)
def runs_that_are_known() -> Iterator[None]:
    """Runs that have a record are executed now and then only: what is asked here is which kernels a cut has."""
    with simulated.known_runs():
        yield


OPS = ("softmax", "logsumexp", "reduce_sum", "reduce_mean", "reduce_max", "reduce_min")


def rows(op: str, count: int, length: int, **attrs: object) -> Graph:
    g = GraphBuilder("rows")
    g.output(getattr(g, op)(g.mul(g.input("x", (1, count, length), "bf16"), 0.5), axis=2, name="y", **attrs))
    return g.build()


@pytest.mark.parametrize("op", OPS)
def test_the_results_are_the_same(op: str, h200: Machine) -> None:
    graph = rows(op, 3, 16384)
    written, inputs = with_parts_of_rows(graph, h200), random_inputs(graph, 0)
    x = inputs["x"].astype(np.float32)
    x[0, 1, 4096:8192] = -math.inf if op in ("softmax", "logsumexp") else x[0, 1, 4096:8192]
    x[0, 2] = -math.inf if op in ("softmax", "logsumexp") else x[0, 2]
    given = {"x": x.astype(inputs["x"].dtype)}
    assert written is not graph
    one, other = (evaluate(one, given)["y"] for one in (graph, written))
    assert one.shape == other.shape
    np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)


def outer(op: str, *shape: int, axis: int = 0) -> Graph:
    g = GraphBuilder("outer")
    g.output(getattr(g, op)(g.mul(g.input("x", shape, "bf16"), 0.5), axis=axis, name="y"))
    return g.build()


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    ("shape", "axis"), [((2048, 24), 0), ((2, 4096, 40), 1), ((1024, 3, 16), 0)], ids=str
)
def test_outer_axes_with_few_neighbours_are_in_parts_too(
    op: str, shape: tuple[int, ...], axis: int, h200: Machine
) -> None:
    graph = outer(op, *shape, axis=axis)
    written, inputs = with_parts_of_rows(graph, h200), random_inputs(graph, 0)
    assert written is not graph
    assert is_weighed(graph, h200)
    if op in ("softmax", "logsumexp"):
        inputs["x"][..., 1] = -math.inf
    one, other = (evaluate(one, inputs)["y"] for one in (graph, written))
    assert one.shape == other.shape
    np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(512, 64), (16384, 2112)], ids=str)
def test_outer_axes_that_are_short_or_have_bands_for_most_processors_stay_whole(
    shape: tuple[int, ...], h200: Machine
) -> None:
    graph = outer("softmax", *shape)
    assert with_parts_of_rows(graph, h200) is graph


@pytest.mark.parametrize("op", ["reduce_sum", "reduce_mean", "reduce_max", "reduce_min"])
@pytest.mark.parametrize(("shape", "axis"), [((50261,), 0), ((2, 100003), 1), ((4099, 24), 0)], ids=str)
def test_what_nothing_divides_has_a_rest_behind_its_parts(
    op: str, shape: tuple[int, ...], axis: int, h200: Machine
) -> None:
    graph = outer(op, *shape, axis=axis)
    written, inputs = with_parts_of_rows(graph, h200), random_inputs(graph, 0)
    inputs["x"][(*(slice(None),) * axis, -1)] = 3.0  # the rest counts
    slices = [node for node in written.nodes if node.op == "slice"]
    assert len(slices) == 2
    assert all(written.input(node.tensors[0]) for node in slices)
    one, other = (evaluate(one, inputs)["y"] for one in (graph, written))
    assert one.shape == other.shape
    np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-5)


@pytest.mark.solver
def test_a_softmax_of_a_batch_by_its_features_is_two_kernels(h200: Machine) -> None:
    found = build_cut(outer("softmax", 16384, 64), h200, use_cache=False)
    assert len(found.record.steps) == 2
    assert found.record.predicted_us < 12


@pytest.mark.solver
def test_parts_of_two_moments_read_their_input_once(h200: Machine) -> None:
    g = GraphBuilder("moments")
    x = g.input("x", (32768, 32), "f32")
    mean = g.reduce_mean(x, axis=0)
    g.output(g.sub(g.reduce_mean(x * x, axis=0), mean * mean, name="y"))
    found = build_cut(g.build(), h200, use_cache=False)
    assert [step.inputs.count("x") for step in found.record.steps] == [1, 0]


def variance(*shape: int, axis: int, total: str = "reduce_mean", keepdims: bool = True) -> Graph:
    """The variance of numbers far from zero, and its mean."""
    g = GraphBuilder("variance")
    x = g.input("x", shape, "f32") * 0.5 + 100.0
    mean = g.reduce_mean(x, axis=axis, keepdims=keepdims, name="mean")
    kept = [1 if dim == axis else extent for dim, extent in enumerate(shape)]
    apart = x - (mean if keepdims else g.reshape(mean, shape=kept))
    g.output(mean, getattr(g, total)(apart * apart, axis=axis, name="y"))
    return g.build()


@pytest.mark.parametrize("total", ["reduce_mean", "reduce_sum"])
@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize(("shape", "axis"), [((20000, 24), 0), ((3, 65536), 1), ((4096, 3, 64), 0)], ids=str)
def test_a_variance_is_of_its_parts_variances(
    shape: tuple[int, ...], axis: int, keepdims: bool, total: str, h200: Machine
) -> None:
    graph = variance(*shape, axis=axis, keepdims=keepdims, total=total)
    written, inputs = with_parts_of_rows(graph, h200), random_inputs(graph, 0)
    assert not any(node.op == "sub" and node.type.shape == shape for node in needed(written).nodes)
    ones, others = (evaluate(one, inputs) for one in (graph, written))
    for name in graph.outputs:
        assert ones[name].shape == others[name].shape
        np.testing.assert_allclose(others[name], ones[name], rtol=1e-4)


def test_enough_rows_are_in_parts_where_no_processor_holds_them(h200: Machine) -> None:
    graph = variance(1024, 131072, axis=1)
    assert with_parts_of_rows(graph, h200).type_of("y_inside").shape == (1024, 16, 1)
    held = variance(1024, 16384, axis=1)
    assert with_parts_of_rows(held, h200) is held


def test_differences_to_another_mean_are_no_variance(h200: Machine) -> None:
    g = GraphBuilder("moment")
    x, y = g.input("x", (2048, 131072), "bf16"), g.input("y", (2048, 131072), "bf16")
    apart = x - g.reduce_mean(y, axis=1, keepdims=True)
    g.output(g.reduce_mean(apart * apart, axis=1))
    graph = g.build()
    assert with_parts_of_rows(graph, h200) is graph


@pytest.mark.solver
def test_a_variance_reads_its_input_once(h200: Machine) -> None:
    found = build_cut(variance(20000, 64, axis=0), h200, use_cache=False)
    assert [step.inputs.count("x") for step in found.record.steps] == [1, 0]


def test_an_axis_that_is_kept_stays(h200: Machine) -> None:
    graph = rows("logsumexp", 3, 16384, keepdims=True)
    assert with_parts_of_rows(graph, h200).type_of("y") == graph.type_of("y")


@pytest.mark.parametrize(
    ("count", "length"), [(3, 8192), (3, 50261), (67, 32768)], ids=["short", "prime", "many"]
)
def test_other_rows_stay_whole(count: int, length: int, h200: Machine) -> None:
    graph = rows("softmax", count, length)
    assert with_parts_of_rows(graph, h200) is graph
    assert not is_weighed(graph, h200)


@pytest.mark.parametrize(("length", "parts"), [(65536, 64), (128256, 32), (30000, 25), (50257, 29)], ids=str)
def test_rows_that_powers_of_two_do_not_divide_have_other_parts(
    length: int, parts: int, h200: Machine
) -> None:
    """Whole units where there are enough, else what divides the rows."""
    graph = rows("softmax", 1, length)
    assert with_parts_of_rows(graph, h200).type_of("y_parts").shape[2] == parts


def test_parts_are_for_all_processors(h200: Machine) -> None:
    graph = rows("reduce_max", 4, 65536)
    parts = {
        n: with_parts_of_rows(graph, replace(h200, sm_count=n)).type_of("y_parts").shape[2] for n in (16, 132)
    }
    assert parts == {16: 8, 132: 64}


@pytest.mark.solver
def test_a_cut_of_parts_is_chosen_by_its_time(h200: Machine) -> None:
    graph = rows("logsumexp", 8, 131072)
    assert is_weighed(graph, h200)
    found = build_cut(graph, h200, use_cache=False)
    assert len(found.record.steps) == 2
    whole = rows("logsumexp", 66, 16384)
    assert len(build_cut(whole, h200, use_cache=False).record.steps) == 1


@pytest.mark.parametrize(
    ("bound", "whole", "steps", "made"),
    [(10.0, 10.0, 2, (2,)), (3.0, math.inf, 2, (1, 1, 2)), (3.0, 3.0, 1, (1,)), (3.0, 5.0, 2, (1, 1, 2))],
    ids=["too slow by its bound", "rejected", "faster", "too slow once it is made"],
)
def test_kernels_are_made_of_ways_to_write_a_graph_that_may_be_the_fastest(
    bound: float,
    whole: float,
    steps: int,
    made: tuple[int, ...],
    h200: Machine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two parts take 2 us each; a kernel of whole rows takes at least `bound`, and `whole` once it is made."""
    graph, asked = rows("logsumexp", 8, 131072), list[int]()

    def priced(pieces: dict[str, Piece], level: Level, us: float) -> dict[str, Price]:
        ends = {key: (piece.graph.inputs[0].name, *piece.graph.outputs) for key, piece in pieces.items()}
        return {key: Price(us if ends[key] == ("x", "y") else 2.0, level) for key in pieces}

    def solved(prices: Prices, pieces: dict[str, Piece]) -> dict[str, Price]:
        asked.append(len(pieces))
        return priced(pieces, Level.SOLVED, whole)

    monkeypatch.setattr(Prices, "_bounded", lambda prices, pieces: priced(pieces, Level.BOUND, bound))
    monkeypatch.setattr(Prices, "_solved", solved)
    prices = Prices(h200)
    found = settled([cutter_of(one, prices) for one in (graph, with_parts_of_rows(graph, h200))])
    assert (len(found.pieces), tuple(asked)) == (steps, made)


def over_two_axes(*shape: int) -> Graph:
    g = GraphBuilder("total")
    g.output(g.reduce_sum(g.reduce_sum(g.input("x", shape, "bf16"), axis=-1), axis=-1, name="y"))
    return g.build()


@pytest.mark.solver
def test_a_sum_over_two_axes_is_no_row_of_one_block(h200: Machine) -> None:
    graph = over_two_axes(512, 1024)
    assert is_weighed(graph, h200)
    found = build_cut(graph, h200, use_cache=False)
    assert [step.outputs for step in found.record.steps] == [("reduce_sum_0",), ("y",)]


def test_sums_over_two_axes_of_which_all_processors_have_some_are_one_kernel(h200: Machine) -> None:
    assert not is_weighed(over_two_axes(264, 128, 256), h200)


def test_several_are_taken_where_no_structure_of_one_fits() -> None:
    cut = cast(Any, SimpleNamespace(record=SimpleNamespace(steps=(None, None), predicted_us=10.0)))

    def one(error: Exception) -> Any:
        raise error

    assert if_several_are_faster(lambda: one(InfeasibleError("spills")), lambda: cut, lambda: 1.0) is cut
    with pytest.raises(UndecidedError):
        if_several_are_faster(lambda: one(UndecidedError("late")), lambda: cut, lambda: 1.0)


@pytest.mark.solver
@pytest.mark.compiler
def test_rows_in_parts_are_taken_where_the_compiler_rejects_whole_ones(h200: Machine) -> None:
    """A row of 30,000 elements is held whole by no consumer without spills."""
    g = GraphBuilder("rows")
    g.output(g.cast(g.softmax(g.input("x", (1, 30000), "f16")), "f16", name="y"))
    graph = g.build()
    with pytest.raises(LoweringError, match="cannot be cut"):
        cut(graph, h200, use_cache=False)
    found = build_cut(graph, h200, use_cache=False)
    assert len(found.record.steps) == 3


@pytest.mark.parametrize(("least", "made"), [(20.0, 0), (11.0, 1)])
def test_one_kernel_is_not_made_where_its_least_time_is_longer(least: float, made: int) -> None:
    steps, asked = (None, None), list[None]()
    cut = cast(Any, SimpleNamespace(record=SimpleNamespace(steps=steps, predicted_us=10.0)))

    def one() -> Any:
        asked.append(None)
        return SimpleNamespace(summary={"predicted_us": 12.0})

    assert if_several_are_faster(one, lambda: cut, lambda: least) is cut
    assert len(asked) == made


def asked(
    graph: Graph, machine: Machine, seconds: float | None, *, late: bool = False
) -> tuple[str, list[str]]:
    """What is built of a graph whose cut takes 10 us, and its one kernel 9, and who was asked within the seconds."""
    seen = list[str]()

    def one(limit: float | None) -> Any:
        assert (limit is None) == (seconds is None)
        seen.append("one")
        return SimpleNamespace(summary={"predicted_us": 9.0}, what="one")

    def several(limit: Deadline) -> Any:
        assert limit.seconds == (math.inf if seconds is None else seconds / 2)
        seen.append("several")
        if late:
            raise TimeOverError("late")
        return SimpleNamespace(record=SimpleNamespace(steps=(None, None), predicted_us=10.0), what="several")

    return cast(Any, one_or_several(graph, machine, one, several, seconds=seconds)).what, seen


def test_few_long_rows_are_cut_in_a_limited_time_too(h200: Machine) -> None:
    graph = over_two_axes(4096, 4096)
    for seconds in (None, 60.0):
        assert asked(graph, h200, seconds) == ("several", ["several"]), "one takes more than 10 us at least"
    assert asked(graph, h200, 60.0, late=True) == ("one", ["several", "one"])
    assert asked(over_two_axes(264, 128, 256), h200, 60.0) == ("one", ["one"])


def test_the_time_is_not_begun_anew_for_several_where_one_fits_none(h200: Machine) -> None:
    began, given = list[float](), list[Deadline]()

    def one(limit: float | None) -> Any:
        assert limit == 60
        began.append(time.monotonic())
        raise InfeasibleError("spills")

    def several(deadline: Deadline) -> Any:
        given.append(deadline)

    one_or_several(over_two_axes(264, 128, 256), h200, one, several, seconds=60)
    assert given[0].seconds == 60
    assert given[0].began <= began[0]
