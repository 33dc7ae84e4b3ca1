"""Products of computed operands of f8: which factors leave which blocks of the contracted axis, and refusals."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from wsopt.errors import LoweringError
from wsopt.frontend.region import find_region
from wsopt.frontend.types import Region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.parse import load_graph
from wsopt.graph.types import DType
from wsopt.lowering.structures import structures
from wsopt.machine import Machine
from wsopt.tensors.views import SLOT_BYTES, Packing, Role

Sides = Callable[[GraphBuilder, Symbol, Symbol], tuple[Symbol, Symbol]]


def region(sides: Sides, dtypes: tuple[str, str] = ("f8e4m3", "f8e4m3")) -> Region:
    """The product of two operands that are computed from tensors of these types."""
    g = GraphBuilder("factored")
    x, w = g.input("x", (256, 512), dtypes[0]), g.input("w", (256, 512), dtypes[1])
    g.output(g.cast(g.matmul(*sides(g, x, w), transpose_b=True, name="p"), "bf16", name="y"))
    return find_region(g.build())


def rows(g: GraphBuilder, x: Symbol, group: int = 128) -> Symbol:
    """A tensor with a scale for each group of its rows, with the contracted axis first in memory."""
    scale = g.transpose(g.input(f"s{x.name}", (512 // group, 256), "f32"), perm=(1, 0))
    return g.cast(g.dequantize(x, scale, group, name=f"d{x.name}"), "bf16")


def blocks(g: GraphBuilder, w: Symbol) -> Symbol:
    """A tensor with a scale for each of its blocks."""
    scale = g.input(f"s{w.name}", (2, 4), "f32", constant=True)
    return g.cast(g.dequantize(w, scale, block=(128, 128), name=f"d{w.name}"), "bf16")


def test_scales_become_factors_of_partial_sums() -> None:
    found = region(lambda g, x, w: (rows(g, x), blocks(g, w)))
    (product,) = found.contractions
    assert product.promote
    assert found.operand_dtype is DType.F8E4M3
    assert [view.tensor for view in found.operands] == ["x", "w"]
    first, second = (source.view for source in found.factor_sources)
    assert (first.tensor, first.roles, first.each) == ("sx", (Role.STREAM, Role.ROW), 128)
    assert (second.tensor, second.each, second.column_each) == ("sw", 128, 128)
    assert [second.of(role, 128) for role in second.roles] == [1, SLOT_BYTES // 4]
    assert [first.of(role, 128) for role in first.roles] == [1, 128]


def test_factors_without_blocks_are_applied_once() -> None:
    def sides(g: GraphBuilder, x: Symbol, w: Symbol) -> tuple[Symbol, Symbol]:
        scale, divisor = g.input("s", (256, 1), "f32"), g.input("d", (), "f32")
        return g.cast(g.dequantize(x, scale, 512), "bf16"), g.cast(g.cast(w, "f32") / divisor, "bf16")

    found = region(sides)
    assert not found.contractions[0].factors
    assert [getattr(one, "primitive", "") for one in found.statements] == ["mul", "div", "round_bf16"]


def test_products_of_tf32_and_f16_are_products_of_f8_as_well() -> None:
    def whole(g: GraphBuilder, x: Symbol, w: Symbol) -> tuple[Symbol, Symbol]:
        return g.cast(x, "f16"), g.cast(
            g.dequantize(w, g.input("s", (2, 4), "f16", constant=True), block=(128, 128)), "f16"
        )

    assert region(whole).operand_dtype is DType.F8E4M3


def test_constant_scales_are_turned() -> None:
    def sides(g: GraphBuilder, x: Symbol, w: Symbol) -> tuple[Symbol, Symbol]:
        scale = g.input("s", (256, 4), "f32", constant=True)
        return g.cast(g.dequantize(x, scale, 128), "bf16"), blocks(g, w)

    assert region(sides).factor_sources[0].view.packing is Packing.TURNED


def test_one_tensors_groups_may_be_parts_of_anothers() -> None:
    found = region(lambda g, x, w: (rows(g, x, 64), blocks(g, w)))
    assert [source.view.each for source in found.factor_sources] == [64, 128]


def _as_they_come(g: GraphBuilder, x: Symbol, w: Symbol) -> tuple[Symbol, Symbol]:
    return g.cast(g.dequantize(x, g.input("s", (256, 4), "f32"), 128), "bf16"), blocks(g, w)


def _computed_scale(g: GraphBuilder, x: Symbol, w: Symbol) -> tuple[Symbol, Symbol]:
    scale = g.exp(g.transpose(g.input("s", (4, 256), "f32"), perm=(1, 0)))
    return g.cast(g.dequantize(x, scale, 128, name="d"), "bf16"), blocks(g, w)


def _not_a_factor(g: GraphBuilder, x: Symbol, w: Symbol) -> tuple[Symbol, Symbol]:
    return g.cast(g.relu(g.cast(x, "f32")), "bf16", name="c"), blocks(g, w)


REFUSED: dict[str, tuple[Sides, tuple[str, str], str]] = {
    "scales of rows as they come": (
        _as_they_come,
        ("f8e4m3",) * 2,
        "lay it out with the contracted axis first",
    ),
    "scales that are computed": (_computed_scale, ("f8e4m3",) * 2, "it has to be an input of the graph"),
    "no factor": (
        _not_a_factor,
        ("f8e4m3",) * 2,
        "node p: operand 0 of the matmul is computed by cast node c",
    ),
    "two types": (
        lambda g, x, w: (rows(g, x), blocks(g, w)),
        ("f8e5m2", "f8e4m3"),
        "multiplies a tensor of f8e5m2 by one of f8e4m3",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    sides, dtypes, told = REFUSED[name]
    with pytest.raises(LoweringError, match=re.escape(told)):
        region(sides, dtypes)


@pytest.mark.parametrize("constant", [False, True])
def test_a_copy_begins_with_any_scale_of_a_block_where_it_is_constant(constant: bool, h200: Machine) -> None:
    g = GraphBuilder("short")
    x, w = g.input("x", (256, 256), "f8e4m3"), g.input("w", (256, 256), "f8e4m3")
    right = g.dequantize(w, g.input("s", (2, 2), "f32", constant=constant), block=(128, 128))
    g.output(g.cast(g.matmul(g.cast(x, "bf16"), g.cast(right, "bf16"), transpose_b=True), "bf16", name="y"))
    if not constant:
        with pytest.raises(LoweringError, match=r'input s has an element for every 128 by 128 .* "constant"'):
            find_region(g.build())
        return
    found = find_region(g.build())
    (scale,) = (source.view for source in found.factor_sources)
    assert (scale.packing, scale.strides, scale.apart) == (Packing.SPREAD, (8, 1), 4)
    assert next(structures(found, h200), None) is not None


GRAPHS = sorted((Path(__file__).parents[2] / "docs" / "f8" / "graphs").glob("*.json"))


@pytest.mark.parametrize("path", GRAPHS, ids=lambda path: path.stem)
def test_graphs_to_be_measured_are_one_kernel(path: Path, h200: Machine) -> None:
    found = find_region(load_graph(path))
    assert next(structures(found, h200), None) is not None
    assert bool(found.factor_sources) == path.stem.startswith("blocks")
