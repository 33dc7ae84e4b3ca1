"""Quantized weights in the front end: groups along the contracted axis, packings, arithmetic in 16 bits, refusals."""

from __future__ import annotations

from typing import Any

import pytest

from wsopt.errors import LoweringError
from wsopt.frontend.region import find_region
from wsopt.frontend.types import Region
from wsopt.graph.builder import GraphBuilder
from wsopt.graph.types import DType
from wsopt.tensors.statements import Statement
from wsopt.tensors.views import Packing, Role, Source


def region(
    dtype: str = "i4",
    group: int = 128,
    *,
    k: int = 512,
    constant: bool = True,
    scale: str = "bf16",
    type_: str = "bf16",
    **zero: Any,
) -> Region:
    """x (dequantize(q))' with so many elements a group."""
    g = GraphBuilder("quantized")
    x, q = g.input("x", (64, k), type_), g.input("q", (256, k), dtype, constant=constant)
    s = g.input("s", (256, k // group), scale, constant=constant)
    if isinstance(of := zero.get("zero"), str):
        zero["zero"] = g.input("z", (256, k // group), of, constant=True)
    w = g.cast(g.dequantize(q, s, group, name="d", **zero), type_)
    g.output(g.cast(g.matmul(x, w, transpose_b=True), "bf16", name="y"))
    return find_region(g.build())


def source(found: Region, tensor: str) -> Source:
    return next(one for one in found.sources if one.view.tensor == tensor)


def body(found: Region) -> list[tuple[str, DType]]:
    return [(item.primitive, item.dtype) for item in found.body if isinstance(item, Statement)]


def test_scales_of_groups_are_turned_and_numbers_packed() -> None:
    found = region()
    numbers, scales = source(found, "q").view, source(found, "s").view
    assert (numbers.packing, numbers.each, numbers.zero) == (Packing.FRAGMENTS, 1, None)
    assert (scales.packing, scales.each) == (Packing.TURNED, 128)
    assert (scales.roles, scales.extents, scales.strides) == ((Role.STREAM, Role.ROW), (4, 256), (256, 1))
    assert scales.of(Role.STREAM, 128) == scales.of(Role.STREAM, 64) == 1


@pytest.mark.parametrize(
    ("scale", "zero", "expected"),
    [
        ("bf16", {}, [("mul", DType.BF16)]),
        ("bf16", {"zero": 8}, [("mul", DType.BF16)]),
        ("bf16", {"zero": "i8"}, [("sub", DType.BF16), ("mul", DType.BF16)]),
        ("bf16", {"zero": 1000}, [("sub", DType.F32), ("mul", DType.F32), ("round_bf16", DType.BF16)]),
        ("bf16", {"zero": 0.5}, [("sub", DType.F32), ("mul", DType.F32), ("round_bf16", DType.BF16)]),
        ("bf16", {"zero": "bf16"}, [("sub", DType.F32), ("mul", DType.F32), ("round_bf16", DType.BF16)]),
        ("f32", {}, [("mul", DType.F32), ("round_bf16", DType.BF16)]),
    ],
)
def test_products_that_round_once_stay_in_16_bits(
    scale: str, zero: dict[str, Any], expected: list[tuple[str, DType]]
) -> None:
    assert body(region(scale=scale, **zero)) == expected


def test_four_bits_beside_a_zero_are_unsigned() -> None:
    assert source(region(zero=8), "q").view.zero == 8
    assert source(region(zero="bf16"), "q").view.zero == source(region(zero=1000), "q").view.zero == 0


def test_a_scale_of_a_channel_moves_behind_the_product() -> None:
    found = region("i8", group=512)
    assert body(found) == [("round_bf16", DType.BF16)]
    assert source(found, "s").spans == {Role.ROW}
    assert [item.primitive for item in found.statements if isinstance(item, Statement)] == [
        "mul",
        "round_bf16",
    ]


def test_numbers_of_8_bits_are_read_as_they_lie_where_they_cannot_be_packed() -> None:
    assert source(region("i8", group=32, k=96), "q").view.packing is None


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (
            {"dtype": "i8", "constant": False},
            'input s has an element for every 128 .* say that it is "constant"',
        ),
        ({"constant": False, "group": 512}, 'input q is i4; .* it has to be "constant"'),
        ({"k": 320, "group": 64}, "input q is i4; .* a multiple of 128"),
        ({"zero": "i4"}, "input z is i4; not lowered there"),
    ],
)
def test_refusals(asked: dict[str, Any], told: str) -> None:
    with pytest.raises(LoweringError, match=told):
        region(**asked)


@pytest.mark.parametrize(
    ("batch", "share", "told"),
    [
        ((), {"block": (128, 128)}, 'all rows of a tile share.*with "group": 128'),
        ((3,), {"group": 128}, "matrices that follow each other.*compile the product of one matrix"),
    ],
)
def test_groups_that_are_no_matrix_of_rows_are_refused(
    batch: tuple[int, ...], share: dict[str, Any], told: str
) -> None:
    g = GraphBuilder("shared")
    x, q = g.input("x", (*batch, 64, 512), "bf16"), g.input("q", (*batch, 256, 512), "i8", constant=True)
    s = g.input("s", (*batch, 2 if "block" in share else 256, 4), "f32", constant=True)
    w = g.cast(g.dequantize(q, s, name="d", **share), "bf16")
    g.output(g.matmul(x, w, transpose_b=True, name="y"))
    with pytest.raises(LoweringError, match=told):
        find_region(g.build())


def test_two_sizes_of_groups_along_one_axis_are_refused() -> None:
    g = GraphBuilder("two")
    x = g.input("x", (64, 512), "bf16")
    weights = []
    for name, group in (("a", 128), ("b", 32)):
        q, s = (
            g.input(name, (256, 512), "i8", constant=True),
            g.input(f"s{name}", (256, 512 // group), "bf16"),
        )
        weights.append(g.cast(g.dequantize(q, s, group, name=f"d{name}"), "bf16"))
    first, second = (g.matmul(x, one, transpose_b=True) for one in weights)
    g.output(g.cast(g.mul(first, second), "bf16", name="y"))
    with pytest.raises(LoweringError, match="do not share their streamed axis"):
        find_region(g.build())


# --- zeros ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("type_", "zero"), [("bf16", -128), ("f16", -1024)])
def test_numbers_of_four_bits_and_their_zeros_are_raised_alike(type_: str, zero: int) -> None:
    found = region(type_=type_, scale=type_, zero="i8")
    assert (source(found, "q").view.zero, source(found, "z").view.zero) == (zero, zero)
    assert [dtype for _, dtype in body(found)] == 2 * [DType(type_)]
    assert source(found, "s").view.zero is None


@pytest.mark.parametrize("of", [{"zero": "bf16"}, {"dtype": "i8", "zero": "i8"}])
def test_zeros_in_f32_and_of_numbers_of_eight_bits_are_not_raised(of: dict[str, Any]) -> None:
    found = region(**of)
    assert source(found, "z").view.zero is None
    assert source(found, "q").view.zero in (None, 0)


# --- scales of partial sums -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        ({}, [("round_bf16", DType.BF16)]),
        ({"dtype": "i8"}, [("round_bf16", DType.BF16)]),
        ({"scale": "f32"}, [("round_bf16", DType.BF16)]),
        ({"zero": 8}, [("round_bf16", DType.BF16)]),
        ({"zero": "i8"}, [("sub", DType.BF16)]),
    ],
)
def test_scales_of_groups_may_be_factors_of_partial_sums(of: dict[str, Any], expected: list[Any]) -> None:
    plain = region(**of)
    found = plain.of_sums(True)
    assert body(found) == expected
    (product,) = found.contractions
    assert found.body[-1] == product
    assert product.promote
    assert product.left == found.body[-2].name
    (factor,) = found.factor_sources
    assert (factor.view.tensor, product.factors) == ("s", (factor.name,))
    # All else is as it was, and the other way is still there.
    assert plain.of_sums(False) == plain
    assert not plain.promote
    assert (found.sources, found.statements, found.outputs) == (
        plain.sources,
        plain.statements,
        plain.outputs,
    )


@pytest.mark.parametrize(
    "of", [{"zero": 1000}, {"zero": 0.5}, {"zero": "bf16"}, {"dtype": "i8", "group": 512}]
)
def test_numbers_that_are_not_exact_and_scales_of_channels_are_no_factors_of_partial_sums(
    of: dict[str, Any],
) -> None:
    found = region(**of)
    assert found.scaled_sums is None
    assert found.of_sums(True) is found
