"""Gradients of convolutions whose window is one element are products, where an image's channels lie together."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch import Tensor, nn  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch_pieces import fresh, with_pieces  # noqa: E402

from wsopt.torch.compiler import watching  # noqa: E402
from wsopt.torch.gradients import put_gradients_together, take_gradients_apart  # noqa: E402
from wsopt.torch.report import Report, report_of  # noqa: E402

B = torch.bfloat16
BACKWARD = torch.ops.aten.convolution_backward.default
LAST, FIRST = torch.channels_last, torch.contiguous_format


_fresh = pytest.fixture(autouse=True)(fresh)


def step(call: Any, layer: nn.Module, x: Tensor) -> list[Tensor]:
    """The result, and the gradients of the image, the weights and the bias."""
    layer.zero_grad()
    x = x.detach().requires_grad_()
    result = call(x)
    (result.float() * torch.linspace(-1, 1, result.numel()).reshape(result.shape)).sum().backward()
    return [result, x.grad, *(one.grad.clone() for one in layer.parameters())]


def trained(layer: nn.Module, x: Tensor) -> Report:
    """What a training step's graphs became, which agree with what torch does."""
    plain = step(layer, layer, x)
    with watching() as seen:
        found = step(with_pieces(layer), layer, x)
    for one, other in zip(found, plain, strict=True):
        assert one.shape == other.shape
        assert one.squeeze().stride() == other.squeeze().stride()
        assert torch.allclose(one.float(), other.float(), rtol=2e-2, atol=2e-1)
    return report_of(seen)


def image(lies: torch.memory_format = LAST) -> Tensor:
    return torch.randn(2, 32, 8, 8, dtype=B).to(memory_format=lies)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
def test_both_products_of_a_backward_pass_are_pieces(kind: Any, groups: int, bias: bool) -> None:
    layer = kind(32, 64, 1, groups=groups, bias=bias, dtype=B).to(memory_format=LAST)
    report = trained(layer, image())
    assert report.flops == 3 * 2 * (2 * 8 * 8) * 32 * 64 // groups
    assert report.share == 1
    assert sum(line.count for line in report.taken if line.flops) == 3


def test_where_channels_lie_apart_the_image_has_its_own_and_the_rest_is_one_operation() -> None:
    layer = nn.Conv2d(32, 64, 1, dtype=B)
    report = trained(layer, image(FIRST))
    assert sum(line.count for line in report.taken if line.flops) == 2
    (why,) = (why for why, _ in report.left if "do not lie together" in why)
    assert why.startswith("aten.convolution_backward.default: ")


def calls(graph: torch.fx.Graph) -> list[list[bool]]:
    return [list(node.args[-1]) for node in graph.find_nodes(op="call_function", target=BACKWARD)]


@pytest.mark.parametrize("wanted", [[True, True, True], [True, True, False], [False, True, True]])
def test_gradients_that_no_piece_has_are_one_operation_again(wanted: list[bool]) -> None:
    def gradients(g: Tensor, x: Tensor, weight: Tensor) -> list[Tensor]:
        found = BACKWARD(g, x, weight, [8], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, wanted)
        return [one for one, is_wanted in zip(found, wanted, strict=True) if is_wanted]

    given = torch.randn(2, 8, 4, 4), torch.randn(2, 16, 4, 4), torch.randn(8, 16, 1, 1)
    module, plain = make_fx(gradients, tracing_mode="fake")(*given), gradients(*given)
    apart = [[place == at for at in range(3)] for place in range(3) if wanted[place]]
    for change, there in ((take_gradients_apart, apart), (put_gradients_together, [wanted])):
        change(module.graph)
        module.graph.lint()
        module.recompile()
        assert calls(module.graph) == there
        assert all(torch.allclose(*pair, atol=1e-5) for pair in zip(module(*given), plain, strict=True))


def test_a_window_has_one_operation_for_all() -> None:
    def gradients(g: Tensor, x: Tensor, weight: Tensor) -> Any:
        return BACKWARD(g, x, weight, [8], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, True])

    given = torch.randn(2, 8, 4, 4), torch.randn(2, 16, 4, 4), torch.randn(8, 16, 3, 3)
    graph = make_fx(gradients, tracing_mode="fake")(*given).graph
    take_gradients_apart(graph)
    assert calls(graph) == [[True, True, True]]


def test_layers_between_them_are_in_their_kernels() -> None:
    """What the backward pass of an activation does to a gradient is done behind the product that makes it."""
    layers = nn.Sequential(nn.Conv2d(32, 64, 1, dtype=B), nn.ReLU(), nn.Conv2d(64, 32, 1, dtype=B))
    report = trained(layers.to(memory_format=LAST), image())
    kinds = Counter(line.text.split(" -> ")[0] for line in report.taken)
    assert kinds["matmul add relu"] == kinds["matmul where"] == 1
