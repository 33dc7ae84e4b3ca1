"""Weights of 8 bits with scales are operands of products as they lie, and not dequantized before every call."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch import Tensor, nn  # noqa: E402
from torch.nn.functional import linear  # noqa: E402
from torch_pieces import fresh, with_pieces  # noqa: E402

from wsopt.torch.compiler import watching  # noqa: E402
from wsopt.torch.report import in_words  # noqa: E402

B, F8 = torch.bfloat16, torch.float8_e4m3fn

_fresh = pytest.fixture(autouse=True)(fresh)


def blocks(weight: Tensor, scales: Tensor, size: int) -> Tensor:
    """A scale for each block of a row, rounded to bf16."""
    apart = weight.view(weight.shape[0], -1, size).to(B) * scales.to(B)[..., None]
    return apart.view(weight.shape)


def squares(weight: Tensor, scales: Tensor, size: int) -> Tensor:
    """A scale for each block of rows and columns, in f32."""
    rows, columns = scales.shape
    apart = weight.float().view(rows, size, columns, size) * scales[:, None, :, None]
    return apart.view(weight.shape).to(B)


def columns(weight: Tensor, scales: Tensor, size: int) -> Tensor:
    """A scale for each block of columns, the same in all rows: FX has one for many that a kernel reads."""
    return blocks(weight, scales.expand(weight.shape[0], -1), size)


def rows(weight: Tensor, scales: Tensor, _size: int) -> Tensor:
    return weight.to(B) * scales.to(B)


class Quantized(nn.Module):
    def __init__(self, dtype: torch.dtype, whole: Callable[..., Tensor], shape: tuple[int, int]) -> None:
        super().__init__()
        numbers = torch.randint(-100, 100, (256, 512))
        self.register_buffer("weight", numbers.to(dtype))
        self.register_buffer("scales", torch.rand(shape) / 100)
        self.whole, self.size = whole, 512 // shape[1]

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(linear(x, self.whole(self.weight, self.scales, self.size)))


@pytest.mark.parametrize("dtype", [torch.int8, F8])
@pytest.mark.parametrize(
    ("whole", "shape", "seen"),
    [
        (blocks, (256, 16), "dequantize matmul"),
        (blocks, (256, 4), "dequantize matmul"),
        (squares, (2, 4), "dequantize matmul"),
        (columns, (1, 16), "dequantize matmul"),
        (rows, (256, 1), "mul matmul"),
    ],
)
def test_a_weight_is_read_in_8_bits(
    dtype: torch.dtype, whole: Callable[..., Tensor], shape: tuple[int, int], seen: str
) -> None:
    model, x = Quantized(dtype, whole, shape), torch.randn(64, 512, dtype=B)
    with torch.no_grad(), watching() as graphs:
        found = with_pieces(model)(x)
        plain = model(x)
    assert torch.allclose(found.float(), plain.float(), atol=2e-2 * float(plain.abs().max()))
    (piece,) = graphs[0].taken
    assert in_words(piece.graph).startswith(seen)
    assert piece.bytes_in <= x.nbytes + model.weight.nbytes + 4 * 256 * shape[1]


def test_what_else_is_made_of_a_weight_leaves_it_alone() -> None:
    """A result that hands the weight on has it in FX anyway."""

    def model(x: Tensor, weight: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
        made = blocks(weight, scales, 32)
        return linear(x, made), made

    given = (
        torch.randn(64, 512, dtype=B),
        torch.randint(-99, 99, (256, 512)).to(torch.int8),
        torch.rand(256, 16),
    )
    with torch.no_grad(), watching() as graphs:
        found = with_pieces(model)(*given)
    assert [in_words(piece.graph) for piece in graphs[0].taken] == ["matmul -> bf16[64, 256]"]
    for one, plain in zip(found, model(*given), strict=True):
        assert torch.allclose(one.float(), plain.float(), rtol=2e-2, atol=1.0)


@pytest.mark.parametrize(("whole", "shape"), [(blocks, (256, 4)), (rows, (256, 1))])
def test_a_frozen_weight_stays_in_8_bits(whole: Callable[..., Tensor], shape: tuple[int, int]) -> None:
    """Packed it would be one of 16."""
    layer, x = Quantized(torch.int8, whole, shape), torch.randn(64, 512, dtype=B)

    def model(x: Tensor) -> Tensor:
        return layer(x.flip(0))  # behind a kernel of the graph weights are constant

    with torch.no_grad(), watching() as graphs:
        with_pieces(model, frozen=True)(x)
    (piece,) = [
        one for one in graphs[0].taken if torch.int8 in {b.source.meta["val"].dtype for b in one.inputs}
    ]
    assert piece.folded is None
    assert 256 * 512 in {int(one.type.nbytes) for one in piece.kernel.inputs}


@pytest.mark.slow
@pytest.mark.solver
@pytest.mark.compiler
def test_a_kernel_of_blocks_is_built_and_simulated() -> None:
    model, x = Quantized(torch.int8, blocks, (256, 4)), torch.randn(64, 512, dtype=B)
    with torch.no_grad(), watching() as graphs:
        found = with_pieces(model, execute="simulation")(x)
    (piece,) = graphs[0].taken
    assert graphs[0].judged[piece.key].build is not None
    assert torch.allclose(found.float(), model(x).float(), atol=2e-2 * float(found.abs().max()))
