"""Operands that are computed element by element: which graphs there are, and what they become."""

from __future__ import annotations

import pytest

from wsopt.errors import LoweringError
from wsopt.frontend.region import find_region
from wsopt.frontend.types import Contraction, Region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.types import DType
from wsopt.lowering.structures import structures
from wsopt.machine import Machine
from wsopt.tensors.statements import Statement
from wsopt.tensors.views import K_BLOCK, Role


def _region(left: bool, transposed: bool = False) -> Region:
    g = GraphBuilder("computed")
    shape = (512, 256) if transposed else (256, 512)
    x, w = g.input("x", (128, 256), "bf16"), g.input("w", shape, "i8", constant=True)
    wide = g.cast(w, "bf16", name="wide")
    if left:
        product = g.matmul(wide, g.input("v", (512, 64), "bf16"), name="p")
    else:
        product = g.matmul(x, wide, transpose_b=transposed, name="p")
    g.output(g.cast(product, "bf16", name="y"))
    return find_region(g.build())


@pytest.mark.parametrize("transposed", [False, True])
def test_a_right_operand_that_is_computed_gives_the_rows(transposed: bool) -> None:
    region = _region(left=False, transposed=transposed)
    assert (region.extent(Role.ROW), region.extent(Role.COLUMN)) == (512, 128)
    wide, product = region.body
    assert isinstance(wide, Statement)
    assert (wide.primitive, wide.spans) == ("round_bf16", K_BLOCK)
    assert isinstance(product, Contraction)
    assert product.left == wide.name
    assert not isinstance(product.right, str)
    assert product.right.tensor == "x"
    (output,) = region.outputs
    assert output.view.roles == (Role.COLUMN, Role.ROW)


def test_a_left_operand_that_is_computed_stays_on_its_side() -> None:
    region = _region(left=True)
    assert (region.extent(Role.ROW), region.extent(Role.COLUMN)) == (256, 64)
    (output,) = region.outputs
    assert output.view.roles == (Role.ROW, Role.COLUMN)


def _refused(build: object) -> str:
    g = GraphBuilder("refused")
    x, w = g.input("x", (128, 256), "bf16"), g.input("w", (512, 256), "i8")
    assert callable(build)
    made: Symbol = build(g, x, w)
    g.output(g.cast(made, "bf16", name="y"))
    with pytest.raises(LoweringError) as found:
        find_region(g.build())
    return str(found.value)


def test_both_operands_are_refused() -> None:
    told = _refused(
        lambda g, x, w: g.matmul(
            g.cast(g.relu(x), "bf16", name="a"), g.cast(w, "bf16"), transpose_b=True, name="p"
        )
    )
    assert told.startswith("node p: operand 0 of the matmul is computed by cast node a")


def test_whole_numbers_of_8_bits_are_computed_with_as_f32_beside_a_fraction() -> None:
    g = GraphBuilder("scaled")
    x, w = g.input("x", (128, 256), "bf16"), g.input("w", (512, 256), "i8")
    g.output(g.cast(g.matmul(x, g.cast(g.mul(w, 0.5), "bf16"), transpose_b=True), "bf16", name="y"))
    region = find_region(g.build())
    (rounded,) = (item for item in region.body if isinstance(item, Statement))
    scaled, _ = region.statements  # a number is the same along the contracted axis
    assert (rounded.primitive, rounded.dtype) == ("round_bf16", DType.BF16)
    assert isinstance(scaled, Statement)
    assert (scaled.primitive, scaled.dtype, scaled.args[1:]) == ("mul", DType.F32, (0.5,))


def test_an_operand_of_places_along_the_contracted_axis_is_made_before(h200: Machine) -> None:
    """A one-hot matrix times rows, whose columns are the places: the loop counts no elements."""
    g = GraphBuilder("hot")
    hot = g.equal(g.reshape(g.input("i", (64,), "i32"), shape=(64, 1)), g.iota(shape=(64, 128), axis=1))
    g.output(g.cast(g.matmul(g.cast(hot, "bf16"), g.input("w", (128, 64), "bf16")), "bf16", name="y"))
    with pytest.raises(
        LoweringError, match=r"is computed of places along the contracted axis.*compute it before"
    ):
        next(structures(find_region(g.build()), h200))
