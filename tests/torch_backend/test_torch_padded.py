"""Masks and biases whose rows no kernel copies as they lie are handed over with space behind their rows."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch import Tensor  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402
from torch_pieces import OPTIONS, copied_inputs, fresh, with_pieces  # noqa: E402

from wsopt.torch import backend  # noqa: E402
from wsopt.torch.compiler import watching  # noqa: E402

B = torch.bfloat16


_fresh = pytest.fixture(autouse=True)(fresh)


def given(tokens: int, batches: int) -> tuple[Tensor, ...]:
    """Queries, keys and values of two batches of four heads, and a bias."""
    rows = [torch.randn(2, 4, tokens, 64, dtype=B) for _ in range(3)]
    return *rows, torch.randn(batches, 4, tokens, tokens, dtype=B)


@pytest.mark.parametrize("tokens", [49, 196, 197])
@pytest.mark.parametrize("batches", [1, 2])
def test_attention_with_a_bias_is_a_piece_at_any_number_of_tokens(tokens: int, batches: int) -> None:
    """Such are windows of 7 x 7 and 14 x 14, and patches of an image with a token beside them."""
    inputs = given(tokens, batches)
    with torch.no_grad(), watching() as seen:
        found = with_pieces(scaled_dot_product_attention)(*inputs)
        plain = scaled_dot_product_attention(*inputs)
    assert torch.allclose(found.float(), plain.float(), atol=2e-2)
    (piece,) = seen[0].taken
    (bias,) = [one for one in piece.graph.inputs if one.type.shape[-1] == tokens]
    assert bias.strides is not None
    assert bias.strides[-2] % 8 == 0
    assert bias.strides[-2] - tokens < 8
    assert piece.turned_bytes == 2 * inputs[3].nbytes


def test_rows_that_a_kernel_copies_have_no_space_behind_them() -> None:
    with torch.no_grad(), watching() as seen:
        with_pieces(scaled_dot_product_attention)(*given(64, 1))
    (piece,) = seen[0].taken
    assert piece.turned_bytes == 0


@pytest.mark.parametrize("made", [False, True])
def test_operands_of_products_have_space_behind_their_rows(made: bool) -> None:
    """Copies of what comes from outside count; what a kernel makes for the product is laid out so."""
    x, w = torch.randn(32, 12, dtype=B), torch.randn(56, 12, dtype=B)

    def model(x: Tensor) -> Tensor:
        return torch.relu((x.flip(0) if made else x) @ w.T)

    with torch.no_grad(), watching() as seen:
        found = with_pieces(model)(x)
    assert torch.allclose(found.float(), model(x).float(), atol=2e-1)
    (piece,) = seen[0].taken
    assert {one.strides for one in piece.graph.inputs} == {(16, 1)}
    assert piece.turned_bytes == 2 * (w.nbytes if made else w.nbytes + x.nbytes)


@pytest.mark.slow
def test_inductor_leaves_the_space(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Inductor computes for a piece has the space at once: nothing is copied in front of the operator."""
    copied = copied_inputs(monkeypatch)

    def model(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        return scaled_dot_product_attention(q, k, v, torch.tanh(bias))

    inputs = given(49, 1)
    options = {**OPTIONS, "rest": "inductor"}
    with torch.no_grad(), watching() as seen, torch._inductor.config.patch(force_disable_caches=True):
        found = torch.compile(model, backend=backend, options=options)(*inputs)
    assert len(seen[0].taken) == 1
    assert copied == []
    assert torch.allclose(found.float(), model(*inputs).float(), atol=2e-2)


@pytest.mark.slow
@pytest.mark.solver
@pytest.mark.compiler
def test_a_kernel_with_space_behind_rows_is_built_and_simulated() -> None:
    inputs = given(49, 1)
    options = {"execute": "simulation", "rest": "eager", "take": "all", "workers": 1}
    with torch.no_grad(), watching() as seen:
        with_pieces(scaled_dot_product_attention, **options)(*inputs)
    assert len(seen[0].taken) == 1


@pytest.mark.slow
@pytest.mark.solver
@pytest.mark.compiler
def test_a_kernel_of_a_product_with_space_is_built_and_simulated() -> None:
    x, w, bias = torch.randn(37, 77, dtype=B), torch.randn(131, 77, dtype=B), torch.randn(131, dtype=B)
    with torch.no_grad(), watching() as seen:
        found = with_pieces(torch.nn.functional.linear, execute="simulation")(x, w, bias)
    (piece,) = seen[0].taken
    assert seen[0].judged[piece.key].build is not None
    assert torch.allclose(found.float(), torch.nn.functional.linear(x, w, bias).float(), atol=2e-1)
