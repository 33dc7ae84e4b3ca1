"""Attention of windows of an image is one piece: their rows and columns are one axis, whatever turns them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch import Tensor, nn  # noqa: E402
from torch_pieces import fresh, with_pieces  # noqa: E402

from wsopt.runtime.torch_reference import relative_error  # noqa: E402
from wsopt.torch.axes import merged_before  # noqa: E402
from wsopt.torch.compiler import watching  # noqa: E402
from wsopt.torch.report import report_of  # noqa: E402
from wsopt.torch.values import Shape  # noqa: E402

B = torch.bfloat16
HEADS, WIDTH = 3, 96


_fresh = pytest.fixture(autouse=True)(fresh)


class Windows(nn.Module):
    """Attention within windows of an image, with products and softmax written out, and biases of places."""

    def __init__(self, window: int, *, masks: bool) -> None:
        super().__init__()
        self.window, self.tokens = window, window * window
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.bias = nn.Parameter(torch.randn(self.tokens, self.tokens, HEADS))
        self.mask = nn.Parameter(torch.randn(4, 1, self.tokens, self.tokens)) if masks else None

    def forward(self, x: Tensor) -> Tensor:
        images, rows, columns, _ = x.shape
        size, tokens = self.window, self.tokens
        x = x.view(images, rows // size, size, columns // size, size, WIDTH)
        x = x.permute(0, 1, 3, 2, 4, 5).reshape(-1, tokens, WIDTH)
        apart = self.qkv(x).view(-1, tokens, 3, HEADS, WIDTH // HEADS)
        q, k, v = apart.permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q * 0.2) @ k.transpose(-2, -1) + self.bias.permute(2, 0, 1)
        if self.mask is not None:
            scores = (scores.view(images, -1, HEADS, tokens, tokens) + self.mask).view(scores.shape)
        x = (scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, tokens, WIDTH)
        return self.out(x)


@pytest.mark.parametrize("window", [7, 8])
@pytest.mark.parametrize("masks", [False, True])
def test_attention_of_windows_is_one_piece(window: int, masks: bool) -> None:
    model, x = Windows(window, masks=masks).to(B), torch.randn(2, 2 * window, 2 * window, WIDTH, dtype=B)
    with torch.no_grad(), watching() as seen:
        found = with_pieces(model)(x)
        plain = model(x)
        exact = model.float()(x.float())
    products = [sum(node.op == "matmul" for node in piece.graph.nodes) for piece in seen[0].taken]
    assert sorted(products) == [1, 1, 2]
    assert relative_error(found, exact) < 1.25 * relative_error(plain, exact)


@pytest.mark.parametrize(
    ("shape", "perm", "wanted", "expected"),
    [
        ((2, 8, 8, 3, 32), (0, 3, 4, 1, 2), (2, 3, 32, 64), ((2, 64, 3, 32), (0, 2, 3, 1))),
        ((8, 8, 32), (2, 0, 1), (32, 1, 64), ((1, 64, 32), (2, 0, 1))),
        ((8, 8, 32), (2, 1, 0), (32, 64), None),  # which are not beside each other in this order
        ((8, 4, 32), (1, 2, 0), (4, 8, 32), None),  # another shape altogether
        ((8, 4, 32), (1, 2, 0), (4, 32, 8), None),  # nothing is merged
    ],
)
def test_what_is_merged_behind_a_transpose_may_be_before(
    shape: Shape, perm: Shape, wanted: Shape, expected: tuple[Shape, Shape] | None
) -> None:
    assert merged_before(shape, perm, wanted) == expected
    if expected is not None:
        x = torch.randn(shape)
        assert torch.equal(x.reshape(expected[0]).permute(expected[1]), x.permute(perm).reshape(wanted))


def test_what_an_operation_writes_for_itself_is_not_read() -> None:
    """Slots are turned with an axis of one element behind them, which is one FX node's work."""

    def model(x: Tensor, w: Tensor) -> Tensor:
        return torch.einsum("bnd,bns->bsd", x, torch.softmax(x @ w, 1))

    x, w = (torch.randn(shape, dtype=B, requires_grad=True) for shape in ((2, 64, 128), (128, 16)))
    with watching() as seen:
        found = with_pieces(model)(x, w)
        found.float().sum().backward()
    assert torch.allclose(found.float(), model(x, w).float(), rtol=2e-2, atol=5e-2)
    assert report_of(seen).share == 1
