"""The elementwise functions of Gluon, and the instructions that a kernel may name in inline assembly."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np

from wsopt.interpret import assembly, dtypes, words
from wsopt.interpret.dtypes import FLOAT32, Array, DType
from wsopt.interpret.faults import InterpreterError
from wsopt.interpret.tensor import Tensor, binary, common_layout, operand, promoted, unary


def _erf(x: Array) -> Array:
    """Error function to 1.5e-7 (Abramowitz and Stegun 7.1.26), computed in float64."""
    wide = np.asarray(x, np.float64)
    t = 1.0 / (1.0 + 0.3275911 * np.abs(wide))
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return np.asarray(np.copysign(1.0 - poly * np.exp(-wide * wide), wide), x.dtype)


def _rsqrt(x: Array) -> Array:
    return np.asarray(np.reciprocal(np.sqrt(x)))


FLOAT_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "sqrt": np.sqrt,
    "sqrt_rn": np.sqrt,
    "rsqrt": _rsqrt,
    "erf": _erf,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "floor": np.floor,
    "ceil": np.ceil,
}

LIBDEVICE_FUNCTIONS = ("exp", "log", "erf", "tanh", "log1p", "expm1")
GLUON_FUNCTIONS = tuple(name for name in FLOAT_FUNCTIONS if name not in ("tanh", "log1p", "expm1"))

INSTRUCTIONS: dict[str, Callable[..., Array]] = {
    "tanh": np.tanh,
    "ex2": np.exp2,
    "lg2": np.log2,
    "rcp": np.reciprocal,
    "rsqrt": _rsqrt,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "abs": np.abs,
    "neg": np.negative,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.fmax,
    "min": np.fmin,
    "fma": lambda a, b, c: a * b + c,
}
CLOCK = "mov.u32 $0, %clock;"
"""Assembly that reads the lower half of the SM's clock."""
COPY = "mov.b32 $0, $1;"
WIDENING = (
    "{ .reg .b32 low, high; shl.b32 low, $2, 16; and.b32 high, $2, 0xffff0000; "
    "mov.b32 $0, low; mov.b32 $1, high; }"
)
"""Assembly that copies a whole number."""

_KEEPING_NAN: dict[str, Callable[..., Array]] = {"max": np.maximum, "min": np.minimum}
_MODIFIERS = {"approx", "ftz", "rn", "f32", "full", "NaN"}
_CHOICE = re.compile(
    r"^\{ \.reg \.pred p; setp\.(\w+)\.s32 p, \$1, \$2; selp\.f32 \$0, \$3, \$4, p; \}$",
)
_COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
_ROUNDING = re.compile(r"^cvt\.rn\.(f16|bf16)x2\.f32 \$0, \$2, \$1;$")
_ROUNDED = {"f16": dtypes.named("float16"), "bf16": dtypes.named("bfloat16")}
_INSTRUCTION = re.compile(r"^\s*([a-z0-9]+)((?:\.\w+)+)\s+\$0\s*,(?:\s*\$\d+\s*,?)+\s*;?\s*$")


def float_function(name: str) -> Callable[[Tensor], Tensor]:
    """Return `gl.NAME`."""
    function = FLOAT_FUNCTIONS[name]

    def apply(x: Any) -> Tensor:
        if isinstance(x, float):  # computed from a block's number or an argument: a scalar on the device
            x = Tensor(np.asarray(x, np.float32), FLOAT32, None)
        if not isinstance(x, Tensor) or x.dtype.name not in ("float32", "float64"):
            found = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise InterpreterError(f"gl.{name} needs a float32 or float64 tensor, got {found}")
        return unary(function, x)

    apply.__name__ = name
    return apply


def libdevice() -> dict[str, Callable[[Tensor], Tensor]]:
    """Return the functions of `libdevice` that kernels use."""
    return {name: float_function(name) for name in LIBDEVICE_FUNCTIONS}


def absolute(x: Any) -> Any:
    """`gl.abs`."""
    return unary(np.abs, x) if isinstance(x, Tensor) else abs(x)


class PropagateNan(Enum):
    """`tl.PropagateNan`: whether NaN in either operand is the result, or the other operand is."""

    NONE = "none"
    ALL = "all"


def maximum(x: Any, y: Any, propagate_nan: Any = PropagateNan.NONE) -> Any:
    """`gl.maximum`, of tensors or of plain numbers; drops NaN as the instruction does, unless told to keep it."""
    keeps = _keeps_nan("maximum", propagate_nan)
    if isinstance(x, Tensor) or isinstance(y, Tensor):
        return binary(np.maximum if keeps else np.fmax, x, y)
    return max(x, y)


def minimum(x: Any, y: Any, propagate_nan: Any = PropagateNan.NONE) -> Any:
    """`gl.minimum`, of tensors or of plain numbers; drops NaN as the instruction does, unless told to keep it."""
    keeps = _keeps_nan("minimum", propagate_nan)
    if isinstance(x, Tensor) or isinstance(y, Tensor):
        return binary(np.minimum if keeps else np.fmin, x, y)
    return min(x, y)


def _keeps_nan(name: str, given: Any) -> bool:
    if not isinstance(given, PropagateNan):
        raise InterpreterError(f"gl.{name}: propagate_nan is {given!r}, which is no tl.PropagateNan")
    return given is PropagateNan.ALL


