"""The register tensors: promotion, rounding, layouts, reductions, and the elementwise functions."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from wsopt.interpret import InterpreterError, mathematics
from wsopt.interpret.constants import constexpr
from wsopt.interpret.dtypes import DTYPES, FLOAT8E4NV, FLOAT8E5, FLOAT32, INT32, DType, named
from wsopt.interpret.layouts import BlockedLayout, SliceLayout
from wsopt.interpret.mathematics import PropagateNan
from wsopt.interpret.memory import allocation_name
from wsopt.interpret.tensor import Tensor

ROWS = BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
BY_NAME = {dtype.name: dtype for dtype in DTYPES}
BF16, F16 = BY_NAME["bfloat16"], BY_NAME["float16"]


def tensor(values: Any, dtype: DType = FLOAT32, layout: Any = ROWS) -> Tensor:
    return Tensor(np.asarray(values).astype(dtype.numpy), dtype, layout)


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        (FLOAT32, BF16, FLOAT32),
        (F16, BF16, F16),
        (BF16, BF16, BF16),
        (INT32, BF16, FLOAT32),
        (INT32, INT32, INT32),
    ],
)
def test_promotion(left: DType, right: DType, result: DType) -> None:
    assert (tensor([[1.0]], left) + tensor([[2.0]], right)).dtype == result


def test_numbers_take_the_tensor_type() -> None:
    assert (tensor([[1.0]], BF16) * 2.5).dtype == BF16
    assert (2 - tensor([[1]], INT32)).data.item() == 1
    assert (tensor([[1]], INT32) * 0.5).dtype == FLOAT32
    assert (tensor([[1]], INT32) / 2).data.item() == 0.5
    assert (tensor([[1.0]], BF16) / 3).dtype == FLOAT32


def test_narrow_arithmetic_rounds_once() -> None:
    got = tensor([[256.0]], BF16) + tensor([[1.0]], BF16)
    assert float(got.data.item()) == 256.0


def test_conversions_round_and_saturate() -> None:
    wide = tensor([[1000.0, -1e6, 0.3]])
    assert wide.to(FLOAT8E4NV).data.astype(np.float32).tolist()[0][:2] == [448.0, -448.0]
    assert wide.to(FLOAT8E5).data.astype(np.float32).tolist()[0][1] == -57344.0
    assert wide.to(BF16).data.tolist() == wide.data.astype(ml_dtypes.bfloat16).tolist()
    assert wide.to(INT32).data.tolist() == [[1000, -1000000, 0]]


def test_arithmetic_on_8_bit_floats_is_refused() -> None:
    with pytest.raises(InterpreterError, match="8-bit floats"):
        tensor([[1.0]], FLOAT8E5) + 1.0


def test_reductions_and_expansion() -> None:
    x = tensor(np.arange(8.0).reshape(2, 4))
    total = x.sum(1)
    assert total.data.tolist() == [6, 22]
    assert total.layout == SliceLayout(1, ROWS)
    assert (x - x.max(axis=1)[:, None]).data.max() == 0
    assert x.max(0)[None, :].shape == [1, 4]
    with pytest.raises(InterpreterError, match="do not broadcast"):
        x + total


def test_split_forgets_the_layout() -> None:
    x = tensor(np.arange(8.0).reshape(2, 4))
    low, high = x.reshape([2, 2, 2]).permute((0, 2, 1)).split()
    assert (low.data.tolist(), high.data.tolist()) == ([[0, 1], [4, 5]], [[2, 3], [6, 7]])
    assert low.layout is None
    with pytest.raises(InterpreterError, match="different layouts"):
        low + tensor(np.zeros((2, 2)))


@pytest.mark.parametrize("name", sorted(mathematics.FLOAT_FUNCTIONS))
def test_float_functions(name: str) -> None:
    reference = {"exp2": lambda v: 2**v, "rsqrt": lambda v: v**-0.5, "sqrt_rn": math.sqrt}
    function = reference.get(name) or getattr(math, name)
    values = [0.25, 1.0, 2.5]
    got = mathematics.float_function(name)(tensor([values]))
    assert got.data[0] == pytest.approx([function(value) for value in values], rel=1e-5)


def test_float_functions_are_of_float32() -> None:
    with pytest.raises(InterpreterError, match=r"gl\.exp needs a float32 or float64 tensor, got bfloat16"):
        mathematics.float_function("exp")(tensor([[1.0]], BF16))


def test_erf_is_odd_and_bounded() -> None:
    values = np.linspace(-4, 4, 101)
    got = mathematics.float_function("erf")(tensor([values])).data[0]
    assert got == pytest.approx([math.erf(value) for value in values], abs=2e-7)


def test_where_minimum_maximum_abs_fma() -> None:
    x = tensor([[-1.0, 2.0]])
    assert mathematics.where(x > 0, x, float("-inf")).data.tolist() == [[-math.inf, 2]]
    assert mathematics.maximum(x, 0.0).data.tolist() == [[0, 2]]
    assert mathematics.minimum(7, constexpr(3)) == 3
    assert mathematics.absolute(-x).data.tolist() == [[1, 2]]
    assert mathematics.fma(x, x, 1.0).data.tolist() == [[2, 5]]


def test_maxima_drop_nan_unless_told_to_keep_it() -> None:
    x, y = tensor([[math.nan, 1.0, 3.0]]), tensor([[2.0, math.nan, 4.0]])
    for name, other in (("maximum", 4.0), ("minimum", 3.0)):
        extreme = getattr(mathematics, name)
        for dropping in ({}, {"propagate_nan": PropagateNan.NONE}):
            assert extreme(x, y, **dropping).data.tolist() == [[2, 1, other]]
        for rule in (PropagateNan.ALL, constexpr(PropagateNan.ALL)):
            kept = extreme(x, y, propagate_nan=rule).data
            np.testing.assert_array_equal(kept, [[math.nan, math.nan, other]])
        with pytest.raises(InterpreterError, match=rf"gl\.{name}: propagate_nan is True"):
            extreme(x, y, propagate_nan=True)


def test_maxima_in_assembly_keep_nan_with_their_modifier() -> None:
    x, y = tensor([[math.nan]]), tensor([[2.0]])
    plain, keeping = (
        mathematics.inline_asm(f"max{how}.f32 $0, $1, $2;", "=f,f,f", [x, y], FLOAT32) for how in ("", ".NaN")
    )
    assert plain.data.item() == 2
    assert math.isnan(keeping.data.item())
    with pytest.raises(InterpreterError, match=r"add takes no \.NaN"):
        mathematics.inline_asm("add.NaN.f32 $0, $1, $2;", "=f,f,f", [x, y], FLOAT32)


@pytest.mark.parametrize(
    ("asm", "expected"), [("tanh.approx.f32 $0, $1;", 0.7615942), ("ex2.approx.ftz.f32 $0, $1;", 2.0)]
)
def test_inline_assembly(asm: str, expected: float) -> None:
    got = mathematics.inline_asm(asm, "=f,f", [tensor([[1.0]])], FLOAT32, True, 1)
    assert got.data.item() == pytest.approx(expected)


def test_roundings_in_assembly_round_to_nearest_even() -> None:
    x = tensor([[1 + 2**-9, 1 + 3 * 2**-9, 6e4]])
    for name, to in (("f16", "float16"), ("bf16", "bfloat16")):
        asm = f"cvt.rn.{name}x2.f32 $0, $2, $1;"
        got = mathematics.inline_asm(asm, "=r,f,f", [x], named(to), True, 2)
        assert (got.dtype, got.data.tolist()) == (
            named(to),
            x.data.astype(named(to).numpy).tolist(),
        )
        with pytest.raises(InterpreterError, match=f"takes float32 to {to}"):
            mathematics.inline_asm(asm, "=r,f,f", [x], FLOAT32, True, 2)
        with pytest.raises(InterpreterError, match="is not one known"):
            mathematics.inline_asm(asm, "=r,f,f", [x], named(to), True, 1)


def test_constexpr_is_a_number_with_a_value() -> None:
    depth = constexpr(3)
    assert (7 % depth, depth.value, f"{constexpr(ROWS).value!r}"[:7]) == (1, 3, "Blocked")


def test_allocation_names() -> None:
    assert allocation_name("    ring = gl.allocate_shared_memory(") == "ring"
    assert allocation_name("    return gl.allocate_shared_memory(x == 1)") == "shared memory"
