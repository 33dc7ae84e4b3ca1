"""Pieces ask for bits that depend on no timing where torch is told to use deterministic algorithms."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch_pieces import Counted, fresh  # noqa: E402

from wsopt.torch import compiler  # noqa: E402

_fresh = pytest.fixture(autouse=True)(fresh)


@pytest.mark.torch
def test_pieces_are_deterministic_where_torch_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """And compiled anew where that is switched."""
    seen = list[bool]()
    before = compiler.operator

    def operator(name: str, graph: Any, call: Any) -> Any:
        seen.append(graph.deterministic)
        return before(name, graph, call)

    monkeypatch.setattr(compiler, "operator", operator)
    model, x = torch.nn.Linear(64, 96).bfloat16().eval(), torch.randn(32, 64).bfloat16()
    counted = Counted(model)
    found = list[torch.Tensor]()
    try:
        for wanted in (False, True, False):
            torch.use_deterministic_algorithms(wanted)
            with torch.no_grad():
                found.append(counted.call(x))
    finally:
        torch.use_deterministic_algorithms(False)
    assert seen == [False, True]
    assert counted.times == 2
    assert all(torch.equal(one, found[0]) for one in found)
