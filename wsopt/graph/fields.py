"""Reads the fields of the format from JSON values: a reader returns the value, or notes faults and None."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, TypeGuard, assert_never

from wsopt.graph.elsewhere import DTYPES
from wsopt.graph.extents import BadExtent
from wsopt.graph.faults import Faults, describe, hint, join, nearest, quote
from wsopt.graph.infer import MAX_EXTENT, MAX_RANK
from wsopt.graph.jsontext import JsonObject
from wsopt.graph.op_spec import AttrKind, AttrSpec
from wsopt.graph.types import AttrValue, DType, Operand

NAME_PATTERN = r"[A-Za-z_][A-Za-z0-9_]*"
SCALAR_WORDS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
DTYPE_WORDS = tuple(dtype.value for dtype in DType)
_MISSPELT_DTYPE = 0.7
"""Likeness of a misspelt dtype and the dtype: that of "f64" and "f16" is 0.67."""

F32_LARGEST = (2 - 2**-23) * 2.0**127
F32_OVERFLOW = (2 - 2**-24) * 2.0**127
"""The least number that rounds to an infinite f32: the largest one is often written with few digits, rounded up."""

_NAMES_WANT_DIMS = "names of extents want the graph's dims"
_NAME = re.compile(NAME_PATTERN)


def read_object(
    value: object,
    pointer: str,
    required: Iterable[str],
    optional: Iterable[str],
    faults: Faults,
    what: str = "key",
) -> dict[str, Any] | None:
    """An object with the required keys and no unknown ones. None if it is no object at all."""
    if not isinstance(value, dict):
        faults.wants(pointer, "an object", value)
        return None
    required, known = tuple(required), (*required, *optional)
    for key in value.duplicates if isinstance(value, JsonObject) else ():
        faults.add(join(pointer, key), f"the key {quote(key)} stands more than once")
    meant = set()
    for key in (key for key in value if key not in known):
        close = nearest(str(key), [name for name in known if name not in value])
        meant.add(close)
        allowed = f"allowed: {', '.join(known)}" if known else "none is allowed here"
        ask = f"; did you mean {quote(close)}?" if close else ""
        faults.add(join(pointer, key), f"unknown {what} {quote(str(key))}; {allowed}{ask}")
    for key in required:
        # A misspelt key is one fault, not also a missing one.
        if key not in value and key not in meant:
            faults.add(pointer, f"lacks the {what} {quote(key)}")
    return value


def read_list(value: object, pointer: str, wanted: str, faults: Faults) -> list[Any] | None:
    """An array, as it is."""
    if isinstance(value, list):
        return value
    faults.wants(pointer, f"an array of {wanted}", value)
    return None


def read_name(value: object, pointer: str, faults: Faults) -> str | None:
    """A name of a graph or tensor."""
    if not isinstance(value, str):
        faults.wants(pointer, "a name (a string)", value)
    elif not _NAME.fullmatch(value):
        faults.add(pointer, f"the name {quote(value)} does not match {NAME_PATTERN}")
    elif value in SCALAR_WORDS:
        faults.add(pointer, f"the name {quote(value)} is the scalar's and cannot be given")
    else:
        return value
    return None


def read_flag(value: object, pointer: str, faults: Faults) -> bool:
    """A truth value; False beside a fault."""
    if not isinstance(value, bool):
        faults.wants(pointer, "true or false", value)
        return False
    return value


def read_doc(value: object, pointer: str, faults: Faults) -> str:
    """Free text."""
    if not isinstance(value, str):
        faults.wants(pointer, "a string", value)
    elif any("\ud800" <= char <= "\udfff" for char in value):
        faults.add(pointer, "the string has an unpaired surrogate, which is no character")
    else:
        return value
    return ""


def read_dtype(value: object, pointer: str, faults: Faults) -> DType | None:
    """One of the format's dtypes."""
    if isinstance(value, str) and value in DTYPE_WORDS:
        return DType(value)
    ask = _meant_dtype(value) if isinstance(value, str) else ""
    faults.wants(pointer, f"a dtype: {' '.join(DTYPE_WORDS)}{ask}", value)
    return None


def _meant_dtype(word: str) -> str:
    known = DTYPES.get(word)
    return f"; did you mean {quote(known)}?" if known else hint(word, DTYPE_WORDS, _MISSPELT_DTYPE)


def read_shape(value: object, pointer: str, faults: Faults) -> tuple[int, ...] | None:
    """An array of extents, each 1 to 2**31 - 1. Rank 0 is a single element."""
    return _integers(value, pointer, "extents", 1, faults)


