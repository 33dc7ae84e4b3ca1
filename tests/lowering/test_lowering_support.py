"""Which operations some kernel takes: what is tried of each, and that a refusal counts."""

from __future__ import annotations

import pytest

from wsopt.errors import LoweringError
from wsopt.graph.ops import OPS
from wsopt.graph.types import Graph
from wsopt.lowering import support
from wsopt.machine import Machine


@pytest.mark.parametrize("op", OPS)
def test_every_operation_is_tried(op: str, h200: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Graph] = []

    def refuse(graph: Graph) -> None:
        tried.append(graph)
        raise LoweringError("no")

    monkeypatch.setattr(support, "find_region", refuse)
    assert not support.is_lowered(op, h200)
    assert tried
    for graph in tried:
        wanted, live = set(graph.outputs), set()
        for node in reversed(graph.nodes):
            if node.name in wanted:
                live.add(node.op)
                wanted.update(node.tensors)
        assert op in live


def test_what_is_taken(h200: Machine) -> None:
    assert [op for op in OPS if not support.is_lowered(op, h200)] == ["scatter_add"]
