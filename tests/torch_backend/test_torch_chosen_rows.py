"""Rows of a table that indices name are a lookup, from whichever end they are counted."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch import Tensor  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.nn.functional import rms_norm  # noqa: E402
from torch_pieces import fresh, with_pieces  # noqa: E402

from wsopt.torch.chosen_rows import put_rows_together, take_rows_apart  # noqa: E402
from wsopt.torch.compiler import watching  # noqa: E402

B = torch.bfloat16

_fresh = pytest.fixture(autouse=True)(fresh)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("rest", [(256,), (4, 64)])
@pytest.mark.parametrize("places", [(40,), (4, 10)])
def test_a_norm_of_rows_reads_the_table(
    dtype: torch.dtype, rest: tuple[int, ...], places: tuple[int, ...]
) -> None:
    table, indices = torch.randn(50, *rest, dtype=B), torch.randint(-50, 50, places, dtype=dtype)

    def model(table: Tensor, indices: Tensor) -> Tensor:
        return rms_norm(table[indices].flatten(-len(rest)), (256,))

    with torch.no_grad(), watching() as seen:
        found = with_pieces(model)(table, indices)
    assert torch.allclose(found.float(), model(table, indices).float(), atol=2e-2)
    (piece,) = seen[0].taken
    assert [node.op for node in piece.graph.nodes].count("gather") == 1
    assert {one.type.size for one in piece.graph.inputs} == {table.numel(), 40}


def test_rows_that_no_piece_reads_are_chosen_as_they_were() -> None:
    def model(table: Tensor, indices: Tensor) -> Tensor:
        return table[indices] + 1

    inputs = torch.randn(9, 4, 8), torch.randint(-9, 9, (3, 5))
    module = make_fx(model, tracing_mode="fake")(*inputs)
    take_rows_apart(module.graph)
    assert "aten.embedding.default" in str(module.graph)
    put_rows_together(module.graph)
    assert "aten.embedding" not in str(module.graph)
    assert "aten.remainder" not in str(module.graph)
    module.recompile()
    assert torch.equal(module(*inputs), model(*inputs))


@pytest.mark.parametrize("shape", [(0, 4, 8), (0, 8), (5, 0, 3)])
def test_tables_without_elements_are_left(shape: tuple[int, ...]) -> None:
    """Of no rows none is the last, and none is as long as another."""

    def model(table: Tensor, indices: Tensor) -> Tensor:
        return table[indices] + 1

    inputs = torch.empty(shape), torch.empty(0, dtype=torch.int64)
    with torch.no_grad():
        assert with_pieces(model)(*inputs).shape == model(*inputs).shape


def test_places_along_several_dimensions_are_left() -> None:
    def model(x: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return x[i, j] + x[:, j].sum()

    inputs = torch.randn(9, 9, 8), torch.randint(0, 9, (5,)), torch.randint(0, 9, (5,))
    module = make_fx(model, tracing_mode="fake")(*inputs)
    before = str(module.graph)
    take_rows_apart(module.graph)
    assert str(module.graph) == before
