"""Attention is one node of a graph without gradients, whatever torch would make of it on the device, and right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch import Tensor  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402
from torch_pieces import fresh, with_pieces  # noqa: E402

from wsopt.frontend.region import find_region  # noqa: E402
from wsopt.tensors.views import Role  # noqa: E402
from wsopt.torch.compiler import watching  # noqa: E402
from wsopt.torch.rates import Attention as How  # noqa: E402
from wsopt.torch.rounds import Settled  # noqa: E402
from wsopt.torch.splice import call_names  # noqa: E402
from wsopt.torch.whole_attention import OPERATOR, _along_keys  # noqa: E402

B = torch.bfloat16
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


_fresh = pytest.fixture(autouse=True)(fresh)


def given(heads: int = 4, dtype: Any = B) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = (torch.randn(2, 32, one, 64, dtype=dtype).transpose(1, 2) for one in (4, heads, heads))
    return q, k, v


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scaled_dot_product_attention(q, k, v)


def scaled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3)


def masked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    near = (torch.arange(32)[:, None] - torch.arange(32)).abs() < 5
    return scaled_dot_product_attention(q, k, v, near)


def grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scaled_dot_product_attention(q, k, v, enable_gqa=True)


CASES: tuple[tuple[Attention, int], ...] = ((plain, 4), (scaled, 4), (masked, 4), (grouped, 2))
"""What is computed, with how many heads of keys for four of queries."""


def whole(one: Settled) -> int:
    return call_names(one.lowered.graph).get("wsopt.attention.default", 0)


def found(model: Attention, *inputs: Tensor) -> tuple[Tensor, int, int]:
    """The result, how many calls the FX graph keeps whole, and how many pieces were taken."""
    with watching() as seen:
        result = with_pieces(model)(*inputs)
    (one,) = seen
    return result, whole(one), len(one.taken)


@pytest.mark.parametrize(("model", "heads"), CASES)
def test_a_piece_computes_it(model: Attention, heads: int) -> None:
    inputs = given(heads)
    with torch.no_grad():
        result, _, taken = found(model, *inputs)
        want = model(*inputs)
    assert taken == 1
    assert torch.allclose(result.float(), want.float(), atol=2e-2)


def repeated(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """As a model writes it whose masks are tensors."""
    k, v = (one[:, :, None].expand(-1, -1, 2, -1, -1).reshape(q.shape) for one in (k, v))
    return masked(q, k, v)


@pytest.mark.parametrize("densely", [False, True])
@pytest.mark.parametrize(("model", "copies"), [(grouped, 0), (repeated, 2)])
def test_keys_of_a_group_of_heads_are_read_once_in_each_batch(
    model: Attention, copies: int, densely: bool
) -> None:
    inputs = tuple(one.contiguous() if densely else one for one in given(2))
    with torch.no_grad(), watching() as seen:
        result = with_pieces(model)(*inputs)
        want = model(*inputs)
    ((piece,),) = [one.taken for one in seen]
    sizes = sorted(one.type.size for one in piece.graph.inputs)
    assert sizes == sorted(one.numel() for one in inputs)
    assert piece.copied_bytes == copies * 2 * inputs[0].nbytes  # each is written, and read
    assert torch.allclose(result.float(), want.float(), atol=2e-2)


def test_query_heads_of_one_token_are_rows_beside_a_mask() -> None:
    """As in a step behind a cache: keys are read once for a group, not by each of its heads."""
    q, mask = torch.randn(2, 4, 1, 64, dtype=B), torch.rand(2, 1, 1, 32) > 0.3
    k, v = (torch.randn(2, 2, 32, 64, dtype=B) for _ in range(2))

    def step(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = (one[:, :, None].expand(-1, -1, 2, -1, -1).reshape(2, 4, 32, 64) for one in (k, v))
        return scaled_dot_product_attention(q, k, v, mask)

    with torch.no_grad(), watching() as seen:
        result = with_pieces(step)(q, k, v)
        want = step(q, k, v)
    ((piece,),) = [one.taken for one in seen]
    assert find_region(piece.graph).extent(Role.ROW) == 2
    assert torch.allclose(result.float(), want.float(), atol=2e-2)


@pytest.mark.parametrize(("model", "heads"), CASES)
def test_without_a_piece_torch_computes_it(model: Attention, heads: int) -> None:
    inputs = given(heads, torch.float32)  # no product of ours has operands of f32 without being asked
    with torch.no_grad():
        result, kept, taken = found(model, *inputs)
        want = model(*inputs)
    assert (kept, taken) == (1, 0)
    assert torch.allclose(result, want, atol=1e-5)


def written_out(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.transpose(2, 3) * 0.125).softmax(-1) @ v


@pytest.mark.parametrize(
    ("model", "kind"),
    [(plain, How.CALLED), (scaled, How.CALLED), (masked, How.MASKED), (written_out, How.WRITTEN_OUT)],
)
def test_a_piece_knows_how_the_graph_has_its_attention(model: Attention, kind: How) -> None:
    """The library is several times as slow with a mask that it reads, and so are a softmax and products."""
    with torch.no_grad(), watching() as seen:
        with_pieces(model)(*given())
    ((piece,),) = [one.taken for one in seen]
    assert piece.attention is kind


def test_what_is_trained_is_decomposed_as_ever() -> None:
    inputs = [one.requires_grad_() for one in given(dtype=torch.float32)]
    with watching() as seen:
        with_pieces(plain)(*inputs).sum().backward()
    assert seen
    assert not any(map(whole, seen))
    (gradient,) = torch.autograd.grad(plain(*inputs).sum(), inputs[:1])
    assert torch.allclose(inputs[0].grad, gradient, atol=1e-5)


def test_the_reason_of_a_result_that_is_not_said_tells_what_it_is_for() -> None:
    inputs = tuple(one.requires_grad_() for one in given())
    with watching() as seen:
        with_pieces(plain)(*inputs).sum().backward()
    (reason,) = (why for why in seen[0].lowered.refused.values() if why.startswith("result 1 of "))
    assert reason.endswith("is none that our graphs say; it is a result of the graph")


def test_what_is_computed_in_another_type_is_decomposed_as_ever() -> None:
    def model(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=B):
            return plain(q, k, v)

    inputs = given(dtype=torch.float32)
    with torch.no_grad():
        inside, kept, _ = found(model, *inputs)
        assert not kept
        torch._dynamo.reset()
        with torch.autocast("cpu", dtype=B):
            around, kept, _ = found(plain, *inputs)
        assert not kept
        assert inside.dtype == around.dtype == model(*inputs).dtype == B


@pytest.mark.parametrize(("causal", "heads"), [(False, 4), (True, 2)])
def test_its_layout_is_known_before_it_runs(causal: bool, heads: int) -> None:
    arguments = (*given(heads), None, causal, None, heads != 4)
    torch.library.opcheck(OPERATOR, arguments, test_utils=("test_schema", "test_faketensor"))
    result = OPERATOR(*arguments)
    assert result.transpose(1, 2).is_contiguous()


def test_a_mask_whose_keys_lie_apart_is_laid_anew() -> None:
    """Of such a mask torch's own call makes products and a softmax, far slower; its numbers are the same."""
    by_heads = torch.randn(32, 32, 4, dtype=B).permute(2, 0, 1).unsqueeze(0).expand(2, 4, 32, 32)
    laid = _along_keys(by_heads)
    assert laid is not None
    assert torch.equal(laid, by_heads)
    assert laid.stride() == (0, 32 * 32, 32, 1)
    assert all(_along_keys(one) is one for one in (None, laid, by_heads[..., :1]))
    inputs = given()
    want = scaled_dot_product_attention(*inputs, by_heads)
    assert torch.allclose(OPERATOR(*inputs, by_heads, False, None, False).float(), want.float(), atol=2e-2)


