"""Inline assembly on words of 16 bits: instructions, registers of two neighbours, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from wsopt.interpret import dtypes, words
from wsopt.interpret.faults import InterpreterError
from wsopt.interpret.layouts import BlockedLayout, DistributedLinearLayout
from wsopt.interpret.tensor import Tensor

PAIRS = DistributedLinearLayout([[0, 1]], [[0, 2]], [[1, 0]], [], [2, 4])
APART = DistributedLinearLayout([[1, 0]], [[0, 1]], [[0, 2]], [], [2, 4])
INT16, BF16 = dtypes.named("int16"), dtypes.named("bfloat16")


def words_of(*values: int, layout: Any = PAIRS) -> Tensor:
    return Tensor(np.array(values, np.uint16).view(np.int16).reshape(2, 4), INT16, layout)


def run(asm: str, *args: Tensor, dtype: Any = INT16, constraints: str = "") -> Any:
    return words.execute(asm, constraints or ",".join(["=r"] + ["r"] * len(args)), args, dtype)


@pytest.mark.parametrize(
    ("asm", "expected"),
    [
        ("shr.b32 $0, $1, 4;", lambda x: x >> 4),
        ("lop3.b32 $0, $1, 0x00ff00ff, 0x01010101, 0x6a;", lambda x: (x & 0x00FF00FF) ^ 0x01010101),
        ("lop3.b32 $0, $1, 0x0000ffff, 0x12340000, 0xea;", lambda x: (x & 0xFFFF) | 0x12340000),
        ("{ .reg .b32 t; mov.b32 t, 0xffffffff; lop3.b32 $0, $1, t, t, 0x3c; }", lambda x: ~x ^ x),
    ],
)
def test_logic_is_of_whole_registers(asm: str, expected: Any) -> None:
    given = words_of(*range(1000, 9000, 1000))
    # a ^ b of the table 0x3c, whatever c: the last case's register of ones turns every bit round
    wanted = expected(given.data.view(np.uint32)).astype(np.uint32)
    if "0x3c" in asm:
        wanted = ~given.data.view(np.uint32)
    assert (run(asm, given).data.view(np.uint32) == wanted).all()


def test_a_logic_table_has_a_bit_for_each_choice() -> None:
    a, b, c = (np.array([pattern], np.uint32) for pattern in (0xF0, 0xCC, 0xAA))
    for table in (0x6A, 0xE8, 0x01, 0x96):  # PTX ISA: the table is the function of these three numbers
        assert words._lop3(a, b, c, table)[0] & 0xFF == table


def test_pairs_are_rounded_to_their_type() -> None:
    x, y = (
        Tensor(np.array(v).reshape(2, 4).astype(BF16.numpy), BF16, PAIRS) for v in (range(8), [1.0078125] * 8)
    )
    found = run("mul.rn.bf16x2 $0, $1, $2;", x, y, dtype=BF16)
    assert (found.data == (x.data.astype(np.float32) * 1.0078125).astype(BF16.numpy)).all()


@pytest.mark.parametrize("operation", ["mul", "sub", "add"])
@pytest.mark.parametrize(("name", "bits"), [("bf16", 0x0080), ("f16", 0x0400)])
@pytest.mark.parametrize("place", [0, 1])
def test_arithmetic_on_subnormals_is_refused(operation: str, name: str, bits: int, place: int) -> None:
    normal, below = words_of(0, 0x8000, *[bits] * 6), words_of(*[bits] * 7, 0x8000 | (bits - 1))
    asm = f"{operation}.rn.{name}x2 $0, $1, $2;"
    run(asm, normal, normal)
    args = (below, normal) if place == 0 else (normal, below)
    with pytest.raises(InterpreterError, match=r"computes with a subnormal b?float16; .* wrong on an H200"):
        run(asm, *args)


@pytest.mark.parametrize(
    ("asm", "layout", "constraints", "told"),
    [
        ("shr.b32 $0, $1, 4;", APART, "", "pairs of neighbours"),
        ("shr.b32 $0, $1, 4;", BlockedLayout([1, 2], [8, 4], [4, 1], [1, 0]), "", "pairs of neighbours"),
        ("shr.b32 $0, $1, 4;", PAIRS, "=&r,r", "constraints"),
        ("shr.b32 $1, $1, 4;", PAIRS, "", "no register of its own"),
        ("shr.b32 $0, $2, 4;", PAIRS, "", "before anything is written"),
        ("shl.b32 $0, $1, 4;", PAIRS, "", "not known"),
        ("{ .reg .b32 t; mov.b32 t, 1; }", PAIRS, "", "leaves \\$0 undone"),
    ],
)
def test_refusals(asm: str, layout: Any, constraints: str, told: str) -> None:
    with pytest.raises(InterpreterError, match=told):
        run(asm, words_of(*range(8), layout=layout), constraints=constraints)
