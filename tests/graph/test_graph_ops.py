"""Every op of the table against its definition, written again with Python's math or plain NumPy."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from graph_examples import single

from wsopt.errors import InputError
from wsopt.graph import OPS, CostClass, DType, evaluate, random_inputs
from wsopt.graph.meaning import cast_array, cut_to_tf32, erf
from wsopt.primitives import PRIMITIVES

Array = Any
Pairwise = Callable[[float, float], float]

F32, BF16, F16, I32, I8, BOOL = "f32", "bf16", "f16", "i32", "i8", "bool"


def run(op: str, *arrays: Array, **attrs: Any) -> Array:
    """The op's value on these arrays and scalars, through a graph of its own."""
    words = {dtype.numpy: dtype.value for dtype in DType if dtype is not DType.I4}
    tensors = [a if isinstance(a, int | float | str) else (a.shape, words[a.dtype]) for a in arrays]
    inputs = {f"x{i}": a for i, a in enumerate(arrays) if not isinstance(a, int | float | str)}
    return evaluate(single(op, *tensors, **attrs), inputs)["y"]


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def close(actual: Array, expected: Any, tolerance: float = 2e-6) -> None:
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


# --- elementwise ----------------------------------------------------------------------------------------

UNARY: dict[str, Callable[[float], float]] = {
    "neg": lambda x: -x,
    "abs": lambda x: x if x > 0 else -x,
    "exp": math.exp,
    "exp2": lambda x: 2.0**x,
    "log": math.log,
    "log2": math.log2,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: x**-0.5,
    "reciprocal": lambda x: 1 / x,
    "tanh": math.tanh,
    "sigmoid": lambda x: math.exp(x) / (1 + math.exp(x)),
    "erf": math.erf,
    "sin": math.sin,
    "cos": math.cos,
    "relu": lambda x: x if x > 0 else 0.0,
    "silu": lambda x: x * math.exp(x) / (1 + math.exp(x)),
}
NEEDS_POSITIVE = {"log", "log2", "sqrt", "rsqrt", "reciprocal"}
BINARY: dict[str, Pairwise] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "maximum": max,
    "minimum": min,
    "pow": lambda a, b: math.exp(b * math.log(a)),
}
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "equal": lambda a, b: a == b,
    "not_equal": lambda a, b: a != b,
    "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b,
    "greater": lambda a, b: a > b,
    "greater_equal": lambda a, b: a >= b,
}
LOGICAL: dict[str, Callable[[bool, bool], bool]] = {
    "logical_and": lambda a, b: a and b,
    "logical_or": lambda a, b: a or b,
}
REDUCTIONS: dict[str, Callable[[list[float]], float]] = {
    "reduce_sum": math.fsum,
    "reduce_max": max,
    "reduce_min": min,
    "reduce_mean": lambda row: math.fsum(row) / len(row),
    "logsumexp": lambda row: math.log(math.fsum(map(math.exp, row))),
}
OTHERS = {
    *("matmul", "grouped_matmul", "gelu", "cast", "logical_not", "where", "iota", "reshape", "transpose"),
    *("slice", "concat", "pad", "gather", "softmax", "rms_norm", "layer_norm"),
    *("reduce_argmax", "cumsum", "scatter_add"),
    *("dequantize", "quantize", "quantize_scale"),
}


def test_every_op_is_tested_here() -> None:
    assert {*UNARY, *BINARY, *COMPARISONS, *LOGICAL, *REDUCTIONS, *OTHERS} == set(OPS)


@pytest.mark.parametrize("op", UNARY)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_unary(op: str, dtype: Any) -> None:
    x = normal(5, 7)
    x = (np.abs(x) + 0.1 if op in NEEDS_POSITIVE else x).astype(dtype)
    close(run(op, x), [[UNARY[op](float(v)) for v in row] for row in x])


@pytest.mark.parametrize("op", BINARY)
def test_binary_broadcasts(op: str) -> None:
    a, b = np.abs(normal(3, 1, 5)) + 0.1, np.abs(normal(4, 1, seed=1)) + 0.1
    expected = [
        [[BINARY[op](float(a[i, 0, k]), float(b[j, 0])) for k in range(5)] for j in range(4)]
        for i in range(3)
    ]
    close(run(op, a, b), expected)


