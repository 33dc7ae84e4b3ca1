"""exp2 of a share of each thread's elements by a polynomial: its error over the whole range, its machine code."""

from __future__ import annotations

import ast
import functools
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from emit_builds import Emitted, build, graph_of, small_case
from other_compiler import compiled_by
from test_emit_k_blocks import attention, structure

from wsopt.codegen import compile_kernel
from wsopt.interpret import assembly
from wsopt.interpret.dtypes import FLOAT32
from wsopt.interpret.faults import InterpreterError
from wsopt.interpret.layouts import BlockedLayout, NVMMADistributedLayout
from wsopt.interpret.tensor import Tensor
from wsopt.primitives import PRIMITIVES
from wsopt.primitives.exponential import CHAIN, COEFFICIENTS, MIX, PACK

Array = npt.NDArray[np.float32]

ERROR = 2.0**-22
"""Of `ex2.approx` (PTX ISA: 2 ulp); with as much for the reference it is the error of the table of primitives."""

LAYOUT = NVMMADistributedLayout([3, 0], [1, 1], [16, 16, 16])
EVERY_EXPONENT = np.concatenate(
    [
        np.uint32(sign << 31 | exponent << 23) + np.linspace(0, 2**23 - 1, 256).astype(np.uint32)
        for sign in (0, 1)
        for exponent in range(256)
    ]
).view(np.float32)
"""Numbers of every exponent and both signs, zeros, subnormals, infinities and NaN among them."""

FRACTIONS = np.concatenate(
    [n + np.arange(2**15, dtype=np.float32) / 2**15 for n in (-127, -126, -2, -1, 0, 127)]
)


@functools.cache
def emitted(eighths: int, mask: str = "full") -> Emitted:
    cut = replace(structure(64), exp2_eighths=eighths)
    return build(graph_of(lambda g: attention(g, mask)), cut, 96)


def call_of(source: str) -> tuple[str, str, int]:
    """The assembly, constraints and pack of a kernel's exponential."""
    functions = (item for item in ast.parse(source).body if isinstance(item, ast.FunctionDef))
    (own,) = (item for item in functions if item.name == "exp2_on_both_pipes")
    (call,) = (node for node in ast.walk(own) if isinstance(node, ast.Call) and node.keywords)
    asm, constraints = (ast.literal_eval(one) for one in call.args[:2])
    (pack,) = (ast.literal_eval(one.value) for one in call.keywords if one.arg == "pack")
    return asm, constraints, pack


