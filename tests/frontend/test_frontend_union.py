"""Sets that are merged hold what they should, and are known by one member for as long as they stay the same."""

from __future__ import annotations

import random

import networkx as nx

from wsopt.frontend.union import UnionFind


def test_what_was_never_merged_is_alone() -> None:
    sets = UnionFind[str]()
    assert sets["a"] == "a"
    sets.union()
    sets.union("a")
    assert [sets[one] for one in "ab"] == ["a", "b"]


def test_the_largest_gives_its_name_and_of_equals_the_first() -> None:
    sets = UnionFind[str]()
    sets.union("b", "a")
    assert [sets[one] for one in "ab"] == ["b", "b"]
    sets.union("c", "a")
    assert [sets[one] for one in "abc"] == ["b", "b", "b"]
    sets.union("d", "e", "f", "g")
    sets.union("c", "g")
    assert {sets[one] for one in "abcdefg"} == {"d"}


def test_merged_at_random_they_are_the_components_of_a_graph() -> None:
    chosen = random.Random(0)
    for _ in range(50):
        sets, graph = UnionFind[int](), nx.Graph()
        graph.add_nodes_from(range(20))
        for _ in range(12):
            together = [chosen.randrange(20) for _ in range(chosen.randint(1, 3))]
            sets.union(*together)
            nx.add_path(graph, together)
        for component in nx.connected_components(graph):
            (name,) = {sets[one] for one in component}
            assert name in component