@pytest.mark.parametrize("op", BINARY)
def test_binary_of_mixed_dtypes_is_f32(op: str) -> None:
    a, b = np.array([1, 2, 7], np.int8), np.array([0.5, 2, 3], ml_dtypes.bfloat16)
    close(run(op, a, b), [BINARY[op](float(p), float(q)) for p, q in zip(a, b, strict=True)])


@pytest.mark.parametrize("op", ["add", "sub", "mul", "maximum", "minimum"])
def test_integers_stay_integers(op: str) -> None:
    a, b = np.array([100, -100, 7], np.int8), np.array([100, 3, -7], np.int32)
    result = run(op, a, b)
    assert result.dtype == np.int32
    assert result.tolist() == [BINARY[op](int(p), int(q)) for p, q in zip(a, b, strict=True)]


def test_scalars_are_i32_or_f32_by_how_they_are_written() -> None:
    a = np.array([1, 2], np.int8)
    assert run("add", a, 2).dtype == np.int32
    assert run("add", a, 2.0).dtype == np.float32
    assert run("add", normal(2), 2).dtype == np.float32
    assert run("exp", 1.0).shape == ()


@pytest.mark.parametrize("op", COMPARISONS)
@pytest.mark.parametrize("dtype", [np.float32, np.int32, ml_dtypes.float8_e4m3fn])
def test_comparison(op: str, dtype: Any) -> None:
    a = np.array([1, 2, 3, 4], dtype)
    result = run(op, a, 2)
    assert result.dtype == np.bool_
    assert result.tolist() == [COMPARISONS[op](float(v), 2.0) for v in a]


@pytest.mark.parametrize("op", LOGICAL)
def test_logical(op: str) -> None:
    a, b = np.array([[False], [True]]), np.array([False, True])
    assert run(op, a, b).tolist() == [[LOGICAL[op](p, q) for q in (False, True)] for p in (False, True)]


def test_logical_not() -> None:
    assert run("logical_not", np.array([True, False])).tolist() == [False, True]


@pytest.mark.parametrize(("approximate", "tolerance"), [("none", 2e-6), ("tanh", 2e-6), (None, 2e-6)])
def test_gelu(approximate: str | None, tolerance: float) -> None:
    def exact(v: float) -> float:
        return v * (1 + math.erf(v / math.sqrt(2))) / 2

    def tanh(v: float) -> float:
        return v / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)))

    x = 3 * normal(40)
    attrs = {"approximate": approximate} if approximate else {}
    expected = [(tanh if approximate == "tanh" else exact)(float(v)) for v in x]
    close(run("gelu", x, **attrs), expected, tolerance)


def test_where() -> None:
    condition, a = np.array([True, False, True]), np.array([1.5, 2.5, 3.5], np.float16)
    close(run("where", condition, a, "-inf"), [1.5, -math.inf, 3.5])
    assert run("where", condition, 1, 2).tolist() == [1, 2, 1]
    assert run("where", condition, 1, 2).dtype == np.int32
    assert run("where", condition, ~condition, condition).tolist() == [False, False, False]


def test_erf_is_accurate_to_f32() -> None:
    x = np.linspace(-6, 6, 100_001).astype(np.float32)
    assert np.max(np.abs(erf(x) - np.array([math.erf(float(v)) for v in x]))) < 2e-7
    special = erf(np.array([0.0, -0.0, np.inf, -np.inf, np.nan], np.float32))
    np.testing.assert_array_equal(special, [0, 0, 1, -1, np.nan])


