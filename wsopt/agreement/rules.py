"""The rule by which errors go through each elementwise operation, comparison, cast and move of data."""

from __future__ import annotations

import math
from collections.abc import Mapping

from wsopt.agreement import choices, functions, moves
from wsopt.agreement.arithmetic import divided, multiplied, summed
from wsopt.agreement.figures import Errors, Figure, Kit, Rule, Step
from wsopt.primitives import Family, FromTable, Primitive


def _nothing(_kit: Kit, _step: Step, _operands: tuple[Figure, ...]) -> Errors:
    return Errors()


def _of_primitive(entry: Primitive) -> Rule | None:
    """The rule of a primitive that has none of its own below."""
    match entry.family:
        case Family.COMPARISON:
            return choices.compared
        case Family.LOGICAL:
            return choices.logical
        case _:
            return None if entry.slope is None else functions.smooth


ELEMENTWISE: Mapping[str, Rule] = FromTable(
    lambda entry: _of_primitive(entry) if entry.doc else None,
    {
        "add": summed,
        "sub": summed,
        "mul": multiplied,
        "div": divided,
        "maximum": choices.larger(1.0),
        "minimum": choices.larger(-1.0),
        "pow": functions.power,
        "exp": functions.exponential(math.e),
        "exp2": functions.exponential(2.0),
        "log": functions.logarithm(math.e),
        "log2": functions.logarithm(2.0),
        "sqrt": functions.root,
        "rsqrt": functions.reciprocal_root,
        "reciprocal": functions.reciprocal,
        "relu": choices.relu,
        **dict.fromkeys(("tanh", "sigmoid", "silu", "gelu"), functions.smooth),
        "cast": moves.cast,
        "where": choices.where,
        "iota": _nothing,
        "reshape": moves.moved(lambda kit, step, e: kit.xp.reshape(e, tuple(step.attrs["shape"]))),
        "transpose": moves.moved(moves.transposed),
        "slice": moves.moved(moves.sliced),
        "concat": moves.joined,
        "pad": moves.padded,
        "gather": moves.gathered,
    },
)
"""The rules of operations that take elements as they come; `sums.RULES` has all."""
