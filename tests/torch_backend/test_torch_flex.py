"""`flex_attention` is one piece, whatever its functions make of scores and places, or stays whole with the reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch import Tensor  # noqa: E402
from torch.nn.attention.flex_attention import (  # noqa: E402
    BlockMask,
    create_block_mask,
    flex_attention,
)
from torch_pieces import OPTIONS, fresh, with_pieces  # noqa: E402

from wsopt.runtime.torch_reference import relative_error  # noqa: E402
from wsopt.torch import explain  # noqa: E402
from wsopt.torch.compiler import watching  # noqa: E402

Function = Callable[..., Tensor] | None
ROWS = 128
DOCUMENTS = torch.tensor([0] * 50 + [1] * 78, dtype=torch.int32)
LENGTHS = torch.tensor([100, 128], dtype=torch.int32)
SLOPES = torch.tensor([0.5, 0.25, 0.125, 0.0625])
BIAS = torch.randn(4, ROWS, ROWS, generator=torch.Generator().manual_seed(1))
TABLE = torch.linspace(-1, 1, ROWS)


def causal(_b: Tensor, _h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return i >= j


TAKEN: dict[str, tuple[Function, Function]] = {
    "plain": (None, None),
    "window": (None, lambda b, h, i, j: (i >= j) & (i - j < 64)),
    "documents": (None, lambda b, h, i, j: (DOCUMENTS[i] == DOCUMENTS[j]) & (i >= j)),
    "lengths": (None, lambda b, h, i, j: j < LENGTHS[b]),
    "capped": (lambda s, b, h, i, j: torch.tanh(s / 20) * 20, causal),
    "slopes": (lambda s, b, h, i, j: s + SLOPES[h] * (j - i), causal),
    "bias": (lambda s, b, h, i, j: s + BIAS[h, i, j], None),
    "turned": (lambda s, b, h, i, j: s + BIAS[h, j, i], None),
    "chosen": (lambda s, b, h, i, j: torch.where(i >= j, s, -float("inf")), None),
}


def operands(heads: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    fresh()
    shapes = [(2, count, ROWS, 64) for count in (4, heads, heads)]
    return tuple(torch.randn(shape).to(torch.bfloat16) for shape in shapes)  # type: ignore[return-value]


def blocks_of(mask: Function) -> BlockMask | None:
    return None if mask is None else create_block_mask(mask, 2, 4, ROWS, ROWS, device="cpu")


def found_in_one_piece(model: Callable[..., Any], given: tuple[Tensor, ...]) -> Tensor:
    """What a model of one piece gives, which is what it gives in f32."""
    with torch.no_grad():
        exact = model(*(one.float() for one in given))
        with watching() as seen:
            found = with_pieces(model)(*given)
    assert [len(graph.taken) for graph in seen] == [1]
    assert relative_error(found, exact) < 6e-3
    return found


@pytest.mark.parametrize("name", TAKEN)
def test_functions_of_scores_and_places_are_in_the_piece(name: str) -> None:
    score, mask = TAKEN[name]
    given, blocks = operands(), blocks_of(mask)

    def model(*qkv: Tensor) -> Any:
        return flex_attention(*qkv, score_mod=score, block_mask=blocks)

    assert found_in_one_piece(model, given).stride() == given[0].stride()


def test_query_heads_share_keys() -> None:
    given, blocks = operands(heads=2), blocks_of(causal)

    def model(*qkv: Tensor) -> Any:
        return flex_attention(*qkv, block_mask=blocks, enable_gqa=True)

    found_in_one_piece(model, given)


@pytest.mark.parametrize(
    ("score", "why"),
    [
        (lambda s, b, h, i, j: s + TABLE[(i - j).abs()], "looked up at what is no position"),
        (lambda s, b, h, i, j: s * (i - j).remainder(4), "no entry for aten.remainder"),
    ],
)
def test_what_is_no_function_of_ours_is_left_whole_and_counted(score: Function, why: str) -> None:
    report = explain(lambda *qkv: flex_attention(*qkv, score_mod=score), *operands(), options=OPTIONS)
    assert report.share == 0
    assert why in str(report)


def test_blocks_that_alone_say_which_scores_count_are_not_passed_over() -> None:
    counts = torch.ones(1, 1, 2, dtype=torch.int32)
    which = torch.arange(2, dtype=torch.int32).view(1, 1, 2, 1).expand(1, 1, 2, 2).contiguous()
    blocks = BlockMask.from_kv_blocks(counts, which, BLOCK_SIZE=64, seq_lengths=(ROWS, ROWS))
    report = explain(lambda *qkv: flex_attention(*qkv, block_mask=blocks), *operands(), options=OPTIONS)
    assert report.share == 0
    assert "a mask of blocks without a function that says which scores count" in str(report)


def test_lengths_that_change_are_one_piece() -> None:
    fresh()

    def model(*qkv: Tensor) -> Any:
        return flex_attention(*qkv, score_mod=TAKEN["chosen"][0])

    compiled = with_pieces(model)
    for rows in (128, 192, 256):
        given = [torch.randn(2, 4, rows, 64).to(torch.bfloat16) for _ in range(3)]
        with torch.no_grad(), watching() as seen:
            found = compiled(*given)
            exact = model(*(one.float() for one in given))
        assert all(len(graph.taken) == 1 for graph in seen)
        assert len(seen) == (rows < 256)
        assert relative_error(found, exact) < 6e-3