# --- casts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "pairs"),
    [
        # Halfway cases go to the even neighbour. After 1 comes 1 + 2**-7 in bf16, 2**-10 in f16.
        ("bf16", [(1 + 2**-8, 1), (1 + 3 * 2**-8, 1 + 2**-6), (3.4e38, math.inf), (-math.inf, -math.inf)]),
        ("f16", [(1 + 2**-11, 1), (1 + 3 * 2**-11, 1 + 2**-9), (65519, 65504), (65520, math.inf)]),
        ("f8e4m3", [(1 + 2**-4, 1), (1 + 3 * 2**-4, 1.25), (449, 448), (1e9, 448), (-math.inf, -448)]),
        ("f8e5m2", [(1.125, 1), (1.375, 1.5), (61440, 57344), (math.inf, 57344), (-1e9, -57344)]),
        ("i32", [(0.5, 0), (1.5, 2), (-2.5, -2), (1e10, 2**31 - 1), (-math.inf, -(2**31)), (math.nan, 0)]),
        ("i8", [(127.4, 127), (128, 127), (-1000, -128), (math.nan, 0)]),
        ("i4", [(7.5, 7), (6.5, 6), (-9, -8), (2, 2)]),
        ("bool", [(0, False), (-0.0, False), (0.25, True), (math.nan, True)]),
    ],
)
def test_cast_rounds_to_even_and_saturates(dtype: str, pairs: list[tuple[float, float]]) -> None:
    result = run("cast", np.array([x for x, _ in pairs], np.float32), dtype=dtype)
    assert result.dtype == DType(dtype).numpy
    assert [float(v) for v in result] == [float(y) for _, y in pairs]


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f8e4m3", "f8e5m2"])
def test_cast_keeps_nan(dtype: str) -> None:
    assert np.isnan(run("cast", np.array([np.nan], np.float32), dtype=dtype).astype(np.float32)).all()


def test_cast_of_integers_saturates_without_rounding() -> None:
    assert cast_array(np.array([2**31 - 1, 200, -200], np.int32), DType.I8).tolist() == [127, 127, -128]
    assert cast_array(np.array([2**24 + 1], np.int32), DType.I32).tolist() == [2**24 + 1]
    assert cast_array(np.array([True, False]), DType.F16).tolist() == [1.0, 0.0]


# --- contraction ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e5m2])
def test_matmul(transpose_a: bool, transpose_b: bool, dtype: Any) -> None:
    a, b = normal(2, 1, 4, 6).astype(dtype), normal(3, 6, 5, seed=1).astype(dtype)
    expected = np.einsum("pqmk,rkn->prmn", a.astype(np.float64), b.astype(np.float64))
    a = np.ascontiguousarray(np.swapaxes(a, -1, -2)) if transpose_a else a
    b = np.ascontiguousarray(np.swapaxes(b, -1, -2)) if transpose_b else b
    close(run("matmul", a, b, transpose_a=transpose_a, transpose_b=transpose_b), expected)


def test_matmul_of_i8_is_exact() -> None:
    a, b = np.full((2, 2000), -128, np.int8), np.full((2000, 3), -128, np.int8)
    result = run("matmul", a, b)
    assert result.dtype == np.int32
    assert (result == 2000 * 128 * 128).all()


def test_matmul_of_f32_by_precision() -> None:
    a, b = np.array([[1 + 2**-12, 1]], np.float32), np.array([[1], [2**-20]], np.float32)
    assert run("matmul", a, b, precision="ieee")[0, 0] == 1 + 2**-12 + 2**-20
    assert run("matmul", a, b, precision="tf32")[0, 0] == 1 + 2**-20


def test_tf32_has_the_first_bits() -> None:
    x = np.array([1 + 2**-11, 1 + 3 * 2**-11, -(1 + 3 * 2**-11), np.inf, np.nan, 0], np.float32)
    expected = [1, 1 + 2**-10, -(1 + 2**-10), np.inf, np.nan, 0]
    np.testing.assert_array_equal(cut_to_tf32(x), np.array(expected, np.float32))


# --- movement, reductions, composites -------------------------------------------------------------------


