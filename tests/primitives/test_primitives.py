"""Every primitive's record is complete, and its texts, its meaning and its facts agree with one another."""

from __future__ import annotations

import subprocess
import sys
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from wsopt.interpret import dtypes, mathematics
from wsopt.interpret.tensor import Tensor
from wsopt.machine import INSTRUCTION_KINDS, InstructionMix
from wsopt.primitives import PRIMITIVES, Family, FromTable, Primitive, added

Array = npt.NDArray[Any]

COMPUTED = [entry for entry in PRIMITIVES.values() if entry.numpy]
FREE = {"round_f32", "iota_batch", "iota_group", "extent_stream"}
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, np.inf, -np.inf, np.nan]
X = np.array([*SPECIAL, *np.linspace(-6, 6, 41)], np.float32)
Y = np.array([*SPECIAL[::-1], *np.linspace(5, -7, 41)], np.float32)
WHOLE = (np.arange(-24, 25, dtype=np.int32), np.arange(24, -25, -1, dtype=np.int32) // 2)

GLUON = SimpleNamespace(
    **{name: mathematics.float_function(name) for name in mathematics.GLUON_FUNCTIONS},
    abs=mathematics.absolute,
    maximum=mathematics.maximum,
    minimum=mathematics.minimum,
    where=mathematics.where,
)
NAMES = {
    "gl": GLUON,
    "tl": SimpleNamespace(PropagateNan=mathematics.PropagateNan),
    **{f"{name}_approx": mathematics.float_function(name) for name in ("sin", "cos", "tanh")},
    "erf_by_ratio": mathematics.float_function("erf"),
    "gelu_tail_by_ratio": lambda x: Tensor(PRIMITIVES["gelu_tail"].function(x.data), x.dtype, None),
}


def arguments(entry: Primitive) -> list[Array]:
    """Operands of the family's types: numbers with the special ones among them, or bools."""
    if entry.family is Family.LOGICAL:
        return [X > 0, Y > 0][: len(entry.operands)]
    return [X > 0, X, Y] if entry.family is Family.CHOICE else [X, Y][: len(entry.operands)]


def meaning(entry: Primitive, operands: list[Array]) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(entry.function(*operands))


def in_gluon(entry: Primitive, operands: list[Array], *, f32: bool) -> Array:
    """The Gluon text as the interpreter executes it."""
    names = [f"operand{i}" for i in range(len(operands))]
    tensors = [Tensor(x, dtypes.from_numpy(x.dtype), None) for x in operands]
    with np.errstate(all="ignore"):
        found = eval(entry.in_gluon(*names, f32=f32), NAMES | dict(zip(names, tensors, strict=True)))
    assert isinstance(found, Tensor)
    return found.data


@pytest.mark.parametrize("entry", PRIMITIVES.values(), ids=PRIMITIVES)
def test_every_entry_is_complete(entry: Primitive) -> None:
    assert set(entry.mix) <= set(INSTRUCTION_KINDS)
    assert bool(InstructionMix(entry.mix)) == (entry.name not in FREE)
    placed = entry.family in (Family.INDEX, Family.INSIDE, Family.GROUPED)
    assert bool(entry.torch) == (not placed)
    assert bool(entry.numpy) == (not placed and entry.family is not Family.ROUNDING)
    assert bool(entry.symbol or entry.gluon) == bool(entry.numpy)
    assert (entry.comparison is not None) == (entry.family is Family.COMPARISON)
    assert not entry.doc or (entry.doc.endswith(".") and entry.numpy)


@pytest.mark.parametrize("entry", COMPUTED, ids=lambda entry: entry.name)
def test_the_gluon_text_means_what_numpy_says(entry: Primitive) -> None:
    operands = arguments(entry)
    wanted = meaning(entry, operands)
    np.testing.assert_allclose(in_gluon(entry, operands, f32=True), wanted, rtol=1e-6, atol=1e-6)
    if entry.family in (Family.ARITHMETIC, Family.COMPARISON):
        whole = list(WHOLE[: len(operands)])
        np.testing.assert_array_equal(in_gluon(entry, whole, f32=False), meaning(entry, whole))


@pytest.mark.torch
@pytest.mark.parametrize("entry", COMPUTED, ids=lambda entry: entry.name)
def test_torch_means_what_numpy_says(entry: Primitive) -> None:
    torch = pytest.importorskip("torch")
    operands = arguments(entry)
    wanted = meaning(entry, operands)
    tensors = [torch.from_numpy(x) for x in operands]
    names = dict(zip("abc", tensors, strict=False))
    for found in (
        attrgetter(entry.torch)(torch)(*tensors),
        eval(entry.in_torch(*names), {"torch": torch}, names),
    ):
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-6, atol=1e-6)


def test_roundings_name_a_type_of_torch() -> None:
    torch = pytest.importorskip("torch")
    found = [entry for entry in PRIMITIVES.values() if entry.family is Family.ROUNDING]
    assert len(found) == 6
    assert all(isinstance(getattr(torch, entry.torch), torch.dtype) for entry in found)


@pytest.mark.parametrize("entry", COMPUTED, ids=lambda entry: entry.name)
def test_facts_hold(entry: Primitive) -> None:
    operands = arguments(entry)
    zeros, lows = ([np.full(1, x, np.float32)] * len(operands) for x in (0.0, -np.inf))
    if entry.at_zero is not None:
        assert meaning(entry, zeros) == entry.at_zero
    if entry.at_low is not None:
        assert meaning(entry, lows) == entry.at_low
    if entry.finite:
        known = np.logical_and.reduce([np.isfinite(x) for x in operands])
        assert np.isfinite(meaning(entry, operands)[known]).all()
    if entry.slope is not None:
        steep = np.abs(np.gradient(meaning(entry, [X[len(SPECIAL) :].astype(np.float64)]), 12 / 40))
        assert steep.max() <= entry.slope * (1 + 1e-6)


@pytest.mark.parametrize("entry", [e for e in COMPUTED if e.comparison], ids=lambda entry: entry.name)
def test_comparisons_are_negated_and_mirrored(entry: Primitive) -> None:
    assert entry.comparison is not None
    x, y = (operand[~np.isnan(X) & ~np.isnan(Y)] for operand in (X, Y))
    wanted = entry.function(x, y)
    np.testing.assert_array_equal(~PRIMITIVES[entry.comparison.negated].function(x, y), wanted)
    np.testing.assert_array_equal(PRIMITIVES[entry.comparison.mirrored].function(y, x), wanted)


def test_a_primitive_is_added_for_a_while() -> None:
    name = Primitive("cube", Family.REAL, operands=("x",), gluon="{0} * {0} * {0}")
    texts = FromTable(lambda entry: entry.gluon or None, {"other": "text"})
    before = list(texts)
    with added(name):
        assert texts["cube"] == "{0} * {0} * {0}"
        assert set(texts) == {*before, "cube"}
        with pytest.raises(ValueError, match="a primitive cube already"), added(name):
            pass
    assert list(texts) == before
    assert "cube" not in texts


def test_roundings_and_indices_mean_nothing_by_themselves() -> None:
    for name in ("round_bf16", "iota_row", "inside_stream"):
        with pytest.raises(TypeError, match=f"{name} has no meaning on arrays alone"):
            _ = PRIMITIVES[name].function


def test_the_table_loads_nothing_else() -> None:
    code = "import sys, wsopt.primitives; print([m for m in sys.modules if m.split('.')[0] in {packages}])"
    packages = {"numpy", "torch", "triton", "pydantic", "ml_dtypes"}
    done = subprocess.run(
        [sys.executable, "-c", code.format(packages=packages)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
