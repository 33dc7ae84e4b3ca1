"""Scales of groups and blocks: `quantize`, `quantize_scale` and `dequantize`, element by element in f64; refusals."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from wsopt.errors import InputError
from wsopt.graph import OPS, GraphBuilder
from wsopt.graph.types import DType

F8 = DType.F8E4M3.numpy


def run(op: str, *arrays: Any, **attrs: Any) -> Any:
    return OPS[op].evaluate(arrays, {"group": None, "block": None, **attrs})


def steps_of_f8() -> Any:
    """The numbers of f8e4m3 that are not negative, in order, in f64."""
    return np.arange(0x7F, dtype=np.uint8).view(F8).astype(np.float64)


def rounded(quotient: float) -> float:
    """A number in f8e4m3, to nearest even, by its definition."""
    if np.isnan(quotient):
        return quotient
    numbers = steps_of_f8()
    away = np.abs(numbers - min(abs(quotient), 448.0))
    nearest = [place for place in range(len(numbers)) if away[place] == away.min()]
    even = next(place for place in nearest if len(nearest) == 1 or place % 2 == 0)
    return float(np.copysign(numbers[even], quotient))


@pytest.mark.parametrize("size", [1e-3, 1.0, 3e4])
def test_quantize_is_its_definition(size: float) -> None:
    x = (size * np.random.default_rng(0).standard_normal((6, 16))).astype(np.float32)
    scale, q = (run(op, x, group=8, dtype=DType.F8E4M3) for op in ("quantize_scale", "quantize"))
    wide = x.astype(np.float64).reshape(6, 2, 8)
    np.testing.assert_allclose(scale, np.abs(wide).max(-1) / 448, rtol=1e-7)
    quotient = x.reshape(6, 2, 8) / scale[..., None]  # in f32, as the format says
    expected = [[[rounded(float(one)) for one in group] for group in row] for row in quotient]
    assert (q.astype(np.float64).reshape(6, 2, 8) == expected).all()
    assert (np.abs(q.astype(np.float64)).reshape(6, 2, 8).max(-1) == 448).all()


def test_ties_go_to_the_even_number() -> None:
    numbers = steps_of_f8()
    ties = ((numbers[:-1] + numbers[1:]) / 2).astype(np.float32)
    x = np.concatenate([ties, -ties, [448.0, 0]])[None].astype(np.float32)  # the largest makes the scale one
    q = run("quantize", x, group=x.size, dtype=DType.F8E4M3)
    places = q.view(np.uint8)[0, : 2 * len(ties)] & 0x7F
    assert (places % 2 == 0).all()
    assert np.array_equal(
        run("quantize", np.array([[127.0, 0.5, 1.5, -2.5]]), group=4, dtype=DType.I8), [[127, 0, 2, -2]]
    )


def test_scales_of_nothing_of_no_number_and_of_infinity() -> None:
    x = np.array([[0, -0.0], [np.nan, 1], [np.inf, 2], [-np.inf, np.nan], [1e-45, 0]], np.float32)
    scale = run("quantize_scale", x, group=2, dtype=DType.F8E4M3)[:, 0]
    q = run("quantize", x, group=2, dtype=DType.F8E4M3).astype(np.float32)
    assert scale[0] == scale[4] == 1
    assert np.isnan(scale[[1, 3]]).all()
    assert np.isposinf(scale[2])
    assert not q[[0, 4]].any()
    assert np.isnan(q[[1, 3]]).all()
    assert np.isnan(q[2, 0])
    assert q[2, 1] == 0


def test_blocks_share_a_scale() -> None:
    x = np.random.default_rng(1).standard_normal((4, 6)).astype(np.float32)
    scale = run("quantize_scale", x, block=(2, 3), dtype=DType.I8)
    q = run("quantize", x, block=(2, 3), dtype=DType.I8)
    back = run("dequantize", q, scale, block=(2, 3))
    for row, column in np.ndindex(4, 6):
        own = scale[row // 2, column // 3]
        block = x[row // 2 * 2 : row // 2 * 2 + 2, column // 3 * 3 : column // 3 * 3 + 3]
        assert own == np.abs(block).max() / np.float32(127)
        assert q[row, column] == np.rint(x[row, column] / own)
        assert back[row, column] == q[row, column] * own


REFUSED = {
    "neither": ({"dtype": "i8"}, "group and block: neither is given; a scale is shared by one of them"),
    "both": ({"dtype": "i8", "group": 4, "block": [2, 2]}, "group and block: both are given"),
    "group": (
        {"dtype": "i8", "group": 5},
        "5 does not divide the last extent of shape [4, 16]",
    ),
    "block": (
        {"dtype": "i8", "block": [3, 4]},
        "[3, 4] does not divide the last two extents of shape [4, 16]",
    ),
    "one extent": ({"dtype": "i8", "block": [4]}, "/nodes/0/attrs/block: [4]; allowed: [rows, columns]"),
    "no extent": (
        {"dtype": "i8", "block": [0, 4]},
        "/nodes/0/attrs/block/0: found 0; wants an integer from 1",
    ),
    "dtype": (
        {"dtype": "f8e5m2", "group": 4},
        "/nodes/0/attrs/dtype: f8e5m2; quantizing is to one of f8e4m3 i8",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    attrs, told = REFUSED[name]
    g = GraphBuilder("g")
    x = g.input("x", (4, 16), "bf16")
    with pytest.raises(InputError, match=re.escape(told)):
        g.apply("quantize", (x,), attrs)


def test_scales_of_blocks_have_their_shape() -> None:
    g = GraphBuilder("g")
    q, scale = g.input("q", (4, 16), "f8e4m3"), g.input("s", (4, 4), "f32")
    with pytest.raises(InputError, match=re.escape("shape [4, 4]; block [2, 4] wants [2, 4]")):
        g.dequantize(q, scale, block=[2, 4])
