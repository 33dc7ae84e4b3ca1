"""The table of scalar primitives. A new one is one entry here: what other rooms say of primitives is read from it.

A primitive with a `doc` is an op of the graph too. Texts, meanings and facts of every entry are held against one
another in `tests/primitives`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from wsopt.entries import Table
from wsopt.primitives import error_function, exponential, gelu_tail
from wsopt.primitives.types import NAN_RULE, Comparison, Family, Implementation, Primitive

Facts = dict[str, Any]

_OWN = "wsopt.primitives.functions"
_EXACT = (0.0, 0.0)
_FUNCTION = (2.0**-21, 0.0)
_BOUNDED = (2.0**-21, 2.0**-21)
"""Errors of functions (PTX ISA): ex2.approx 2 ulp, lg2.approx 2**-22, rsqrt.approx 2**-22.9. That of erf is
`error_function`'s: near one half of it counts as relative, half as absolute.
"""


_EXP2: Facts = {
    "at_zero": 1.0,
    "at_low": 0.0,
    "otherwise": Implementation(
        "exp2_on_both_pipes", exponential.MIX, MappingProxyType({"exp2": 1}), exponential.CHAIN
    ),
}
_DIV: Facts = {"family": Family.REAL, "doc": "a / b, in f32 for integers too.", "finite": False}
_PLAIN: Facts = {"family": Family.ARITHMETIC, "finite": True, "at_zero": 0.0, "slope": 1.0, "error": _EXACT}
_ERF: Facts = {
    "gluon": "erf_by_ratio({0})",
    "helper": "erf_by_ratio",
    "finite": True,
    "at_zero": 0.0,
    "slope": 2 / math.sqrt(math.pi),
    "error": _BOUNDED,
}
_GELU_TAIL: Facts = {
    "gluon": "gelu_tail_by_ratio({0})",
    "helper": "gelu_tail_by_ratio",
    "torch": "(torch.relu({0}) - torch.nn.functional.gelu({0}))",
    "finite": True,
    "at_zero": 0.0,
    "slope": 0.5,
    "error": (2.0**-15, 2.0**-21),
}
_TANH: Facts = {
    "gluon": "tanh_approx({0})",
    "helper": "tanh_approx",
    "finite": True,
    "at_zero": 0.0,
    "slope": 1.0,
    "error": (2.0**-11, 0.0),
}


def _mix(**counts: float) -> Mapping[str, float]:
    return MappingProxyType(counts)


def _binary(name: str, symbol: str, numpy: str, **more: Any) -> Primitive:
    """Arithmetic on two operands, written with an operator or a call."""
    known: dict[str, Any] = {
        "family": Family.ARITHMETIC,
        "torch": name,
        "finite": True,
        "doc": f"a {symbol} b.",
    }
    return Primitive(name, operands=("a", "b"), symbol=symbol, numpy=numpy, **(known | more))


def _extreme(name: str, numpy: str, adjective: str) -> Primitive:
    return _binary(
        name,
        "",
        numpy,
        doc=f"The {adjective} of a and b; nan if either is.",
        mix=_mix(max=1),
        gluon=f"gl.{name}({{0}}, {{1}})",
        gluon_f32=f"gl.{name}({{0}}, {{1}}, propagate_nan={NAN_RULE})",
        helper="tl",
    )


def _unary(name: str, numpy: str, doc: str, mix: Mapping[str, float], **more: Any) -> Primitive:
    """A function of one real operand, called by its name in Gluon and torch unless another text is given."""
    known: dict[str, Any] = {
        "family": Family.REAL,
        "gluon": f"gl.{name}({{0}})",
        "torch": name,
        "error": _FUNCTION,
    }
    return Primitive(name, doc=doc, operands=("x",), mix=mix, numpy=numpy, **(known | more))


def _comparison(
    name: str, symbol: str, numpy: str, instruction: str, negated: str, mirrored: str
) -> Primitive:
    return _binary(
        name,
        symbol,
        numpy,
        family=Family.COMPARISON,
        mix=_mix(compare=1),
        torch=instruction,
        finite=False,
        comparison=Comparison(instruction, negated, mirrored),
    )


def _logical(name: str, symbol: str, numpy: str, doc: str, *operands: str) -> Primitive:
    mix = _mix(logic=1)
    return Primitive(
        name, Family.LOGICAL, doc, operands, mix, symbol=symbol, numpy=numpy, torch=name, finite=False
    )


def _turn(name: str) -> Facts:
    """What is common to functions of an angle, which a kernel has of its own: Triton's need a stack."""
    own: Facts = {"gluon": f"{name}_approx({{0}})", "helper": f"{name}_approx"}
    return own | {"finite": True, "slope": 1.0, "error": (2.0**-21, 2.0**-20)}


def _rounding(name: str, torch: str, **counts: float) -> Primitive:
    return Primitive(f"round_{name}", Family.ROUNDING, operands=("x",), mix=_mix(**counts), torch=torch)


def _place(name: str, family: Family, **counts: float) -> Primitive:
    return Primitive(name, family, mix=_mix(**counts))


_CHOICE = Primitive(
    name="where",
    family=Family.CHOICE,
    doc="a where cond holds, b elsewhere.",
    operands=("cond", "a", "b"),
    mix=_mix(select=1),
    gluon="gl.where({0}, {1}, {2})",
    numpy="numpy.where",
    torch="where",
)

