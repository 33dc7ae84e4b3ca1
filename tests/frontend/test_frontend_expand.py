"""The expansion of elementwise operations, run primitive by primitive, against the op table's meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from wsopt.frontend.expand import expand
from wsopt.frontend.values import Term
from wsopt.graph.meaning import cast_array
from wsopt.graph.ops import OPS, CostClass
from wsopt.graph.types import DType
from wsopt.primitives import PRIMITIVES

Array = npt.NDArray[Any]


def tanh_at_worst(x: Array) -> Array:
    """The largest relative error that the hardware's tanh may have; it does not leave [-1, 1]."""
    return np.clip(np.tanh(x) * np.float32(1 + 2**-11), -1, 1)


SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 100.0, -100.0, 1e30, -1e30], np.float32)
X = np.concatenate([SPECIAL, np.linspace(-12, 12, 501, dtype=np.float32)])
Y = np.concatenate([SPECIAL[::-1], np.linspace(7, -3, 501, dtype=np.float32)])
APART = {"cast", "iota", "pow"}  # a rounding, an index, and expanded for numbers alone
ELEMENTWISE = [n for n, spec in OPS.items() if spec.cost is CostClass.ELEMENTWISE and n not in APART]
APPROXIMATED = ["tanh", "sigmoid", "silu", "gelu tanh"]


def run(op: str, args: tuple[Array | float, ...], *, approximate: bool = False, flavour: str = "") -> Array:
    """The op's expansion on f32 arrays, one primitive after another."""
    values: dict[str, Array] = {f"arg{i}": arg for i, arg in enumerate(args) if isinstance(arg, np.ndarray)}

    def emit(primitive: str, terms: tuple[Term, ...]) -> str:
        operands = [values[t] if isinstance(t, str) else np.float32(t) for t in terms]
        name = f"v{len(values)}"
        with np.errstate(all="ignore"):
            function = tanh_at_worst if primitive == "tanh_approx" else PRIMITIVES[primitive].function
            values[name] = np.asarray(function(*operands))
        return name

    names = tuple(f"arg{i}" if isinstance(arg, np.ndarray) else arg for i, arg in enumerate(args))
    result = expand(op, names, emit, approximate=approximate, flavour=flavour)
    assert isinstance(result, str)
    return values[result]


def meaning(op: str, args: tuple[Array | float, ...], attrs: dict[str, Any]) -> Array:
    arrays = tuple(np.asarray(arg, None if isinstance(arg, np.ndarray) else np.float32) for arg in args)
    return OPS[op].evaluate(arrays, attrs)


def arguments(op: str) -> tuple[Array, ...]:
    x, y = (X > 0, Y > 0) if op.startswith("logical") else (X, Y)
    return (X > 0, X, Y) if op == "where" else (x, y)[: len(OPS[op].operands)]


@pytest.mark.parametrize("op", [*ELEMENTWISE, "gelu tanh"])
def test_expansions_mean_what_the_op_table_says(op: str) -> None:
    name, _, flavour = op.partition(" ")
    args = arguments(name)
    found = run(name, args, flavour=flavour)
    wanted = meaning(name, args, {"approximate": flavour or "none"})
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("op", APPROXIMATED)
def test_approximations_are_within_the_hardwares_error(op: str) -> None:
    name, _, flavour = op.partition(" ")
    found = run(name, (X,), approximate=True, flavour=flavour)
    wanted = meaning(name, (X,), {"approximate": flavour or "none"})
    near = np.abs(X) <= 12
    np.testing.assert_allclose(found[np.abs(X) <= 4], wanted[np.abs(X) <= 4], rtol=0, atol=2e-3)
    # tanh is multiplied by x / 2 in silu and gelu, and its error with it.
    assert (np.abs(found[near] - wanted[near]) <= 2**-11 * np.maximum(1, np.abs(X[near]))).all()
    assert np.isnan(found[np.isnan(X)]).all()


@pytest.mark.parametrize("approximate", [False, True])
@pytest.mark.parametrize("op", ["tanh", "sigmoid", "silu", "gelu", "gelu tanh"])
def test_saturation_gives_no_nan(op: str, approximate: bool) -> None:
    name, _, flavour = op.partition(" ")
    found = run(name, (np.array([-100, 100], np.float32),), approximate=approximate, flavour=flavour)
    limits = {"tanh": (-1, 1), "sigmoid": (0, 1)}.get(name, (0, 100))
    np.testing.assert_allclose(found, limits, atol=1e-6)


@pytest.mark.parametrize(
    "exponent", [-8, -3, -2, -1, 0, 1, 2, 3, 8, 9, 10, -11, -12, 0.5, -0.5, 2.5, 1e-3, 0.0, 3.0]
)
def test_powers(exponent: float) -> None:
    x = np.concatenate([SPECIAL, np.linspace(-3, 3, 121, dtype=np.float32)])
    whole = float(exponent).is_integer()
    # A fraction's power of -inf is that of other negative numbers, and the sign of zero is not looked at.
    x = x if whole else x[x != -np.inf]
    x = x[(x != 0) | ~np.signbit(x)] if exponent < 0 else x
    found, wanted = run("pow", (x, exponent)), meaning("pow", (x, exponent), {})
    np.testing.assert_allclose(found, wanted, rtol=5e-6, atol=1e-6)


@pytest.mark.parametrize("base", [2.0, 0.5, 1.0, 10.0, 1e-3, 3])
def test_powers_of_a_number(base: float) -> None:
    with np.errstate(all="ignore"):
        found, wanted = run("pow", (base, X)), meaning("pow", (base, X), {})
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("base", ["x", 0, -2.0, float("inf"), float("nan")])
def test_a_power_of_what_may_be_negative_by_a_tensor_has_no_expansion(base: Term) -> None:
    assert expand("pow", (base, "e"), lambda *_: "v", approximate=False) is None
    assert expand("softmax", ("x",), lambda *_: "v", approximate=False) is None


def test_small_powers_are_products() -> None:
    primitives: list[str] = []
    expand("pow", ("x", 3), lambda p, _: primitives.append(p) or "v", approximate=False)
    assert primitives == ["mul", "mul"]


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f8e4m3", "f8e5m2", "f32"])
def test_every_output_type_has_a_rounding(dtype: str) -> None:
    assert f"round_{dtype}" in PRIMITIVES
    assert cast_array(np.float32([1.0]), DType(dtype)).astype(np.float32) == [1.0]
