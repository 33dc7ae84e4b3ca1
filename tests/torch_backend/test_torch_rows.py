"""What a norm or a softmax alone reads is computed in its kernel, and is neither written nor read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch import Tensor  # noqa: E402
from torch.nn.functional import gelu, layer_norm, rms_norm  # noqa: E402
from torch_pieces import fresh, with_pieces  # noqa: E402

from wsopt.torch.compiler import watching  # noqa: E402

B = torch.bfloat16


_fresh = pytest.fixture(autouse=True)(fresh)

ROWS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "scores with a mask": lambda x, y: torch.softmax(x * 0.125 + y, -1),
    "scores that are filled": lambda x, y: torch.softmax((x * 0.125).masked_fill(y < 0, -1e9), -1),
    "a sum that is read before and behind": lambda x, y: layer_norm(x + y, (128,)) + x,
    "a gated norm": lambda x, y: rms_norm(x * torch.sigmoid(y), (128,)),
    "a chain": lambda x, y: layer_norm(gelu(x) * y, (128,)),
}


@pytest.mark.parametrize("form", ROWS)
def test_what_rows_alone_read_is_in_their_kernel(form: str) -> None:
    model, inputs = ROWS[form], [torch.randn(64, 128, dtype=B) for _ in range(2)]
    with torch.no_grad(), watching() as seen:
        found = with_pieces(model)(*inputs)
        assert torch.allclose(found.float(), model(*inputs).float(), rtol=2e-2, atol=2e-2)
    (piece,) = seen[0].taken
    assert {bound.source.op for bound in piece.inputs} == {"placeholder"}


def test_the_gradient_of_a_softmax_reads_what_the_backward_pass_is_given() -> None:
    """Its product with the result is read twice: it was written for that."""
    x = torch.randn(64, 128, dtype=B, requires_grad=True)

    def model(x: Tensor) -> Tensor:
        return torch.softmax(x, -1) * 2

    with watching() as seen:
        with_pieces(model)(x).backward(torch.randn(64, 128, dtype=B))
    (piece,) = seen[1].taken
    assert {bound.source.op for bound in piece.inputs} == {"placeholder"}


def test_what_others_read_as_well_is_written_for_them() -> None:
    def model(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        sum_ = x + y
        return layer_norm(sum_, (128,)), torch.cumprod(sum_, 0)

    inputs = [torch.randn(64, 128, dtype=B) for _ in range(2)]
    with torch.no_grad(), watching() as seen:
        for found, plain in zip(with_pieces(model)(*inputs), model(*inputs), strict=True):
            assert torch.allclose(found.float(), plain.float(), rtol=2e-2, atol=2e-2)
    (piece,) = seen[0].taken
    assert len(piece.inputs) == 1


@pytest.mark.parametrize("rotary", [True, False])
def test_what_many_rows_share_is_not_computed_for_each_of_them(rotary: bool) -> None:
    """Angles of positions, or a bias of heads, which a kernel of all rows would compute for each batch and head."""

    def model(x: Tensor, y: Tensor) -> Tensor:
        return rms_norm(x, (64,)) * torch.cos(y) if rotary else torch.softmax(x + torch.tanh(y), -1)

    inputs = torch.randn(8, 4, 128, 64, dtype=B), torch.randn(128, 64, dtype=B)
    with torch.no_grad(), watching() as seen:
        found = with_pieces(model)(*inputs)
        assert torch.allclose(found.float(), model(*inputs).float(), rtol=2e-2, atol=2e-2)
    (piece,) = seen[0].taken
    assert all(node.op not in ("cos", "tanh") for node in piece.graph.nodes)
