"""A few random graphs, always the same: each compiles or is refused. `make fuzz` tries as many as one likes."""

from __future__ import annotations

import pytest
from fuzz_graphs import FAMILIES, random_graph
from fuzz_judge import COMPILED, REFUSED, Verdict, Worker, judge
from fuzz_shrink import shrunk
from fuzz_table import Case, feature_table, reasons

from wsopt.graph.parse import parse_graph

SEED = 0
COMPILES = (1, 8, 10, 12, 18, 25, 26, 42, 45)
REFUSALS = (23, 28, 51)


@pytest.mark.solver
@pytest.mark.compiler
@pytest.mark.parametrize("index", COMPILES)
def test_a_random_graph_compiles(index: int) -> None:
    found = judge(random_graph(SEED, index).data)
    assert found.status == COMPILED, found.text


@pytest.mark.parametrize("index", REFUSALS)
def test_a_random_graph_is_refused_before_the_search(index: int) -> None:
    found = judge(random_graph(SEED, index).data)
    assert found.status == REFUSED, found.text


def test_a_graph_follows_from_seed_and_index() -> None:
    assert random_graph(3, 14) == random_graph(3, 14)
    assert random_graph(3, 14).data["nodes"] != random_graph(3, 15).data["nodes"]


def test_graphs_are_well_formed_and_of_every_family() -> None:
    made = [random_graph(SEED, index) for index in range(300)]
    for index, one in enumerate(made):
        parse_graph(one.data, f"graph {index}")
    assert frozenset(FAMILIES) <= frozenset().union(*(one.features for one in made))


def test_a_worker_that_dies_or_hangs_is_a_finding_and_is_replaced() -> None:
    worker, refused = Worker(limit_s=60.0), random_graph(SEED, REFUSALS[0]).data
    worker.give({"format": "no graph"})
    assert worker.answer().status == 2
    worker.process.kill()
    worker.process.join()
    died = worker.answer()
    assert (died.status, died.is_finding) == (-1, True)
    assert "the process ended" in died.text
    worker.limit_s = 0.0
    worker.give(refused)
    hung = worker.answer()
    assert (hung.status, hung.text) == (-1, "no end within 0 s")
    worker.limit_s = 60.0
    worker.give(refused)
    assert worker.answer().status == REFUSED
    worker.end()


def test_a_finding_is_made_small() -> None:
    data = random_graph(SEED, COMPILES[0]).data
    small = shrunk(data, lambda graph: any(node["op"] == "softmax" for node in graph["nodes"]))
    ops = [node["op"] for node in small["nodes"]]
    assert ops.count("softmax") == 1
    assert len(ops) < len(data["nodes"])
    assert {"where", "mul"}.isdisjoint(ops)


def test_the_table_counts_features_and_groups_reasons() -> None:
    cases = [
        Case(0, frozenset({"mask"}), Verdict(COMPILED, "", 1.0)),
        Case(1, frozenset({"mask"}), Verdict(REFUSED, "node relu_0: relu on i32 is not lowered", 1.0)),
        Case(2, frozenset({"batch"}), Verdict(REFUSED, "node y: relu on i32 is not lowered", 1.0)),
        Case(3, frozenset({"batch"}), Verdict(4, "wrong", 1.0)),
    ]
    lines = {tuple(line.split()) for line in feature_table(cases).splitlines()}
    assert {
        ("(all)", "4", "1", "2", "1"),
        ("mask", "2", "1", "1", "0"),
        ("batch", "2", "0", "1", "1"),
    } <= lines
    assert reasons(cases).split(maxsplit=1) == ["2", "node _: relu on i32 is not lowered"]