def test_iota() -> None:
    assert run("iota", shape=[2, 3], axis=1).tolist() == [[0, 1, 2], [0, 1, 2]]
    assert run("iota", shape=[2, 3], axis=-2).tolist() == [[0, 0, 0], [1, 1, 1]]


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int8, np.bool_])
def test_movement_keeps_dtype(dtype: Any) -> None:
    x = np.arange(6).reshape(2, 3).astype(dtype)
    flat = run("reshape", x, shape=[3, 2])
    assert flat.dtype == x.dtype
    assert flat.tolist() == [[x[0, 0], x[0, 1]], [x[0, 2], x[1, 0]], [x[1, 1], x[1, 2]]]
    turned = run("transpose", x, perm=[1, 0])
    assert turned.dtype == x.dtype
    assert turned.tolist() == [[x[j, i] for j in range(2)] for i in range(3)]


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize("keepdims", [False, True])
def test_reduction(op: str, keepdims: bool) -> None:
    x = normal(3, 4, 5)
    expected = np.array(
        [[REDUCTIONS[op]([float(v) for v in x[i, :, k]]) for k in range(5)] for i in range(3)]
    )
    close(run(op, x, axis=-2, keepdims=keepdims), expected[:, None] if keepdims else expected)


def test_reductions_of_integers() -> None:
    x = np.array([[100, 100], [3, 4]], np.int8)
    assert run("reduce_sum", x, axis=1).tolist() == [200, 7]
    assert run("reduce_sum", x, axis=1).dtype == np.int32
    assert run("reduce_mean", x, axis=1).tolist() == [100, 3.5]


def test_logsumexp_of_infinities_and_large_values() -> None:
    x = np.array([[-np.inf, -np.inf], [-np.inf, 3], [np.inf, 3], [1000, 1000]], np.float32)
    close(run("logsumexp", x, axis=1), [-np.inf, 3, np.inf, 1000 + math.log(2)])
    assert np.isnan(run("logsumexp", np.array([np.nan, 1], np.float32), axis=0))


@pytest.mark.parametrize("axis", [-1, 0, None])
def test_softmax(axis: int | None) -> None:
    x = 10 * normal(4, 6)
    weights = np.exp(x.astype(np.float64))
    expected = weights / weights.sum(axis=-1 if axis is None else axis, keepdims=True)
    close(run("softmax", x, **({} if axis is None else {"axis": axis})), expected)


def test_softmax_of_masked_rows_and_large_values() -> None:
    x = np.array([[-np.inf, -np.inf], [-np.inf, 3], [3e38, 3e38]], np.float32)
    assert run("softmax", x).tolist() == [[0, 0], [0, 1], [0.5, 0.5]]
    assert np.isnan(run("softmax", np.array([[np.nan, 1]], np.float32))).all()


@pytest.mark.parametrize("eps", [None, 0.5])
def test_norms(eps: float | None) -> None:
    x, weight, bias = normal(3, 8), normal(8, seed=1), normal(8, seed=2)
    attrs = {} if eps is None else {"eps": eps}
    wide = x.astype(np.float64)
    root = np.sqrt((wide**2).sum(-1, keepdims=True) / 8 + (1e-6 if eps is None else eps))
    close(run("rms_norm", x, weight, **attrs), wide / root * weight)
    deviation = np.sqrt(wide.var(-1, keepdims=True) + (1e-5 if eps is None else eps))
    centred = wide - wide.mean(-1, keepdims=True)
    close(run("layer_norm", x, weight, bias, **attrs), centred / deviation * weight + bias)


