"""A result of which FX reads a turned copy alone is stored as the copy lies."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch import Tensor  # noqa: E402
from torch_pieces import fresh, with_pieces  # noqa: E402

from wsopt.torch.compiler import watching  # noqa: E402

B = torch.bfloat16


_fresh = pytest.fixture(autouse=True)(fresh)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention that is written out, and its heads beside each other."""
    heads = (torch.matmul(q, k.transpose(-2, -1)) * 0.125).softmax(-1) @ v
    return heads.transpose(1, 2).reshape(q.shape[0], q.shape[2], -1)


def both(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """The same, where the heads are wanted as they were as well."""
    heads = (torch.matmul(q, k.transpose(-2, -1)) * 0.125).softmax(-1) @ v
    turned = heads.transpose(1, 2)
    return turned.reshape(q.shape[0], q.shape[2], -1), turned.relu()


def given() -> list[Tensor]:
    return [torch.randn(2, 4, 64, 64, dtype=B) for _ in range(3)]


def test_heads_of_attention_that_is_written_out_are_stored_beside_each_other() -> None:
    inputs = given()
    with torch.no_grad(), watching() as seen:
        found = with_pieces(attention)(*inputs)
        plain = attention(*inputs)
    assert torch.allclose(found.float(), plain.float(), atol=2e-2)
    (piece,) = seen[0].taken
    (output,) = piece.graph.outputs
    assert piece.graph.type_of(output).shape == (2, 64, 4, 64)
    assert piece.orders == (None,)
    called = {node.target for node in seen[0].lowered.graph.nodes if node.op == "call_function"}
    assert called.isdisjoint((torch.ops.aten.permute.default, torch.ops.aten.clone.default))


@pytest.mark.parametrize("model", [both, lambda q, k, v: (attention(q, k, v), q @ k.transpose(-2, -1))])
def test_what_is_read_otherwise_too_is_right(model: Callable[..., tuple[Tensor, ...]]) -> None:
    inputs = given()
    with torch.no_grad():
        for found, plain in zip(with_pieces(model)(*inputs), model(*inputs), strict=True):
            assert torch.allclose(found.float(), plain.float(), rtol=2e-2, atol=2e-2)
            assert found.stride() == plain.stride()


def test_a_part_that_is_turned_is_read_where_it_lies() -> None:
    """Its copy is left out: the kernel that reads it does without."""

    def model(x: Tensor, w: Tensor) -> Tensor:
        q, k, v = (one.view(2, 64, 4, 64).transpose(1, 2) for one in (x @ w).chunk(3, -1))
        return attention(q, k, v)

    x, w = torch.randn(2, 64, 256, dtype=B), torch.randn(256, 768, dtype=B) / 16
    with torch.no_grad(), watching() as seen:
        found = with_pieces(model)(x, w)
        assert torch.allclose(found.float(), model(x, w).float(), atol=2e-2)
    assert len(seen[0].taken) == 2
    called = [node.target for node in seen[0].lowered.graph.nodes if node.op == "call_function"]
    assert torch.ops.aten.clone.default not in called
