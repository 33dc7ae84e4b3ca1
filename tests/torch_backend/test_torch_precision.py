"""Products of f32 are pieces where torch may multiply in tf32, by either of its settings, and are left to it else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch_pieces import fresh, with_pieces  # noqa: E402

from wsopt.runtime.torch_reference import exact_products, multiplies_in_tf32  # noqa: E402
from wsopt.torch import compiler, explain  # noqa: E402

_fresh = pytest.fixture(autouse=True)(fresh)

OPTIONS = {"execute": "reference", "rest": "eager", "take": "all"}
MATMUL = torch.backends.cuda.matmul


@contextmanager
def allowed(setting: str) -> Iterator[None]:
    """While this lasts, torch may multiply in tf32, and the setting says so."""
    try:
        if setting == "newer":
            MATMUL.fp32_precision = "tf32"
        else:
            torch.set_float32_matmul_precision("high")
        yield
    finally:
        MATMUL.fp32_precision = "ieee"
        torch.set_float32_matmul_precision("highest")


def linear() -> tuple[Any, Any]:
    torch.manual_seed(0)
    return torch.nn.Linear(256, 128).eval(), torch.randn(64, 256)


@pytest.mark.torch
def test_products_in_f32_are_left_to_torch() -> None:
    model, x = linear()
    with torch.no_grad():
        told = str(explain(model, x, options=OPTIONS))
    assert not multiplies_in_tf32()
    assert told.startswith("0 pieces")


@pytest.mark.torch
@pytest.mark.parametrize("setting", ["older", "newer"])
def test_products_in_tf32_are_pieces(setting: str) -> None:
    model, x = linear()
    with torch.no_grad(), allowed(setting):
        told = str(explain(model, x, options=OPTIONS))
        fresh_call = with_pieces(model)
        error = (fresh_call(x) - model(x)).abs().max().item()
    assert "100.0% of the operations of products" in told
    assert 0 < error < 5e-3, "operands have 10 bits behind the point"


@pytest.mark.torch
def test_what_is_compiled_is_compiled_anew_where_that_is_switched(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = linear()
    seen, before = list[object](), compiler.operator

    def operator(name: str, graph: Any, call: Any) -> Any:
        seen.append(next(node.attr("precision", str) for node in graph.nodes if node.op == "matmul"))
        return before(name, graph, call)

    monkeypatch.setattr(compiler, "operator", operator)
    called = with_pieces(model)
    with torch.no_grad():
        exact = called(x)
        with allowed("older"):
            rounded = called(x)
        again = called(x)
    assert seen == ["tf32"]
    assert torch.equal(exact, again)
    assert not torch.equal(exact, rounded)


@pytest.mark.torch
@pytest.mark.parametrize("setting", ["older", "newer"])
def test_a_reference_is_exact_and_leaves_the_setting(setting: str) -> None:
    with allowed(setting):
        assert multiplies_in_tf32()
        with exact_products():
            assert not multiplies_in_tf32()
        assert multiplies_in_tf32()
        assert MATMUL.fp32_precision == "tf32"