_ENTRIES: tuple[Primitive, ...] = (
    _binary("add", "+", "numpy.add", mix=_mix(add=1), at_zero=0.0),
    _binary("sub", "-", "numpy.subtract", mix=_mix(add=1), at_zero=0.0),
    _binary("mul", "*", "numpy.multiply", mix=_mix(mul=1)),
    _binary("div", "/", "numpy.divide", mix=_mix(rcp=1, mul=1, fma=2), **_DIV),
    _extreme("maximum", "numpy.maximum", "larger"),
    _extreme("minimum", "numpy.minimum", "smaller"),
    _unary("neg", "numpy.negative", "-x.", _mix(mul=1), symbol="-", **_PLAIN),
    _unary("abs", "numpy.abs", "The magnitude of x.", _mix(logic=1), **_PLAIN),
    _unary("exp", "numpy.exp", "e to the power x.", _mix(exp2=1, mul=2), at_zero=1.0, at_low=0.0),
    _unary("exp2", "numpy.exp2", "2 to the power x.", _mix(exp2=1, mul=1), **_EXP2),
    _unary("log", "numpy.log", "The natural logarithm of x.", _mix(log2=1, mul=2), error=_BOUNDED),
    _unary("log2", "numpy.log2", "The logarithm of x to base 2.", _mix(log2=1, mul=1), error=_BOUNDED),
    _unary("sqrt", "numpy.sqrt", "The square root of x.", _mix(rsqrt=1, mul=1, fma=2)),
    _unary("rsqrt", f"{_OWN}.rsqrt", "1 / sqrt(x).", _mix(rsqrt=1)),
    _unary("erf", f"{_OWN}.erf", "The error function of x.", error_function.MIX, **_ERF),
    _unary("sin", "numpy.sin", "The sine of x, in radians.", _mix(sin=1, fma=8), at_zero=0.0, **_turn("sin")),
    _unary("cos", "numpy.cos", "The cosine of x, in radians.", _mix(cos=1, fma=8), **_turn("cos")),
    _unary("tanh_approx", "numpy.tanh", "", _mix(tanh=1), torch="tanh", **_TANH),
    _unary("gelu_tail", f"{_OWN}.gelu_tail", "", gelu_tail.MIX, **_GELU_TAIL),
    _comparison("equal", "==", "numpy.equal", "eq", "not_equal", "equal"),
    _comparison("not_equal", "!=", "numpy.not_equal", "ne", "equal", "not_equal"),
    _comparison("less", "<", "numpy.less", "lt", "greater_equal", "greater"),
    _comparison("less_equal", "<=", "numpy.less_equal", "le", "greater", "greater_equal"),
    _comparison("greater", ">", "numpy.greater", "gt", "less_equal", "less"),
    _comparison("greater_equal", ">=", "numpy.greater_equal", "ge", "less", "less_equal"),
    _logical("logical_and", "&", "numpy.logical_and", "Both a and b.", "a", "b"),
    _logical("logical_or", "|", "numpy.logical_or", "a or b or both.", "a", "b"),
    _logical("logical_not", "~", "numpy.logical_not", "Not x.", "x"),
    _CHOICE,
    _rounding("f32", "float32"),
    _rounding("f16", "float16", convert=1),
    _rounding("bf16", "bfloat16", convert=1),
    _rounding("f8e4m3", "float8_e4m3fn", convert_f8=1),
    _rounding("f8e5m2", "float8_e5m2", convert_f8=1),
    # of two elements, as the others: SASS of Triton 3.9, sm_90
    _rounding("i8", "int8", max=4, add=2, compare=2, select=2, logic=1.5),
    _place("iota_row", Family.INDEX, iadd=1),
    _place("iota_column", Family.INDEX, iadd=1),
    _place("iota_stream", Family.INDEX, iadd=1),
    _place("iota_batch", Family.INDEX),
    _place("iota_group", Family.INDEX),
    _place("extent_stream", Family.INDEX),
    _place("inside_stream", Family.INSIDE, iadd=1, compare=1),
    _place("inside_column", Family.INSIDE, compare=1),
    _place("inside_row", Family.INSIDE, compare=1),
    _place("largest_of_group", Family.GROUPED, max=1.5, logic=0.5),
    # SASS of 1024 elements over 4 warps, Triton 3.9, sm_90: 22 FADD and 6 SHFL of 8 elements a thread
    _place("running_sum", Family.GROUPED, add=2.75, shuffle=0.75),
)

PRIMITIVES = Table("primitive", *_ENTRIES)
"""Every primitive by name. Values of a loop that are none (products, reductions, tensors) are not in it."""


def family_of(name: str) -> Family | None:
    """The family of a primitive; None for what is no primitive."""
    found = PRIMITIVES.get(name)
    return None if found is None else found.family


def comparison_of(name: str) -> Comparison | None:
    """The facts of a comparison; None for what is none."""
    found = PRIMITIVES.get(name)
    return None if found is None else found.comparison


added = PRIMITIVES.added
"""More primitives while the context lasts, in this process."""

T = TypeVar("T")


class FromTable(Mapping[str, T], Generic[T]):
    """What a room says of names: of the primitives by `make`, which gives None for one that does not concern it, and
    of `others` as they stand, which take precedence. Primitives come first, and those that are added last.
    """

    def __init__(self, make: Callable[[Primitive], T | None], others: Mapping[str, T] | None = None) -> None:
        self._make = functools.cache(make)
        self._others = others or {}

    def __getitem__(self, name: str) -> T:
        if name in self._others:
            return self._others[name]
        found = self._make(PRIMITIVES[name])
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        own = (name for name, entry in PRIMITIVES.items() if self._make(entry) is not None)
        yield from (name for name in own if name not in self._others)
        yield from self._others

    def __len__(self) -> int:
        return sum(1 for _ in self)
