"""A report tells of everything that is in no piece why: what Dynamo did not trace, and what is beside the pieces."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch import Tensor, nn  # noqa: E402
from torch_pieces import OPTIONS, fresh  # noqa: E402

from wsopt.torch import explain  # noqa: E402

B = torch.bfloat16

_fresh = pytest.fixture(autouse=True)(fresh)


def test_what_dynamo_does_not_trace_is_told() -> None:
    layer = nn.GRU(64, 64, dtype=B)
    report = explain(layer, torch.randn(4, 2, 64, dtype=B), options=OPTIONS)
    assert report.graphs == 0
    ((why, count),) = report.breaks
    assert "GRU" in why
    assert "Hint" not in why
    assert count == 1
    assert str(report).splitlines() == [
        "no graph was compiled, and so there are no pieces",
        "not traced by Dynamo:",
        f"  1 x {why}",
    ]


def test_breaks_of_another_model_are_not_told() -> None:
    explain(nn.GRU(64, 64, dtype=B), torch.randn(4, 2, 64, dtype=B), options=OPTIONS)
    report = explain(nn.Linear(64, 64, dtype=B), torch.randn(8, 64, dtype=B), options=OPTIONS)
    assert report.breaks == ()
    assert "Dynamo" not in str(report)


def test_what_a_product_reads_has_the_reason_why_it_is_apart() -> None:
    """A basis of functions in front of a product: its kernel would want another shape of what it computes."""

    def model(x: Tensor, w: Tensor) -> Tensor:
        basis = torch.exp(-((x[:, :, None] - torch.linspace(-2, 2, 8, dtype=B)) ** 2))
        return basis.flatten(1) @ w

    report = explain(model, torch.randn(32, 16, dtype=B), torch.randn(128, 64, dtype=B), options=OPTIONS)
    told = dict(report.left)
    assert any(why.startswith("aten.exp.default: ") and "reshape" in why for why in told)
    assert all("reshape" in why for why in told)


def test_elements_alone_begin_no_piece() -> None:
    report = explain(lambda x: torch.exp(x) * x, torch.randn(32, 16, dtype=B), options=OPTIONS)
    ((why, count),) = report.left
    assert "arithmetic of elements alone" in why
    assert count == 2


def test_a_model_that_is_taken_whole_leaves_nothing() -> None:
    report = explain(nn.Linear(64, 64, dtype=B), torch.randn(8, 64, dtype=B), options=OPTIONS)
    assert report.left == ()
