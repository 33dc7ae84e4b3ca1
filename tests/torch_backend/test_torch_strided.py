"""Products of slices with a step, which kernels read where they lie if the channels lie together."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch import nn  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch_pieces import OPTIONS, fresh, with_pieces  # noqa: E402

from wsopt.torch import explain  # noqa: E402
from wsopt.torch.compiler import watching  # noqa: E402
from wsopt.torch.piece import Piece  # noqa: E402
from wsopt.torch.strided import put_together, take_apart  # noqa: E402

B = torch.bfloat16


_fresh = pytest.fixture(autouse=True)(fresh)


def piece_of(model: nn.Module, x: torch.Tensor) -> Piece:
    """The one piece of a model, which agrees with it."""
    with torch.no_grad(), watching() as seen:
        found, plain = with_pieces(model)(x), model(x)
    assert (found.shape, found.stride()) == (plain.shape, plain.stride())
    assert torch.allclose(found.float(), plain.float(), rtol=2e-2, atol=2e-2)
    (piece,) = seen[0].taken
    return piece


class EverySecond(nn.Module):
    """A convolution of one element of every second row and column."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(64, 32, 1, dtype=B)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(x[:, :, ::2, ::2]))


def test_every_second_row_and_column_of_an_image_is_read_where_it_lies() -> None:
    x = torch.randn(2, 64, 32, 32, dtype=B).to(memory_format=torch.channels_last)
    piece = piece_of(EverySecond().to(memory_format=torch.channels_last), x)
    assert "bf16[2, 32, 32, 64]" in [str(one.type) for one in piece.graph.inputs]
    assert [node.attr("step") for node in piece.graph.nodes if node.op == "slice"] == [2, 2]
    assert piece.turned_bytes == piece.copied_bytes == 0


def test_a_convolution_with_strides_is_one_of_a_slice() -> None:
    layer = nn.Conv2d(64, 32, 1, stride=2, dtype=B).to(memory_format=torch.channels_last)
    x = torch.randn(2, 64, 32, 31, dtype=B).to(memory_format=torch.channels_last)
    piece = piece_of(nn.Sequential(layer, nn.ReLU()), x)
    assert "bf16[2, 16, 16, 64]" in [str(one.type) for one in piece.graph.inputs if one.strides]
    assert [node.op for node in piece.graph.nodes if node.op == "relu"] == ["relu"]


def test_one_that_is_no_piece_has_its_strides_again() -> None:
    x = torch.randn(2, 4, 6, 5).to(memory_format=torch.channels_last)
    weight, strided = torch.randn(4, 4, 1, 1), [2, 1]
    module = make_fx(lambda x, w: nn.functional.conv2d(x, w, stride=strided), tracing_mode="fake")(x, weight)
    plain = nn.functional.conv2d(x, weight, stride=strided)
    for change, slices, strides in ((take_apart, 1, [1, 1]), (put_together, 0, strided)):
        change(module.graph)
        module.recompile()
        assert torch.allclose(module(x, weight), plain, atol=1e-5)
        found = [node for node in module.graph.nodes if node.op == "call_function"]
        assert [node.target for node in found[:-1]] == [torch.ops.aten.slice.Tensor] * slices
        assert found[-1].args[3] == strides


def test_where_channels_lie_apart_it_is_copied() -> None:
    piece = piece_of(EverySecond(), torch.randn(2, 64, 32, 32, dtype=B))
    assert "bf16[2, 64, 256]" in [str(one.type) for one in piece.graph.inputs]


def test_no_copy_is_made_for_a_convolution_with_strides() -> None:
    layer = nn.Conv2d(64, 32, 1, stride=2, dtype=B)
    report = explain(layer, torch.randn(2, 64, 32, 32, dtype=B), options=OPTIONS)
    ((reason, count),) = report.left
    assert "a convolution with strides" in reason
    assert count == 1
