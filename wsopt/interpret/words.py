"""Executes inline assembly on words of 16 bits: a register has two of them, which are neighbours of one thread.

Instructions are shifts and logic on 32 bits, and arithmetic on two bf16 or f16. Operands are tensors of elements of
16 bits; where neighbours along the last dimension are a thread's, the register that holds two of them is a word of 32
bits of the tensor. Arithmetic on subnormals is refused: a kernel that was right here with it was wrong on an H200.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wsopt.interpret import dtypes
from wsopt.interpret.dtypes import Array, DType
from wsopt.interpret.faults import InterpreterError
from wsopt.interpret.layouts import DistributedLinearLayout, NVMMADistributedLayout
from wsopt.interpret.tensor import Tensor, common_layout

_LINE = re.compile(r"^([\w.]+)\s+(.*)$")
_PAIRS = {"bf16x2": dtypes.named("bfloat16"), "f16x2": dtypes.named("float16")}
_FUNCTIONS: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
}
_LEAST_NORMAL = {"bfloat16": 0x0080, "float16": 0x0400}
"""The bits of a type's least normal number."""
_PACK = 2


def is_words(asm: str, pack: int) -> bool:
    """Whether inline assembly is of words, two a register."""
    known = ("shr.b32", "lop3.b32", "bf16x2", "f16x2")
    return pack == _PACK and any(word in asm for word in known) and not asm.startswith("cvt")


def execute(asm: str, constraints: str, args: Sequence[Tensor], dtype: Any) -> Any:
    """The tensors that inline assembly makes, of one type or of several; InterpreterError for what is unknown."""
    several = isinstance(dtype, tuple | list)
    types: list[DType] = list(dtype) if several else [dtype]
    asked = ",".join(["=&r" if several else "=r"] * len(types) + ["r"] * len(args))
    if constraints != asked:
        raise InterpreterError(f"inline assembly of words has the constraints {constraints!r}, not {asked!r}")
    if any(arg.dtype.itemsize != 2 for arg in args) or any(one.itemsize != 2 for one in types):
        raise InterpreterError("inline assembly of words takes and makes elements of 16 bits")
    layout = common_layout(tuple(args))
    _check_neighbours(layout)
    shape = np.broadcast_shapes(*(tuple(arg.shape) for arg in args))
    registers = {f"${len(types) + place}": _register(arg, shape) for place, arg in enumerate(args)}
    written = _run(asm, registers, {f"${place}" for place in range(len(types))})
    made = [
        Tensor(written[f"${place}"].view(one.numpy).reshape(shape), one, layout)
        for place, one in enumerate(types)
    ]
    return tuple(made) if several else made[0]


def _check_neighbours(layout: Any) -> None:
    """A register has neighbours of a row where a layout gives a thread pairs of them."""
    pairs = isinstance(layout, NVMMADistributedLayout)
    if isinstance(layout, DistributedLinearLayout):
        *outer, step = layout.reg_bases[0]
        pairs = not any(outer) and step == 1
    if not pairs:
        raise InterpreterError(
            f"inline assembly of words takes pairs of neighbours; {layout} has none in a thread"
        )


def _register(arg: Tensor, shape: tuple[int, ...]) -> Array:
    whole = np.ascontiguousarray(np.broadcast_to(arg.data, shape))
    return whole.view(np.uint32).reshape(-1)


def _run(asm: str, registers: dict[str, Array], results: set[str]) -> dict[str, Array]:
    text = asm.strip()
    text = text[1:-1] if text.startswith("{") else text
    temporaries: set[str] = set()
    for line in filter(None, (one.strip() for one in text.split(";"))):
        found = _LINE.match(line)
        if found is None:
            raise InterpreterError(f"inline assembly {line!r} is not known")
        name, operands = found[1], [one.strip() for one in found[2].split(",")]
        if name == ".reg":
            temporaries |= {one.removeprefix(".b32").strip() for one in operands}
            continue
        to, *rest = operands
        if to not in results | temporaries:
            raise InterpreterError(f"inline assembly {line!r} writes no register of its own")
        registers[to] = _instruction(name, [_value(one, registers, line) for one in rest], line)
    missing = sorted(results - registers.keys())
    if missing:
        raise InterpreterError(f"inline assembly leaves {', '.join(missing)} undone")
    return registers


def _value(text: str, registers: dict[str, Array], line: str) -> Array:
    if text in registers:
        return registers[text]
    if re.fullmatch(r"0x[0-9a-f]+|\d+", text) is None:
        raise InterpreterError(f"inline assembly {line!r} reads {text} before anything is written to it")
    return np.array([int(text, 0)], np.uint32)


def _instruction(name: str, values: list[Array], line: str) -> Array:
    operation, *modifiers = name.split(".")
    values = [np.ascontiguousarray(value) for value in np.broadcast_arrays(*values)]
    if name == "mov.b32" and len(values) == 1:
        return values[0]
    if name == "shr.b32" and len(values) == 2:
        return np.asarray(values[0] >> values[1], np.uint32)
    if name == "lop3.b32" and len(values) == 4:
        first, second, third, table = values
        return _lop3(first, second, third, int(table[0]))
    pair = _PAIRS.get(modifiers[-1]) if modifiers else None
    if pair is not None and modifiers[0] == "rn" and operation in _FUNCTIONS and len(values) == 2:
        numbers = [value.view(pair.numpy) for value in values]
        _check_subnormals(numbers, pair, line)
        first, second = (dtypes.to_float32(one) for one in numbers)
        return np.asarray(_FUNCTIONS[operation](first, second), np.float32).astype(pair.numpy).view(np.uint32)
    raise InterpreterError(f"inline assembly {line!r} is not known")


def _check_subnormals(operands: Sequence[Array], dtype: DType, line: str) -> None:
    """Numbers below a type's least normal one are refused; zeros are none."""
    least = dtypes.to_float32(np.array([_LEAST_NORMAL[dtype.name]], np.uint16).view(dtype.numpy))
    for values in map(dtypes.to_float32, operands):
        if np.any((values != 0) & (np.abs(values) < least)):
            raise InterpreterError(
                f"inline assembly {line!r} computes with a subnormal {dtype.name}; a kernel that did so was right "
                "in simulation and wrong on an H200, so operands have to be zero or normal numbers"
            )


def _lop3(a: Array, b: Array, c: Array, table: int) -> Array:
    """PTX ISA, lop3: a bit of the table for each choice of bits of a (4), b (2) and c (1)."""
    found = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), np.uint32)
    for place in range(8):
        if table >> place & 1:
            chosen = [value if place & bit else ~value for value, bit in ((a, 4), (b, 2), (c, 1))]
            found |= chosen[0] & chosen[1] & chosen[2]
    return found
