"""Executes a block of inline assembly instruction by instruction, in the arithmetic of the hardware.

A block is `{ .reg .b32 x, n; max.NaN.ftz.f32 x, $1, 0fC2FE0000; ... }`: f32 instructions, shifts and moves on
registers of 32 bits, without branches. Its operands are elements that one thread holds, as many as it packs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wsopt.interpret.dtypes import FLOAT32, Array
from wsopt.interpret.faults import InterpreterError
from wsopt.interpret.layouts import NVMMADistributedLayout
from wsopt.interpret.tensor import Tensor

_BLOCK = re.compile(r"^\{\s*\.reg\s+\.b32\s+([\w, ]+);(.*)\}$", re.DOTALL)
_NUMBER = re.compile(r"^0f([0-9A-F]{8})$")
_PACK = 8
_SMALLEST = np.float32(2.0**-126)


def is_block(asm: str) -> bool:
    """Whether inline assembly is a block of instructions."""
    return _BLOCK.match(asm.strip()) is not None


def execute(asm: str, constraints: str, args: Sequence[Any], pack: int) -> Tensor:
    """The f32 tensor that a block makes of one f32 tensor, whose threads' elements it takes `pack` at a time.

    InterpreterError for what is no such block or no such tensor, and for a block that leaves a result undone.
    """
    if len(args) != 1 or not isinstance(args[0], Tensor) or args[0].dtype != FLOAT32:
        raise InterpreterError("a block of inline assembly takes one float32 tensor")
    (value,) = args
    asked = ",".join(["=&f"] * pack + ["f"] * pack)
    if constraints != asked:
        raise InterpreterError(
            f"a block of inline assembly has the constraints {constraints!r}, not {asked!r}"
        )
    found = _BLOCK.match(asm.strip())
    assert found is not None, "the caller has asked"
    inputs = packed(value.data, value.layout, pack)
    thread = _Thread(
        {f"${pack + place}": part for place, part in enumerate(_bits(inputs))},
        frozenset(f"${place}" for place in range(pack)),
        frozenset(name.strip() for name in found[1].split(",")),
    )
    for line in filter(None, (one.strip() for one in found[2].split(";"))):
        thread.step(line)
    missing = sorted(thread.results - set(thread.registers))
    if missing:
        raise InterpreterError(f"inline assembly leaves {', '.join(missing)} undone")
    made = np.stack([thread.registers[f"${place}"] for place in range(pack)]).view(np.float32)
    return Tensor(unpacked(made, value.data.shape), FLOAT32, value.layout)


def packed(data: Array, layout: Any, pack: int) -> Array:
    """The elements of a tile by their place among `pack` of one thread, which come first.

    A thread of a product's sums has pairs of columns, of two rows eight apart, of every eight columns.
    """
    if not isinstance(layout, NVMMADistributedLayout) or pack != _PACK or data.ndim != 2:
        raise InterpreterError(
            f"a block of inline assembly takes {_PACK} elements at a time of a product's sums"
        )
    rows, columns = data.shape
    if rows % 16 or columns % 16:
        raise InterpreterError(f"a tile of {rows}x{columns} has no {_PACK} elements for each thread")
    parts = data.reshape(rows // 16, 2, 8, columns // 16, 2, 4, 2)
    return np.ascontiguousarray(parts.transpose(4, 1, 6, 0, 2, 3, 5)).reshape(_PACK, -1)


def unpacked(parts: Array, shape: tuple[int, ...]) -> Array:
    """What `packed` has taken apart, as a tile of that shape."""
    rows, columns = shape
    whole = parts.reshape(2, 2, 2, rows // 16, 8, columns // 16, 4)
    return np.ascontiguousarray(whole.transpose(3, 1, 4, 5, 0, 6, 2)).reshape(shape)


@dataclass(slots=True)
class _Thread:
    """Registers by name, as bits of all threads at once; `results` and `temporaries` may be written."""

    registers: dict[str, Array]
    results: frozenset[str]
    temporaries: frozenset[str]
    shapes: Array = field(init=False)

    def __post_init__(self) -> None:
        self.shapes = next(iter(self.registers.values()))

    def step(self, line: str) -> None:
        """Execute one instruction."""
        name, _, rest = line.partition(" ")
        to, *operands = (one.strip() for one in rest.split(","))
        if name not in INSTRUCTIONS or to not in self.results | self.temporaries:
            raise InterpreterError(f"inline assembly {line!r} is not known, or writes no register of its own")
        count, function = INSTRUCTIONS[name]
        if len(operands) != count:
            raise InterpreterError(f"inline assembly {line!r}: {name} takes {count} operands")
        if name == "shl.b32":
            self.registers[to] = self._value(operands[0], line) << np.uint32(_whole(operands[1], line))
            return
        with np.errstate(all="ignore"):
            values = [_flushed(self._value(one, line).view(np.float32)) for one in operands]
            self.registers[to] = _bits(_flushed(np.asarray(function(*values), np.float32)))

    def _value(self, operand: str, line: str) -> Array:
        number = _NUMBER.match(operand)
        if number:
            return np.full_like(self.shapes, int(number[1], 16))
        if operand not in self.registers:
            raise InterpreterError(
                f"inline assembly {line!r} reads {operand} before anything is written to it"
            )
        return self.registers[operand]


def _bits(values: Array) -> Array:
    """f32 values as bits; every NaN is the one that the hardware makes."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).copy()
    bits[np.isnan(values)] = 0x7FFFFFFF
    return bits


def _whole(text: str, line: str) -> int:
    if not text.isdecimal() or int(text) > 31:
        raise InterpreterError(f"inline assembly {line!r}: {text} is no number of bits to shift by")
    return int(text)


def _flushed(x: Array) -> Array:
    """Values with subnormal ones made zero, which keeps its sign."""
    return np.where(np.abs(x) < _SMALLEST, np.copysign(np.float32(0), x), x)


def _added_down(a: Array, b: Array) -> Array:
    """The sum, rounded toward minus infinity: the f64 sum and what it leaves (Knuth's two-sum) say on which side the
    nearest f32 lies.
    """
    x, y = a.astype(np.float64), b.astype(np.float64)
    total = x + y
    back = total - x
    left = (x - (total - back)) + (y - back)
    nearest = total.astype(np.float32)
    above = (nearest > total) | ((nearest == total) & (left < 0))
    down = np.nextafter(nearest, np.float32("-inf"))
    return np.asarray(np.where(above & np.isfinite(total), down, nearest), np.float32)


def _fma(a: Array, b: Array, c: Array) -> Array:
    """a b + c: the product is exact in f64, and the sum rounded there before it is in f32."""
    return np.asarray(a.astype(np.float64) * b.astype(np.float64) + c, np.float32)


INSTRUCTIONS: dict[str, tuple[int, Callable[..., Array]]] = {
    "max.NaN.ftz.f32": (2, np.maximum),
    "min.NaN.ftz.f32": (2, np.minimum),
    "add.rm.ftz.f32": (2, _added_down),
    "sub.ftz.f32": (2, np.subtract),
    "mul.ftz.f32": (2, np.multiply),
    "fma.rn.ftz.f32": (3, _fma),
    "ex2.approx.ftz.f32": (1, np.exp2),
    "shl.b32": (2, np.left_shift),
}
"""Instructions with the number of their operands. PTX ISA: `.ftz` makes subnormal operands and results zero."""
