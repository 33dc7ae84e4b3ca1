"""Executes a block of inline assembly instruction by instruction, in the arithmetic of the hardware.

A block is `{ .reg .b32 x, n; max.NaN.ftz.f32 x, $1, 0fC2FE0000; ... }`: f32 instructions, shifts and moves on
registers of 32 bits, without branches. Its operands are elements that one thread holds, as many as it packs.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wsopt.interpret.dtypes import FLOAT32, Array
from wsopt.interpret.faults import InterpreterError
from wsopt.interpret.layouts import BlockedLayout, NVMMADistributedLayout
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
        {f"${pack + place}": part for place, part in enumerate(inputs)},
        frozenset(f"${place}" for place in range(pack)),
        frozenset(name.strip() for name in found[1].split(",")),
    )
    with np.errstate(all="ignore"):
        for line in _lines(found[2]):
            thread.step(line)
    missing = sorted(thread.results - set(thread.registers))
    if missing:
        raise InterpreterError(f"inline assembly leaves {', '.join(missing)} undone")
    made = np.stack([thread.registers[f"${place}"] for place in range(pack)])
    return Tensor(unpacked(made, value.data.shape, value.layout), FLOAT32, value.layout)


def packed(data: Array, layout: Any, pack: int) -> Array:
    """The elements of a tile by their place among `pack` of one thread, which come first.

    A thread of a product's sums has pairs of columns, of two rows eight apart, of every eight columns; one that has
    rows of its own takes their elements in order.
    """
    by_rows = _has_rows(layout)
    if not (by_rows or isinstance(layout, NVMMADistributedLayout)) or pack != _PACK or data.ndim != 2:
        raise InterpreterError(
            f"a block of inline assembly takes {_PACK} elements at a time of a product's sums, or of a thread's row"
        )
    rows, columns = data.shape
    if by_rows and columns % _PACK == 0:
        return np.ascontiguousarray(data.reshape(-1, _PACK).T)
    if rows % 16 or columns % 16:
        raise InterpreterError(f"a tile of {rows}x{columns} has no {_PACK} elements for each thread")
    parts = data.reshape(rows // 16, 2, 8, columns // 16, 2, 4, 2)
    return np.ascontiguousarray(parts.transpose(4, 1, 6, 0, 2, 3, 5)).reshape(_PACK, -1)


def _has_rows(layout: Any) -> bool:
    """Whether each thread has whole rows of a tile."""
    return isinstance(layout, BlockedLayout) and layout.threads_per_warp[1] == layout.warps_per_cta[1] == 1


def unpacked(parts: Array, shape: tuple[int, ...], layout: Any) -> Array:
    """What `packed` has taken apart, as a tile of that shape."""
    if _has_rows(layout):
        return np.ascontiguousarray(parts.T).reshape(shape)
    rows, columns = shape
    whole = parts.reshape(2, 2, 2, rows // 16, 8, columns // 16, 4)
    return np.ascontiguousarray(whole.transpose(3, 1, 4, 5, 0, 6, 2)).reshape(shape)


@dataclass(frozen=True, slots=True)
class _Line:
    """An instruction, or several of one kind in a row that do not read one another's results, and no registers of
    the block: done at once.
    """

    name: str
    results: tuple[str, ...]
    operands: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        return repr(f"{self.name} {', '.join((self.results[0], *self.operands[0]))}")


@functools.cache
def _lines(text: str) -> tuple[_Line, ...]:
    """The instructions between the braces of a block."""
    found = list[_Line]()
    for line in filter(None, (one.strip() for one in text.split(";"))):
        name, _, rest = line.partition(" ")
        to, *operands = (one.strip() for one in rest.split(","))
        one = _Line(name, (to,), (tuple(operands),))
        last = found[-1] if found else None
        own = all(x.startswith("$") for x in (to, *operands))
        if own and last and last.name == name and not {to, *operands} & {*last.results}:
            found[-1] = _Line(name, (*last.results, to), (*last.operands, tuple(operands)))
        else:
            found.append(one)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Thread:
    """Registers by name, as f32 of all threads at once; `results` and `temporaries` may be written. Those `flushed`
    have no subnormal values.
    """

    registers: dict[str, Array]
    results: frozenset[str]
    temporaries: frozenset[str]
    flushed: set[str] = field(default_factory=set)

    def step(self, line: _Line) -> None:
        """Execute one instruction, or several of one kind that do not read what the others write."""
        for to in line.results:
            if line.name not in INSTRUCTIONS or to not in self.results | self.temporaries:
                raise InterpreterError(
                    f"inline assembly {line} is not known, or writes no register of its own"
                )
        count, function = INSTRUCTIONS[line.name]
        if any(len(one) != count for one in line.operands):
            raise InterpreterError(f"inline assembly {line}: {line.name} takes {count} operands")
        if line.name == "shl.b32":
            ((value, places),) = line.operands
            moved = _bits(self._value(value, line)) << _whole(places, line)
            self.registers[line.results[0]] = moved.view(np.float32)
            self.flushed.discard(line.results[0])
            return
        if len(line.results) == 1:
            values = [self._flushed(one, line) for one in line.operands[0]]
        else:
            values = [
                np.stack([self._flushed(one, line) for one in ones])
                for ones in zip(*line.operands, strict=True)
            ]
        made = _flushed(np.asarray(function(*values), np.float32))
        parts = [made] if len(line.results) == 1 else made
        self.registers.update(zip(line.results, parts, strict=True))
        self.flushed.update(line.results)

    def _flushed(self, operand: str, line: _Line) -> Array:
        """An operand without subnormal values; what an instruction on f32 has made is without them already."""
        value = self._value(operand, line)
        return value if operand in self.flushed else _flushed(value)

    def _value(self, operand: str, line: _Line) -> Array:
        number = _NUMBER.match(operand)
        if number:
            return np.array([int(number[1], 16)], np.uint32).view(np.float32)
        if operand not in self.registers:
            raise InterpreterError(f"inline assembly {line} reads {operand} before anything is written to it")
        return self.registers[operand]


def _bits(values: Array) -> Array:
    """f32 values as bits; every NaN is the one that the hardware makes."""
    bits = values.view(np.uint32).copy()
    bits[np.isnan(values)] = 0x7FFFFFFF
    return bits


def _whole(text: str, line: _Line) -> Array:
    if not text.isdecimal() or int(text) > 31:
        raise InterpreterError(f"inline assembly {line}: {text} is no number of bits to shift by")
    return np.array([int(text)], np.uint32)


def _flushed(x: Array) -> Array:
    """Values with subnormal ones made zero, which keeps its sign."""
    small = np.abs(x) < _SMALLEST
    return np.where(small, np.copysign(np.float32(0), x), x) if small.any() else x


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
