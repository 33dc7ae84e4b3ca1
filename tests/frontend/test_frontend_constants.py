"""Constants that are operands of products: which of them get room behind their rows, and how much."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder
from wsopt.tensors.views import Packing, View


@dataclass(frozen=True)
class Weights:
    """A product's weights, as the graph has them."""

    columns: int
    dtype: str = "bf16"
    constant: bool = True
    turned: bool = False
    twice: bool = False


def right(weights: Weights) -> View:
    """How a product's kernel reads its weights."""
    g = GraphBuilder("weights")
    contracted = weights.columns if weights.turned else 64
    shape = (48, contracted) if weights.turned else (64, weights.columns)
    w = g.input("w", shape, weights.dtype, constant=weights.constant)
    x = w if weights.twice else g.input("x", (32, contracted), weights.dtype)
    g.output(g.cast(g.matmul(x, w, transpose_b=weights.turned), "bf16", name="y"))
    (product,) = find_region(g.build()).contractions
    return product.right


@pytest.mark.parametrize(
    ("weights", "apart", "packing"),
    [
        (Weights(1000), 1024, Packing.LINES),
        (Weights(1000, turned=True), 1024, Packing.LINES),
        (Weights(301), 320, Packing.LINES),  # TMA could not even begin with these rows
        (Weights(1040, "f8e4m3", turned=True), 1152, Packing.LINES),
        (Weights(1024), 1024, None),
        (Weights(64, turned=True), 64, None),
        (Weights(1000, constant=False), 1000, None),
        (Weights(1000, turned=True, twice=True), 1000, None),
    ],
)
def test_rows_of_weights_begin_with_lines(weights: Weights, apart: int, packing: Packing | None) -> None:
    view = right(weights)
    assert view.packing is packing
    assert view.strides == (apart, 1)
    assert view.extents[1] == weights.columns