def exp2(asm: str, x: Array) -> Array:
    """2**x as the assembly has it, of any number of elements."""
    whole = np.resize(x, (16, -(-x.size // 256) * 16))
    _, constraints, pack = call_of(emitted(PACK).source)
    made = assembly.execute(asm, constraints, (Tensor(whole, FLOAT32, LAYOUT),), pack)
    return made.data.reshape(-1)[: x.size]


def fault(asm: str, x: Array) -> str | None:
    """What is wrong with assembly for exp2."""
    try:
        y = exp2(asm, x)
    except InterpreterError as refused:
        return str(refused)
    with np.errstate(all="ignore"):
        exact = np.exp2(x.astype(np.float64))
        normal = (x >= -126) & (x < 128)
        off = np.abs(np.where(normal, y / exact - 1, 0))
        whole = normal & (x == np.floor(x))
    wrong = {
        "NaN": np.isnan(x) != np.isnan(y),
        "above": (x >= 128) & (y != np.inf),
        "below": (x < -126) & (y != 0),
        "whole": whole & (y != exact),
        "error": off > ERROR,
    }
    return next((f"{name} at {x[bad][:3]}: {y[bad][:3]}" for name, bad in wrong.items() if bad.any()), None)


@pytest.mark.parametrize("x", [EVERY_EXPONENT, FRACTIONS], ids=["every exponent", "fractions"])
def test_the_polynomial_is_as_exact_as_the_instruction(x: Array) -> None:
    asm, _, _ = call_of(emitted(PACK).source)
    assert "ex2" not in asm
    assert fault(asm, x) is None


def test_the_ends() -> None:
    asm, _, _ = call_of(emitted(PACK).source)
    least = np.float32(-126)
    x = np.array(
        [np.nan, np.inf, 128, np.nextafter(np.float32(128), least), 0, -0.0, -1e-40, -1e-10, least,
         np.nextafter(least, np.float32(-200)), -127, -1e30, -np.inf],
        np.float32,
    )  # fmt: skip
    expected = [
        np.nan,
        np.inf,
        np.inf,
        np.float32(2.0**128 * (1 - 2.0**-17)),
        1,
        1,
        1,
        1,
        2.0**-126,
        0,
        0,
        0,
        0,
    ]
    np.testing.assert_allclose(exp2(asm, x), np.array(expected, np.float32), rtol=2.0**-17)
    assert exp2(asm, x)[4] == 1


def test_every_instruction_counts() -> None:
    asm, _, _ = call_of(emitted(PACK).source)
    first = asm[: asm.index("$0, p, n;")] + "$0, p, n;"
    lines = [one.strip() for one in first.split(";")][1:-1]
    assert len(lines) == sum(MIX.values()) == CHAIN + 1
    x = np.concatenate([EVERY_EXPONENT, FRACTIONS])
    assert [line for line in lines if fault(asm.replace(f"{line};", "", 1), x) is None] == []


@pytest.mark.parametrize("power", range(len(COEFFICIENTS)))
def test_every_coefficient_counts(power: int) -> None:
    asm, _, _ = call_of(emitted(PACK).source)
    bits = f"{np.float32(COEFFICIENTS[power]).view(np.uint32):08X}"
    other = f"{np.float32(COEFFICIENTS[power] + 2.0**-20).view(np.uint32):08X}"
    assert asm.count(f"0f{bits}") == PACK
    assert fault(asm.replace(bits, other), FRACTIONS) is not None


def test_the_error_is_what_the_table_says() -> None:
    relative, absolute = PRIMITIVES["exp2"].error
    assert (2 * ERROR, absolute) == (relative, 0)


def test_elements_are_packed_as_a_thread_has_them() -> None:
    tile = np.arange(32 * 32, dtype=np.float32).reshape(32, 32)
    parts = assembly.packed(tile, LAYOUT, PACK)
    first = {(int(n) // 32 % 16, int(n) % 32 % 16) for n in parts[:, 0]}
    assert first == {(row, column) for row in (0, 8) for column in (0, 1, 8, 9)}
    assert [int(n) for n in parts[:, 0]] == [0, 1, 8 * 32, 8 * 32 + 1, 8, 9, 8 * 32 + 8, 8 * 32 + 9]
    np.testing.assert_array_equal(assembly.unpacked(parts, (32, 32), LAYOUT), tile)


def test_a_share_takes_the_polynomial() -> None:
    asm, constraints, pack = call_of(emitted(3).source)
    assert (asm.count("ex2.approx"), asm.count("shl")) == (5, 3)
    polynomial = exp2(call_of(emitted(PACK).source)[0], FRACTIONS)
    told_apart = FRACTIONS[np.flatnonzero(polynomial != np.exp2(FRACTIONS))[-1]]
    x = Tensor(np.full((16, 16), told_apart), FLOAT32, LAYOUT)
    y = assembly.execute(asm, constraints, (x,), pack).data
    by_place = assembly.packed(y, LAYOUT, pack)
    by_instruction = [bool((part == np.exp2(told_apart)).all()) for part in by_place]
    assert by_instruction == [False] * 3 + [True] * 5


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("shl.b32 n, n, 23", "shl.b32 n, n, 32"), "is no number of bits"),
        (("shl.b32 n, n, 23", "shr.b32 n, n, 23"), "is not known"),
        (("fma.rn.ftz.f32 p, x,", "fma.rn.ftz.f32 q, x,"), "writes no register of its own"),
        (("sub.ftz.f32 x, x, p", "sub.ftz.f32 x, x"), "takes 2 operands"),
        (("mul.ftz.f32 $0,", "mul.ftz.f32 p,"), r"leaves \$0 undone"),
    ],
)
def test_the_interpreter_refuses_other_assembly(change: tuple[str, str], told: str) -> None:
    asm, _, _ = call_of(emitted(PACK).source)
    with pytest.raises(InterpreterError, match=told):
        exp2(asm.replace(*change), FRACTIONS)


def test_the_interpreter_refuses_other_tiles() -> None:
    asm, constraints, pack = call_of(emitted(1).source)
    data = np.zeros((16, 16), np.float32)
    blocked = Tensor(data, FLOAT32, BlockedLayout([1, 8], [16, 2], [1, 1], [1, 0]))
    for args, registers, told in (
        ((blocked,), constraints, "of a product's sums"),
        ((Tensor(data[:8], FLOAT32, LAYOUT),), constraints, "8x16"),
        ((Tensor(data, FLOAT32, LAYOUT),) * 2, constraints, "one float32 tensor"),
        ((Tensor(data, FLOAT32, LAYOUT),), "=f,f", "constraints '=f,f'"),
    ):
        with pytest.raises(InterpreterError, match=told):
            assembly.execute(asm, registers, args, pack)


def test_no_share_leaves_the_text_as_it_is() -> None:
    assert "exp2_on_both_pipes" not in emitted(0).source
    assert "gl.exp2(" in emitted(0).source
    assert emitted(2).verified.schedule.structure.describe().endswith("2/8 of exp2 by a polynomial")


@pytest.mark.slow
@pytest.mark.parametrize("mask", ["full", "causal"])
@pytest.mark.parametrize("eighths", [1, 4])
def test_computes(eighths: int, mask: str) -> None:
    assert small_case(emitted(eighths, mask)).fault(emitted(eighths, mask).source, 5) is None


@pytest.mark.slow
@pytest.mark.parametrize("change", [("n, n, 23", "n, n, 22"), ("0f4B40007F; sub", "0f4B40007E; sub")])
def test_a_wrong_polynomial_is_found(change: tuple[str, str]) -> None:
    wrong = emitted(1).source.replace(*change)
    assert wrong != emitted(1).source
    assert "is wrong" in (small_case(emitted(1)).fault(wrong, 1) or "")


def counts(sass: dict[str, int]) -> dict[str, int]:
    return {name: sass.get(name, 0) for name in ("MUFU", "FADD", "FFMA", "FMUL", "FMNMX")}


def check_machine_code(plain: dict[str, int], shared: dict[str, int]) -> None:
    """Each element that leaves the MUFU pipe has the instructions that the model counts."""
    before, after = counts(plain), counts(shared)
    spared = before["MUFU"] - after["MUFU"]
    assert spared > 0
    assert {name: (after[name] - before[name]) / spared for name in counts(plain)} == {
        "MUFU": -1,
        "FADD": MIX["add"],
        "FFMA": MIX["fma"],
        "FMUL": MIX["mul"],
        "FMNMX": MIX["max"],
    }


@pytest.mark.compiler
def test_the_machine_code_has_what_the_model_counts() -> None:
    plain, shared = (compile_kernel(emitted(eighths).source) for eighths in (0, 2))
    assert (shared.spill_loads, shared.overwritten_operands) == (0, 0)
    check_machine_code(dict(plain.sass), dict(shared.sass))


@pytest.mark.compiler
def test_another_triton_makes_the_same_of_it(other_triton: str) -> None:
    plain, shared = compiled_by(other_triton, [emitted(eighths).source for eighths in (0, 2)])
    assert shared["spill_loads"] == 0
    check_machine_code(dict(plain["sass"]), dict(shared["sass"]))
