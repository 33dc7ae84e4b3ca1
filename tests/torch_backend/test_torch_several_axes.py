"""Norms over several dimensions are pieces, which read their input once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch import Tensor, nn  # noqa: E402
from torch_pieces import Counted, fresh, with_pieces  # noqa: E402

from wsopt.torch.compiler import watching  # noqa: E402

B = torch.bfloat16


_fresh = pytest.fixture(autouse=True)(fresh)


def by_groups(x: Tensor) -> Tensor:
    """A norm of groups of channels, as decompositions for a GPU have it, but for weights."""
    groups = x.float().reshape(4, 4, 4, 64)
    variance, mean = torch.var_mean(groups, dim=[2, 3], correction=0, keepdim=True)
    return ((groups - mean) * torch.rsqrt(variance + 1e-5)).view(x.shape).to(B)


NORMS: dict[str, Callable[..., Any]] = {
    "layer norm of two": nn.LayerNorm((8, 8), dtype=B),
    "layer norm of three": nn.LayerNorm((16, 8, 8), dtype=B),
    "instance norm": nn.InstanceNorm2d(16),
    "instance norm with weights": nn.InstanceNorm2d(16, affine=True, dtype=B),
    "group norm": by_groups,
}


@pytest.mark.parametrize("form", NORMS)
def test_a_norm_over_several_dimensions_is_one_piece(form: str) -> None:
    x = torch.randn(4, 16, 8, 8, dtype=B)
    with torch.no_grad(), watching() as seen:
        found = with_pieces(NORMS[form])(x)
        plain = NORMS[form](x)
    (piece,) = seen[0].taken
    assert len([one for one in piece.graph.inputs if one.type.size == x.numel()]) == 1
    assert torch.allclose(found.float(), plain.float(), rtol=2e-2, atol=2e-2)


def test_images_whose_number_changes_are_a_range() -> None:
    model = nn.LayerNorm((8, 8), dtype=B)
    fast = Counted(model)
    with torch.no_grad(), watching() as seen:
        for count in (4, 2, 7):
            x = torch.randn(count, 16, 8, 8, dtype=B)
            torch._dynamo.mark_dynamic(x, 0)
            assert torch.allclose(fast.call(x).float(), model(x).float(), rtol=2e-2, atol=2e-2)
    assert fast.times == 1
    (piece,) = seen[0].taken
    assert str(piece.changing).startswith("n from ")


@pytest.mark.parametrize(("groups", "shape"), [(8, (32, 128)), (32, (4, 32, 8, 8))])
def test_a_norm_of_groups_of_channels_is_one_piece_with_its_activation(groups: int, shape: list[int]) -> None:
    """Its decomposition tells by strides what each channel is multiplied by and has added."""
    model, x = nn.Sequential(nn.GroupNorm(groups, shape[1], dtype=B), nn.SiLU()), torch.randn(shape, dtype=B)
    with torch.no_grad(), watching() as seen:
        found = with_pieces(model)(x)
        assert torch.allclose(found.float(), model(x).float(), rtol=2e-2, atol=2e-2)
    (piece,) = seen[0].taken
    assert not seen[0].lowered.refused
    assert len([one for one in piece.graph.inputs if one.type.size == x.numel()]) == 1


def test_a_norm_of_groups_of_channels_has_a_range() -> None:
    model = nn.GroupNorm(8, 128, dtype=B)
    fast = Counted(model)
    with torch.no_grad(), watching() as seen:
        for count in (4, 2, 7):
            x = torch.randn(count, 128, dtype=B)
            torch._dynamo.mark_dynamic(x, 0)
            assert torch.allclose(fast.call(x).float(), model(x).float(), rtol=2e-2, atol=2e-2)
    assert fast.times == 1
    assert len(seen[0].taken) == 1
    assert not seen[0].lowered.refused


def test_views_by_strides_of_parts_stay() -> None:
    def model(x: Tensor) -> Tensor:
        y = torch.relu(x @ x.T)
        return torch.as_strided(y, (4, 8), (64, 1)) + torch.as_strided(y, (4, 8), (64, 1), 3)

    x = torch.randn(64, 64, dtype=B)
    with torch.no_grad():
        assert torch.equal(with_pieces(model)(x), model(x))


def test_views_by_strides_of_inputs_begin_where_they_say() -> None:
    """At whatever place of their memory the inputs of a call begin."""
    rows, fast = torch.randn(12, 64, dtype=B), with_pieces(lambda x: _from_the_second(x).softmax(-1))
    with torch.no_grad():
        for first in (1, 2, 0):
            x = rows[first : first + 8]
            assert torch.allclose(fast(x).float(), _from_the_second(x).float().softmax(-1), atol=1e-2)


def _from_the_second(x: Tensor) -> Tensor:
    return torch.as_strided(x, (8, 64), (64, 1), 64)
