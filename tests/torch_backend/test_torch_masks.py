"""Masks of positions and of padded tokens are made by each kernel that reads them, and once where none does."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch import Tensor  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402
from torch_pieces import fresh, with_pieces  # noqa: E402

from wsopt.runtime.torch_reference import relative_error  # noqa: E402
from wsopt.torch.compiler import watching  # noqa: E402
from wsopt.torch.splice import call_names  # noqa: E402

ROWS = 32
_fresh = pytest.fixture(autouse=True)(fresh)


def mask_of(kept: Tensor) -> Tensor:
    """Causal, and without padded tokens: [batch, 1, rows, keys], as libraries make it."""
    batch, rows = kept.shape
    b, at = torch.arange(batch)[:, None, None, None], torch.arange(rows)
    row, key = at[None, None, :, None], at[None, None, None, :]
    return ((key <= row) & kept.bool()[b, key]).expand(batch, -1, rows, rows)


def two_layers(x: Tensor, kept: Tensor) -> Tensor:
    mask = mask_of(kept)
    for _ in range(2):
        x = scaled_dot_product_attention(x, x, x, attn_mask=mask)
    return x


def given(batch: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    kept = torch.ones(batch, ROWS, dtype=torch.int64)
    kept[-1, 20:] = 0
    return torch.randn(batch, 4, ROWS, 64).to(dtype), kept


@pytest.mark.parametrize("batch", [1, 2])
def test_each_kernel_makes_the_mask_of_all_layers(batch: int) -> None:
    x, kept = given(batch, torch.bfloat16)
    with torch.no_grad():
        exact = two_layers(x.float(), kept)
        with watching() as seen:
            found = with_pieces(two_layers)(x, kept)
    (graph,) = seen
    assert relative_error(found, exact) < 1e-2
    assert len(graph.taken) == 2
    for piece in graph.taken:
        assert Counter(node.op for node in piece.graph.nodes)["iota"] == 2, "bounds of the loop"
        assert max(one.type.size for one in piece.graph.inputs if one.type.dtype.bits == 8) == batch * ROWS


def test_where_no_kernel_makes_it_there_is_one_mask() -> None:
    x, kept = given(2, torch.float32)
    with torch.no_grad():
        with watching() as seen:
            found = with_pieces(two_layers)(x, kept)
        assert torch.equal(found, two_layers(x, kept))
    (graph,) = seen
    assert not graph.taken
    names = call_names(graph.lowered.graph)
    assert names["aten.bitwise_and.Tensor"] == names["aten.index.Tensor"] == 1


def test_a_mask_of_chance_is_drawn_once() -> None:
    def model(x: Tensor) -> tuple[Tensor, Tensor]:
        kept = (torch.rand(8, 1) < 0.5).expand(8, 64)
        return torch.where(kept, x, 0.0), torch.where(kept, 0.0, x)

    x = torch.randn(8, 64)
    with torch.no_grad():
        kept, left = with_pieces(model)(x)
    assert torch.equal(kept + left, x)


def along(dim: int) -> Tensor:
    """Eight positions along a dimension of two, which a graph has to make to know them."""
    return torch.arange(8).unsqueeze(1 - dim)


PLACES: dict[str, Callable[[Tensor], Tensor]] = {
    "both": lambda t: t[along(0), along(1)],
    "turned": lambda t: t[along(1), along(0)],
    "from an offset": lambda t: t[along(0) + 4, along(1) + 1],
    "one place": lambda t: t[torch.arange(1)[:, None] + 3, along(1)],
    "the last": lambda t: t[torch.arange(1)[:, None] - 1, along(1)],
    "one dimension alone": lambda t: t[4:, torch.arange(8) + 2],
    "rows": lambda t: t[along(0), along(1)].unsqueeze(0).expand(3, 8, 8),
}


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("reduce", [operator.methodcaller("sum", -1), operator.methodcaller("softmax", -1)])
def test_positions_are_parts_of_what_is_looked_up(places: str, reduce: Callable[[Tensor], Tensor]) -> None:
    def model(table: Tensor, x: Tensor) -> Tensor:
        return reduce(x + PLACES[places](table))

    table, x = torch.randn(12, 16), torch.randn(3, 8, 8)
    with torch.no_grad(), watching() as seen:
        found = with_pieces(model)(table, x)
        assert torch.allclose(found, model(table, x), atol=1e-5)
    assert not any("index" in why for why in seen[0].lowered.refused.values())


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (lambda t: t[along(0), along(0) * 1], "along one dimension twice"),
        (lambda t: t[along(0) * 2, along(1)], "what is no position"),
        (lambda t: t[along(0) - 1, along(1)], "elements that a tensor does not have"),
        (lambda t: t[along(0) + along(1), along(1)], "what is no position"),
    ],
)
def test_what_is_looked_up_otherwise_stays(model: Callable[[Tensor], Tensor], why: str) -> None:
    table = torch.randn(16, 16)
    with torch.no_grad(), watching() as seen:
        found = with_pieces(lambda t: model(t).sum(-1))(table)
        assert torch.allclose(found, model(table).sum(-1), atol=1e-5)
    assert any(why in reason for reason in seen[0].lowered.refused.values())