def read_strides(value: object, pointer: str, faults: Faults) -> tuple[int, ...] | None:
    """An array of strides in elements. 0 repeats, and overlapping is fine, for an input is only read."""
    return _integers(value, pointer, "strides", 0, faults)


def _integers(value: object, pointer: str, what: str, least: int, faults: Faults) -> tuple[int, ...] | None:
    entries = read_list(value, pointer, what, faults)
    if entries is None:
        return None
    if len(entries) > MAX_RANK:
        faults.add(pointer, f"{len(entries)} {what}; a tensor has at most {MAX_RANK} axes")
        return None
    good = []
    for index, entry in enumerate(entries):
        if is_integer(entry) and least <= entry <= MAX_EXTENT:
            good.append(entry)
        elif isinstance(entry, BadExtent):
            faults.add(join(pointer, index), entry.why)
        else:
            wanted = f"an integer from {least} to 2**31 - 1"
            faults.wants(join(pointer, index), wanted + _tip(entry, what), entry)
    return tuple(good) if len(good) == len(entries) else None


def _tip(entry: object, what: str) -> str:
    """What else to write instead of an entry that is no extent or stride."""
    if isinstance(entry, str):
        return f"; {_NAMES_WANT_DIMS}"
    return "; none is left to be inferred, so write the number" if (entry, what) == (-1, "extents") else ""


def is_integer(value: object) -> TypeGuard[int]:
    """True for JSON integers; neither true nor 1.0 is one."""
    return isinstance(value, int) and not isinstance(value, bool)


def read_operand(value: object, pointer: str, faults: Faults) -> Operand | None:
    """A tensor's name, which the caller has to look up, or a scalar."""
    match value:
        case str():
            return SCALAR_WORDS.get(value, value)
        case bool():
            pass
        case int() if -(2**31) <= value < 2**31:
            return value
        case float() if abs(value) < F32_OVERFLOW:
            return max(-F32_LARGEST, min(value, F32_LARGEST))
        case int():
            faults.wants(pointer, "a scalar that fits i32; write it as a real number, with a point", value)
            return None
        case float():
            faults.add(
                pointer,
                f'found {describe(value)}; infinite scalars are written "inf" and "-inf", not a number "nan"',
            )
            return None
    faults.wants(pointer, 'a tensor\'s name, a number, "inf", "-inf" or "nan"', value)
    return None


def read_attr(spec: AttrSpec, value: object, pointer: str, faults: Faults) -> AttrValue:
    """The value of an attribute of an op; None if it is faulty."""
    match spec.kind:
        case AttrKind.FLAG:
            good = isinstance(value, bool)
        case AttrKind.COUNT:
            good = is_integer(value) and 1 <= value <= MAX_EXTENT
        case AttrKind.AXIS:
            good = is_integer(value)
        case AttrKind.PLACE:
            if isinstance(value, BadExtent):
                faults.add(pointer, value.why)
                return None
            good = is_integer(value) and abs(value) <= MAX_EXTENT
        case AttrKind.REAL:
            return _read_real(value, pointer, faults)
        case AttrKind.CHOICE:
            good = isinstance(value, str) and value in spec.choices
        case AttrKind.DTYPE:
            return read_dtype(value, pointer, faults)
        case AttrKind.SHAPE:
            return read_shape(value, pointer, faults)
        case AttrKind.PERM:
            return _integers(value, pointer, "axes", 0, faults)
        case AttrKind.COUNTS:
            return _integers(value, pointer, "numbers", 0, faults)
        case AttrKind.BLOCK:
            return _integers(value, pointer, "extents", 1, faults)
        case _:
            assert_never(spec.kind)
    if spec.kind is AttrKind.PLACE and isinstance(value, str):
        faults.wants(pointer, f"{AttrKind.PLACE.value}; {_NAMES_WANT_DIMS}", value)
        return None
    if good:
        return value  # type: ignore[return-value]
    faults.wants(pointer, _allowed(spec, value), value)
    return None


def _allowed(spec: AttrSpec, value: object) -> str:
    if spec.kind is AttrKind.AXIS and isinstance(value, list | tuple):
        return f"{spec.kind.value}; several axes are taken one after the other, each by a node of its own"
    if spec.kind is not AttrKind.CHOICE:
        return str(spec.kind.value)
    ask = hint(value, spec.choices) if isinstance(value, str) else ""
    words = " or ".join(quote(word) for word in spec.choices)
    return words + ask


def _read_real(value: object, pointer: str, faults: Faults) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= F32_LARGEST:
        return float(value)
    faults.wants(pointer, AttrKind.REAL.value, value)
    return None
