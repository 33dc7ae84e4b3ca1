"""Pieces are built in processes of their own, simulated, and kept in the cache on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from wsopt.build import Build
from wsopt.errors import InternalError
from wsopt.graph import DType, Graph, GraphBuilder
from wsopt.graph.types import Input, TensorType
from wsopt.pool import local
from wsopt.torch.builds import build_all
from wsopt.torch.outcomes import Refusal, Wanted, keep_bound, known


def piece(rows: int = 64) -> Graph:
    """A product of few extents, of which there are few structures."""
    g = GraphBuilder("piece")
    x, w = g.input("i0", (rows, 64), "bf16"), g.input("i1", (64, 64), "bf16", constant=True)
    g.output(g.cast(g.relu(g.matmul(x, w, transpose_b=True)), dtype="bf16", name="n2"))
    return g.build()


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WSOPT_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.slow
def test_what_has_no_kernel_has_the_reason() -> None:
    g = GraphBuilder("piece")
    x = g.input("i0", (64, 64), "bf16")
    g.output(g.pow(x, x, name="n0"))
    (found,) = build_all([Wanted(g.build())], "h200", 1)
    assert isinstance(found, Refusal)
    assert "pow of these operands is not lowered" in found.text
    assert known(Wanted(g.build()), "h200") == found


@pytest.mark.slow
def test_what_no_schedule_beats_is_not_built() -> None:
    (found,) = build_all([Wanted(piece(), below_us=1.0)], "h200", 1)
    assert isinstance(found, Refusal)
    assert found.bound_us is not None
    assert found.bound_us > 1.0
    assert known(Wanted(piece(), below_us=1.0), "h200") == found
    assert known(Wanted(piece(), below_us=found.bound_us + 1), "h200") is None
    assert known(Wanted(piece()), "h200") is None


@pytest.mark.slow
def test_a_process_that_fails_is_our_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_environment", lambda: {"PYTHONPATH": "/nowhere"})
    monkeypatch.setattr(local.sys, "executable", "/bin/false")
    with pytest.raises(InternalError, match="ended with: status 1"):
        build_all([Wanted(piece())], "h200", 1)


@pytest.mark.slow
def test_a_graph_that_is_none_is_our_fault() -> None:
    broken = Graph("piece", "", (Input("i0", TensorType((4, 4), DType.BF16)),), (), ("i0", "i0"))
    with pytest.raises(InternalError, match="is refused"):
        build_all([Wanted(broken)], "h200", 1)


@pytest.mark.torch
@pytest.mark.slow
def test_bounds_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what a build has found out since does not count among them: a graph is cut alike in every process."""
    pytest.importorskip("torch")
    from wsopt.torch import choose

    g = GraphBuilder("piece")
    g.output(g.softmax(g.input("i0", (4096, 1024), "bf16"), name="n0"))
    graph = g.build()
    first = choose._least_us(graph, "h200", 1e6)
    monkeypatch.setattr(choose.Search, "least_bound_us", lambda _: pytest.fail("bounds were found again"))
    keep_bound(graph, "h200", 2 * first)
    assert choose._least_us(graph, "h200", 1e6) == first


@pytest.mark.solver
@pytest.mark.compiler
def test_a_build_is_made_once_and_then_found(monkeypatch: pytest.MonkeyPatch) -> None:
    first = build_all([Wanted(piece()), Wanted(piece(72))], "h200", 2)
    assert all(isinstance(one, Build) and one.seconds > 0 for one in first)
    monkeypatch.setattr(local.subprocess, "run", lambda *_args, **_how: pytest.fail("a process was started"))
    second = build_all([Wanted(piece()), Wanted(piece(72))], "h200", 2)
    assert [one.files for one in second if isinstance(one, Build)] == [
        one.files for one in first if isinstance(one, Build)
    ]
    assert all(isinstance(one, Build) and one.summary["verified"]["interpreter"] for one in second)


@pytest.mark.solver
@pytest.mark.compiler
@pytest.mark.torch
def test_pieces_are_simulated_before_they_are_computed() -> None:
    torch = pytest.importorskip("torch")
    from wsopt.torch import explain

    weight = torch.randn(128, 128, dtype=torch.bfloat16)

    def model(x: object) -> object:
        return torch.relu(x @ weight.T)

    options = {"execute": "simulation", "take": "all", "rest": "eager"}
    report = explain(model, torch.randn(256, 128, dtype=torch.bfloat16), options=options)
    (line,) = report.taken
    assert line.judged.build is not None
    assert line.judged.build.summary["verified"]["interpreter"]["seeds"] == 20
    assert "predicted" in str(report)
