"""One elementwise node of the graph as a tree of scalar primitives (`wsopt.primitives`).

Where every use of a value ends in a type of eight significant bits or fewer, the hardware's tanh serves (its error
is 2**-11), and a shorter form of gelu (2**-15); elsewhere the forms are those of f32, to 1e-6 of the values that they
add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.frontend.values import Pool, Term
from wsopt.graph.meaning import Array
from wsopt.graph.ops import OPS
from wsopt.graph.types import DType, Graph, Node
from wsopt.primitives import PRIMITIVES, Family, comparison_of, family_of
from wsopt.tensors.statements import Scalar

OPERANDS = (DType.F16, DType.BF16, DType.F8E4M3, DType.F8E5M2, DType.F32)
"""Element types of the tensor cores' operands; of f32 they take the leading bits, which are tf32."""

_FLOATS = (DType.F32, DType.F16, DType.BF16, DType.F8E4M3, DType.F8E5M2)
OUTPUTS = (*_FLOATS, DType.I8)
"""Element types that a kernel rounds values to."""

STORED = (*OUTPUTS, DType.I32, DType.BOOL)
"""Element types that a kernel stores."""

SOURCES = (*_FLOATS, DType.I32, DType.I8, DType.BOOL)
"""Element types that elementwise operations read."""

_NARROW = (DType.BF16, DType.F8E4M3, DType.F8E5M2)
_WHOLE = (DType.I32, DType.I8)
_WHOLE_NUMBERS = (Family.ARITHMETIC, Family.COMPARISON, Family.CHOICE)
"""Families of primitives that compute with i32."""

_EXPONENTIALS = frozenset({"softmax", "logsumexp", "exp", "exp2"})
_NUMBERS: dict[type, type] = {bool: np.bool_, int: np.int32, float: np.float32}

Emit = Callable[[str, tuple[Term, ...]], Term]
"""Appends a primitive with its operands; returns the result."""


def _tanh(emit: Emit, x: Term, approximate: bool) -> Term:
    """tanh(x); without the hardware's as 1 - 2 / (1 + exp(2x)), which has its limits, within 1e-7 of one."""
    if approximate:
        return emit("tanh_approx", (x,))
    grown = emit("exp", (emit("mul", (x, 2.0)),))
    return emit("sub", (1.0, emit("div", (2.0, emit("add", (grown, 1.0))))))


def _gated(emit: Emit, x: Term, gate: Term) -> Term:
    """x / 2 (1 + gate)."""
    half = emit("mul", (x, 0.5))
    return emit("add", (emit("mul", (half, gate)), half))


def _power_of_number(emit: Emit, base: float, exponent: Term) -> Term | None:
    """b**e for a number b: exp2(e log2 b); None for one that has no logarithm. Whatever e is, 1**e is 1."""
    if base == 1:
        return emit("where", (emit("equal", (exponent, exponent)), 1.0, 1.0))
    if not 0 < base < math.inf:
        return None
    return emit("exp2", (exponent if base == 2 else emit("mul", (exponent, math.log2(base))),))


def _power(emit: Emit, x: Term, exponent: Term) -> Term | None:
    """x**e for a number e: by multiplication for small whole e, else exp2(e log2 |x|); for a number x as above; None
    for two tensors.

    A large whole exponent keeps the sign of x if it is odd; the power of a negative x by a fraction is nan.
    """
    if not isinstance(x, str):
        return _power_of_number(emit, float(x), exponent)
    if isinstance(exponent, str):
        return None
    if exponent == 0:
        return emit("where", (emit("equal", (x, x)), 1.0, 1.0))
    whole = float(exponent).is_integer()
    if whole and abs(exponent) <= 8:
        result: Term = x
        for _ in range(int(abs(exponent)) - 1):
            result = emit("mul", (result, x))
        return result if exponent > 0 else emit("div", (1.0, result))
    base = emit("abs", (x,)) if whole else x
    grown = emit("exp2", (emit("mul", (emit("log2", (base,)), float(exponent))),))
    if not whole or exponent % 2 == 0:
        return grown
    return emit("where", (emit("less", (x, 0.0)), emit("neg", (grown,)), grown))