def test_a_mask_that_lets_everything_through_is_none() -> None:
    def everywhere(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return scaled_dot_product_attention(q, k, v, torch.ones(1, 1, 32, 32, dtype=torch.bool))

    inputs = given()
    with torch.no_grad():
        result, _, taken = found(everywhere, *inputs)
        want = everywhere(*inputs)
    assert taken == 1
    assert torch.allclose(result.float(), want.float(), atol=2e-2)


# --- layouts and dimensions -----------------------------------------------------------------------------


def as_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return plain(q, k, v).flatten(0, 1)


def seen_as_rows(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Which is no view unless heads lie outside of rows."""
    return plain(q, k, v).view(2, 4 * 32, 64)


def as_rows(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return plain(q, k, v).transpose(1, 2).reshape(2, 32, 4 * 64)


def turned(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return plain(q, k, v).transpose(1, 2)


@pytest.mark.parametrize("model", [plain, as_heads, seen_as_rows, as_rows, turned])
@pytest.mark.parametrize("turns", [False, True])
def test_a_result_lies_as_torch_has_it(model: Attention, turns: bool) -> None:
    if turns and model is seen_as_rows:
        pytest.skip("torch has no such view")
    inputs = given() if turns else tuple(one.contiguous() for one in given())
    with torch.no_grad():
        result, _, taken = found(model, *inputs)
        want = model(*inputs)
    assert taken == 1
    assert result.stride() == want.stride()
    assert torch.allclose(result.float(), want.float(), atol=2e-2)


@pytest.mark.parametrize("shape", [(32, 64), (4, 32, 64), (3, 2, 4, 32, 64)])
@pytest.mark.parametrize("masks", [False, True])
def test_it_may_have_any_number_of_dimensions(shape: tuple[int, ...], masks: bool) -> None:
    def model(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        mask = (torch.arange(32)[:, None] - torch.arange(32)).abs() < 5 if masks else None
        return scaled_dot_product_attention(q, k, v, mask)

    inputs = [torch.randn(shape, dtype=B) for _ in range(3)]
    with torch.no_grad():
        result, _, taken = found(model, *inputs)
        want = model(*inputs)
    assert taken == 1
    assert (result.shape, result.stride()) == (want.shape, want.stride())
    assert torch.allclose(result.float(), want.float(), atol=2e-2)


@pytest.mark.parametrize("heads", [4, 2])
def test_three_dimensions_may_have_a_mask_each_or_groups(heads: int) -> None:
    mask = torch.rand(4, 32, 32) > 0.3 if heads == 4 else None

    def model(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return scaled_dot_product_attention(q, k, v, mask, enable_gqa=heads != 4)

    q, k, v = (torch.randn(one, 32, 64, dtype=B) for one in (4, heads, heads))
    with torch.no_grad():
        result, _, taken = found(model, q, k, v)
        want = model(q, k, v)
    assert taken == 1
    assert result.stride() == want.stride()
    assert torch.allclose(result.float(), want.float(), atol=2e-2)


def test_keys_of_more_batches_than_queries_are_right() -> None:
    q, k = torch.randn(1, 4, 32, 64, dtype=B), torch.randn(3, 4, 32, 64, dtype=B)
    with torch.no_grad():
        result = with_pieces(plain)(q, k, k)
        want = plain(q, k, k)
    assert result.shape == want.shape
    assert torch.allclose(result.float(), want.float(), atol=2e-2)