@pytest.mark.parametrize("zero", ["none", "scalar", "tensor"])
def test_dequantize(zero: str) -> None:
    q, scale = np.arange(-8, 8, dtype=np.int8).reshape(2, 8), normal(2, 2)
    zeros = {"none": np.zeros((2, 2)), "scalar": np.full((2, 2), 8), "tensor": np.array([[1, 2], [3, 4]])}[
        zero
    ]
    more = {"none": [], "scalar": [8], "tensor": [zeros.astype(np.int8)]}[zero]
    expected = [[(float(q[i, j]) - zeros[i, j // 4]) * scale[i, j // 4] for j in range(8)] for i in range(2)]
    close(run("dequantize", q, scale, *more, group=4), expected)


def test_dequantize_of_i4_broadcasts_scales() -> None:
    graph = single("dequantize", ((3, 4), "i4"), ((2,), "f16"), group=2)
    inputs = random_inputs(graph, 0)
    q, scale = inputs["x0"].astype(float), inputs["x1"].astype(float)
    close(evaluate(graph, inputs)["y"], q * np.array([scale[0], scale[0], scale[1], scale[1]]))


# --- the table itself -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("axis", "start", "stop", "step", "expected"),
    [
        (1, 1, 3, 1, [[1, 2], [5, 6]]),
        (-1, 0, None, 2, [[0, 2], [4, 6]]),
        (1, -3, -1, 1, [[1, 2], [5, 6]]),
        (0, 1, None, 1, [[4, 5, 6, 7]]),
    ],
)
def test_slice(axis: int, start: int, stop: int | None, step: int, expected: list[list[int]]) -> None:
    x = np.arange(8, dtype=np.int32).reshape(2, 4)
    attrs = {"axis": axis, "start": start, "step": step} | ({} if stop is None else {"stop": stop})
    assert run("slice", x, **attrs).tolist() == expected


def test_concat() -> None:
    a, b, c = normal(2, 3), normal(2, 1, seed=1), normal(2, 4, seed=2)
    joined = run("concat", a, b, c, axis=1)
    assert joined.shape == (2, 8)
    assert joined[1].tolist() == [*a[1].tolist(), *b[1].tolist(), *c[1].tolist()]
    assert run("concat", a, a, axis=0).shape == (4, 3)


def test_pad() -> None:
    x = normal(2, 3)
    padded = run("pad", x.astype(np.float16), low=[1, 0], high=[0, 2])
    assert (padded.shape, padded.dtype) == ((3, 5), np.float16)
    assert padded[1:, :3].tolist() == x.astype(np.float16).tolist()
    assert np.abs(padded).sum() == np.abs(padded[1:, :3]).sum()
    with pytest.raises(InputError, match=re.escape("[1] for shape [2, 3]; allowed: 2 numbers, one an axis")):
        single("pad", ((2, 3), "f32"), low=[1], high=[0, 0])


def test_gather() -> None:
    x, indices = normal(5, 2, 3), np.array([[4, 0], [-1, 5], [2**31 - 1, 2]], np.int32)
    rows = run("gather", x, indices)
    assert rows.shape == (3, 2, 2, 3)
    assert rows[0].tolist() == [x[4].tolist(), x[0].tolist()]
    assert (rows[1] == 0).all()
    assert (rows[2, 0] == 0).all()
    assert (rows[2, 1] == x[2]).all()
    inner = run("gather", x.astype(ml_dtypes.bfloat16), np.array([1, 2], np.int32), axis=-2)
    assert (inner.shape, inner.dtype) == ((5, 2, 3), ml_dtypes.bfloat16)
    assert (inner[:, 0] == x[:, 1].astype(ml_dtypes.bfloat16)).all()
    assert (inner[:, 1] == 0).all()
    with pytest.raises(InputError, match="dtype f32; wants i32: cast the indices"):
        single("gather", ((4, 2), "f32"), ((3,), "f32"))


@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "told"),
    [
        ("slice", [(2, 4)], {"start": 4}, "4 of an axis of 4 elements; allowed: -4 to 3"),
        ("slice", [(2, 4)], {"stop": 5}, "5 of an axis of 4 elements; allowed: -4 to 4"),
        ("slice", [(2, 4)], {"start": 2, "stop": 2}, "2 with a start of 2: the slice is empty"),
        ("concat", [(2, 4), (3, 4)], {"axis": 1}, "shape [3, 4] differs from [2, 4] beside axis 1"),
    ],
)
def test_slices_and_joints_that_do_not_fit(
    op: str, shapes: list[tuple[int, ...]], attrs: dict[str, int], told: str
) -> None:
    with pytest.raises(InputError, match=re.escape(told)):
        single(op, *((shape, "f32") for shape in shapes), **attrs)


def test_table_is_ordered_complete_and_documented() -> None:
    primitives = [name for name in OPS if name in PRIMITIVES]
    assert list(OPS)[: len(primitives) + 1] == [*primitives, "matmul"]
    assert primitives[:2] == ["add", "sub"]
    assert len(OPS) == 58
    for name, spec in OPS.items():
        assert spec.name == name
        assert spec.doc.endswith(".")
        assert set(spec.scalars) <= set(spec.operands)


def test_cost_classes() -> None:
    by_class = {cost: {spec.name for spec in OPS.values() if spec.cost is cost} for cost in CostClass}
    assert by_class[CostClass.CONTRACTION] == {"matmul", "grouped_matmul"}
    assert by_class[CostClass.MOVEMENT] == {
        "reshape",
        "transpose",
        "slice",
        "concat",
        "pad",
        "gather",
        "scatter_add",
    }
    assert by_class[CostClass.REDUCTION] == {*REDUCTIONS, "reduce_argmax"}
    scaled = {"dequantize", "quantize", "quantize_scale"}
    assert by_class[CostClass.COMPOSITE] == {"softmax", "cumsum", "rms_norm", "layer_norm", *scaled}


# --- places ---------------------------------------------------------------------------------------------


def test_arg_max_is_the_first_of_equals_and_the_first_that_is_no_number() -> None:
    x = np.array([[1, 7, 7, 0], [-9, -5, -6, -5], [1, np.nan, 9, np.nan], [-np.inf] * 4], np.float32)
    found = run("reduce_argmax", x, axis=-1)
    assert (found.dtype, found.tolist()) == (np.dtype(np.int32), [1, 1, 1, 0])
    assert run("reduce_argmax", x, axis=0, keepdims=True).tolist() == [[0, 2, 2, 2]]
    assert run("reduce_argmax", np.array([3, 120, -7], np.int8), axis=0).tolist() == 1


def test_running_sums_have_the_dtype_of_arithmetic() -> None:
    x = normal(3, 50).astype(ml_dtypes.bfloat16)
    close(run("cumsum", x, axis=-1), np.cumsum(x.astype(np.float64), axis=1), 1e-5)
    close(run("cumsum", x, axis=0), np.cumsum(x.astype(np.float64), axis=0), 1e-5)
    found = run("cumsum", np.full(300, 100, np.int8), axis=0)
    assert (found.dtype, found[-1]) == (np.dtype(np.int32), 30000)


def test_rows_are_added_where_indices_say_and_left_out_where_these_are_outside() -> None:
    x, rows = normal(5, 3), normal(2, 3, 3, seed=1).astype(ml_dtypes.bfloat16)
    indices = np.array([[4, 0, 4], [-1, 5, 4]], np.int32)
    expected = x.astype(np.float64)
    for at, row in zip(indices.reshape(-1), rows.reshape(6, 3), strict=True):
        if 0 <= at < 5:
            expected[at] += row.astype(np.float64)
    close(run("scatter_add", x, indices, rows), expected)
    whole = run(
        "scatter_add", np.zeros(3, np.int8), np.array([1, 1], np.int32), np.array([100, 100], np.int8)
    )
    assert (whole.dtype, whole.tolist()) == (np.dtype(np.int32), [0, 200, 0])


def test_indices_of_rows_that_are_added_are_tried_within_and_outside() -> None:
    graph = single("scatter_add", ((9, 4), F32), ((64,), I32), ((64, 4), F32))
    found = random_inputs(graph, 0)["x1"]
    assert ((found >= 0) & (found < 9)).sum() > 40
    assert ((found < 0) | (found >= 9)).any()


@pytest.mark.parametrize(
    ("op", "tensors", "attrs", "said"),
    [
        ("reduce_argmax", [((4,), BOOL)], {"axis": 0}, "inputs/0: dtype bool; wants a number"),
        ("cumsum", [((4, 4), F32)], {"axis": 2}, "axis 2 of shape [4, 4]; allowed: -2 to 1"),
        (
            "scatter_add",
            [((4, 4), F32), ((3,), F32), ((3, 4), F32)],
            {},
            "dtype f32; wants i32: cast the indices",
        ),
        (
            "scatter_add",
            [((4, 4), F32), ((3,), I32), ((3, 5), F32)],
            {},
            "shape [3, 5]; indices of [3] into [4, 4] want [3, 4]",
        ),
        (
            "scatter_add",
            [((), F32), ((3,), I32), ((3,), F32)],
            {},
            "rank 0; rows are added along a first axis",
        ),
    ],
)
def test_what_places_are_not_of(op: str, tensors: list[Any], attrs: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        single(op, *tensors, **attrs)