def expand(
    op: str, args: tuple[Term, ...], emit: Emit, *, approximate: bool, flavour: str = ""
) -> Term | None:
    """The result of an elementwise op of the graph, written through `emit`; None if it has no expansion.

    `approximate` allows the hardware's tanh, from which sigmoid(x) is 0.5 + 0.5 tanh(x / 2); `flavour` is gelu's
    `approximate` attribute. With g = erf(x / sqrt 2), or tanh(sqrt(2 / pi) (x + 0.044715 x**3)), gelu is
    x / 2 (1 + g) (Hendrycks and Gimpel 2016), and so what max(x, 0) is without its tail.
    """
    match op, args:
        case "relu", (x,):
            return emit("maximum", (x, 0.0))
        case "reciprocal", (x,):
            return emit("div", (1.0, x))
        case "tanh", (x,):
            return _tanh(emit, x, approximate)
        case (("sigmoid" | "silu"), (x,)) if not approximate:
            grown = emit("add", (emit("exp", (emit("neg", (x,)),)), 1.0))
            return emit("div", (x if op == "silu" else 1.0, grown))
        case "sigmoid", (x,):
            half = emit("tanh_approx", (emit("mul", (x, 0.5)),))
            return emit("add", (emit("mul", (half, 0.5)), 0.5))
        case "silu", (x,):
            return _gated(emit, x, emit("tanh_approx", (emit("mul", (x, 0.5)),)))
        case "gelu", (x,) if flavour == "tanh":
            scale = math.sqrt(2 / math.pi)
            slope = emit("add", (emit("mul", (emit("mul", (x, x)), scale * 0.044715)), scale))
            return _gated(emit, x, _tanh(emit, emit("mul", (x, slope)), approximate))
        case "gelu", (x,) if approximate:
            return emit("sub", (emit("maximum", (x, 0.0)), emit("gelu_tail", (x,))))
        case "gelu", (x,):
            return _gated(emit, x, emit("erf", (emit("mul", (x, math.sqrt(0.5))),)))
        case "pow", (x, exponent):
            return _power(emit, x, exponent)
        case _ if op in PRIMITIVES and PRIMITIVES[op].doc:
            return emit(op, args)
    return None


def narrow_nodes(graph: Graph, *, exponents: bool) -> frozenset[str]:
    """The nodes of which every use ends in a type of at most eight significant bits.

    Without `exponents`, what an exponential reads is not narrow: a relative error there is an absolute one
    of the exponent, which grows with the value.
    """
    wide = set(graph.outputs)
    for node in reversed(graph.nodes):
        if not exponents and node.op in _EXPONENTIALS:
            wide.update(node.tensors)
        if node.op == "cast" and node.type.dtype in _NARROW:
            wide.discard(node.name)
        elif node.name in wide or node.type.dtype is DType.BOOL:
            wide.update((node.name, *node.tensors))
    return frozenset(node.name for node in graph.nodes if node.name not in wide)


def _condition(pool: Pool, node: Node, x: Term) -> Term:
    """Whether a value is not zero: a cast to bool. A condition is its own."""
    dtype = pool[str(x)].dtype
    if dtype is DType.BOOL:
        return x
    return pool.make("not_equal", (x, 0 if dtype in _WHOLE else 0.0), DType.BOOL, node.name)


def _whole_number(pool: Pool, node: Node, x: Term) -> Term:
    """A value as i32: a whole number is one where it is computed, and a condition is 1 where it holds, else 0."""
    dtype = pool[str(x)].dtype
    if dtype is DType.BOOL:
        return pool.make("where", (x, 1, 0), DType.I32, node.name)
    if dtype is DType.I32:
        return x
    if dtype is DType.I8:
        return pool.make("add", (x, 0), DType.I32, node.name)
    raise LoweringError(
        f"node {node.name}: a cast of {dtype.value} to i32 is not lowered; {remedies.WHOLE_NUMBERS}"
    )


def pointwise(pool: Pool, node: Node, args: tuple[Term, ...], *, approximate: bool) -> Term:
    """The value of an elementwise node or a cast; numbers are folded.

    Raises LoweringError for what has no expansion into primitives.
    """
    dtype = node.type.dtype
    numbers = [a for a in args if not isinstance(a, str)]
    if len(numbers) == len(args):
        arrays: tuple[Array, ...] = tuple(np.asarray(number, _NUMBERS[type(number)]) for number in numbers)
        folded: Scalar = OPS[node.op].evaluate(arrays, dict(node.attrs)).item()
        return folded
    if any(isinstance(number, bool) for number in numbers):
        raise LoweringError(
            f"node {node.name}: a condition of {node.op} is the same everywhere; leave it out"
        )
    if node.op == "cast":
        if dtype is DType.BOOL:
            return _condition(pool, node, args[0])
        if dtype is DType.I32:
            return _whole_number(pool, node, args[0])
        if dtype not in OUTPUTS:
            raise LoweringError(
                f"node {node.name}: a cast to {dtype.value} is not lowered; "
                f"to {', '.join(one.value for one in STORED)} it is"
            )
        return pool.make(f"round_{dtype.value}", args, dtype, node.name)
    if dtype is DType.I32 and family_of(node.op) not in _WHOLE_NUMBERS:
        raise LoweringError(f"node {node.name}: {node.op} on i32 is not lowered; cast to f32 first")

    def emit(primitive: str, terms: tuple[Term, ...]) -> Term:
        return pool.make(primitive, terms, DType.BOOL if comparison_of(primitive) else dtype, node.name)

    flavour = node.attr("approximate", str) if node.op == "gelu" else ""
    result = expand(node.op, args, emit, approximate=approximate, flavour=flavour)
    if result is None:
        remedy = (
            "; one of them is a number, and a base is positive then; else write exp2(e * log2(x))"
            if node.op == "pow"
            else ""
        )
        raise LoweringError(f"node {node.name}: {node.op} of these operands is not lowered{remedy}")
    return result