def fdiv(x: Any, y: Any) -> Any:
    """`gl.fdiv` and `gl.div_rn`."""
    return binary(np.divide, x, y, divide=True)


def fma(x: Any, y: Any, z: Any) -> Any:
    """`gl.fma`; rounded twice, which no kernel may depend on."""
    return x * y + z


def where(condition: Any, x: Any, y: Any) -> Any:
    """`gl.where`; a condition that is a plain truth value chooses whole operands."""
    if not isinstance(condition, Tensor):
        return x if condition else y
    layout = common_layout((condition, x, y))
    if isinstance(x, Tensor) or isinstance(y, Tensor):
        dtype: DType = promoted(x, y)
    else:
        dtype = dtypes.INT32 if isinstance(x, int) and isinstance(y, int) else dtypes.FLOAT32
    chosen = np.where(condition.data, operand(x, dtype), operand(y, dtype))
    return Tensor(dtypes.convert(chosen, dtype), dtype, layout)


def inline_asm(
    asm: str, constraints: str, args: Any, dtype: DType, is_pure: bool = True, pack: int = 1
) -> Any:
    """`gl.inline_asm_elementwise` for one known float32 instruction, a comparison of whole numbers and the choice by
    it, a rounding or a widening of two elements, a block of f32 instructions, or a copy of a whole number;
    InterpreterError otherwise.
    """
    if asm == COPY:
        return _copied(args, dtype, is_pure=is_pure)
    rounding = _ROUNDING.match(asm)
    if rounding is not None and int(pack) == 2:
        return _rounded(_ROUNDED[rounding.group(1)], args, dtype)
    if asm == WIDENING and int(pack) == 2:
        return _widened(args, dtype)
    choice = _CHOICE.match(asm)
    if choice is not None and choice.group(1) in _COMPARISONS:
        return _chosen(choice.group(1), args, dtype)
    if words.is_words(asm, int(pack)):
        made: Tensor = words.execute(asm, constraints, args, dtype)
        return made
    if assembly.is_block(asm):
        if dtype != FLOAT32:
            raise InterpreterError("a block of inline assembly makes float32")
        return assembly.execute(asm, constraints, args, int(pack))
    match = _INSTRUCTION.match(asm)
    modifiers = set(match.group(2).split(".")[1:]) if match else set()
    if match is None or match.group(1) not in INSTRUCTIONS or not modifiers <= _MODIFIERS or int(pack) != 1:
        raise InterpreterError(
            f"inline assembly {asm.strip()!r} (pack {pack}) is not one known float32 instruction"
        )
    if any(arg.dtype != dtypes.FLOAT32 for arg in args) or dtype != dtypes.FLOAT32:
        raise InterpreterError(f"inline assembly {asm.strip()!r} needs float32 operands")
    layout = common_layout(tuple(args))
    values = [arg.data for arg in args]
    instructions = _KEEPING_NAN if "NaN" in modifiers else INSTRUCTIONS
    if match.group(1) not in instructions:
        raise InterpreterError(f"inline assembly {asm.strip()!r}: {match.group(1)} takes no .NaN")
    return Tensor(np.asarray(instructions[match.group(1)](*values), np.float32), dtype, layout)


def _is_one_i32(value: object) -> bool:
    """Whether a value is one i32 of all threads, as the number of a tile that was told is."""
    return isinstance(value, Tensor) and value.dtype == dtypes.INT32 and not value.data.shape


def _copied(args: Any, dtype: DType, *, is_pure: bool) -> Any:
    """A whole number of a role's own: of a copy that is pure the compiler makes one for all."""
    (value,) = args
    whole = not isinstance(value, (Tensor, float)) or _is_one_i32(value)
    if dtype != dtypes.INT32 or not whole or is_pure:
        raise InterpreterError("a copy in inline assembly takes one whole number, and is not pure")
    return value


def _chosen(comparison: str, args: Any, dtype: DType) -> Tensor:
    types = (dtypes.INT32, dtypes.INT32, FLOAT32, FLOAT32)
    if dtype != FLOAT32 or any(
        arg.dtype != wanted for arg, wanted in zip(args, types, strict=True) if isinstance(arg, Tensor)
    ):
        raise InterpreterError("a choice in inline assembly compares int32 and chooses float32")
    left, right, value, other = (operand(arg, wanted) for arg, wanted in zip(args, types, strict=True))
    data = np.where(_COMPARISONS[comparison](left, right), value, other)
    return Tensor(np.asarray(data, np.float32), dtype, common_layout(tuple(args)))


def _widened(args: Any, dtype: DType) -> Tensor:
    (value,) = args
    if dtype != FLOAT32 or value.dtype != _ROUNDED["bf16"]:
        raise InterpreterError("a widening in inline assembly takes bfloat16 to float32")
    return Tensor(np.asarray(value.data, np.float32), dtype, value.layout)


def _rounded(to: DType, args: Any, dtype: DType) -> Tensor:
    (value,) = args
    if dtype != to or value.dtype != FLOAT32:
        raise InterpreterError(f"a rounding in inline assembly takes float32 to {to}")
    return Tensor(dtypes.convert(value.data, to), to, value.layout)
