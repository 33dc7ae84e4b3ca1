"""From a path to JSON values, for files from anywhere: bounded size and depth, and nothing quietly dropped.

Python's own reader keeps the last of two equal keys, takes NaN for a number, and gives up on deep nesting
and long integers with errors of its own. Here the first two are kept for the caller to report with their
place (`JsonObject.duplicates`, `BadLiteral`), and the others become an InputError.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from typing import Any

from wsopt.errors import InputError, Problem
from wsopt.graph.faults import BadLiteral

MAX_BYTES = 64 * 2**20
MAX_DEPTH = 100
_MAX_DIGITS = 40
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[\]{}]', re.DOTALL)


class JsonObject(dict[str, Any]):
    """A JSON object that knows which of its keys stood more than once; the last value is kept."""

    duplicates: tuple[str, ...] = ()


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of a UTF-8 file of at most 64 MiB. Raises InputError."""
    source = os.fspath(path)
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except IsADirectoryError:
        raise _error(source, "is a directory; wants a file in the format wsopt.graph/1") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise _error(source, f"cannot be read: {reason}") from None
    if len(data) > MAX_BYTES:
        raise _error(source, f"has more than {MAX_BYTES} bytes, the most that is read")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"byte 0x{data[error.start]:02x} at offset {error.start}"
        raise _error(source, f"not UTF-8: {found} ({error.reason})") from None


def decode(text: str, source: str) -> Any:
    """The JSON value in the text. Raises InputError with line and column."""
    if text.startswith("\ufeff"):
        raise _error(source, "line 1, column 1: a byte order mark; JSON has none")
    try:
        return json.loads(
            text, object_pairs_hook=_object, parse_constant=BadLiteral, parse_int=_integer, parse_float=float
        )
    except json.JSONDecodeError as error:
        raise _error(source, f"line {error.lineno}, column {error.colno}: not JSON: {error.msg}") from None
    except RecursionError:
        raise _error(source, f"{_too_deep(text)}: more than {MAX_DEPTH} nested arrays or objects") from None


def _object(pairs: list[tuple[str, Any]]) -> JsonObject:
    result = JsonObject(pairs)
    if len(result) < len(pairs):
        result.duplicates = tuple(key for key, n in Counter(key for key, _ in pairs).items() if n > 1)
    return result


def _integer(digits: str) -> int:
    # No integer of the format has as many digits, and Python refuses to convert thousands of them.
    return int(digits) if len(digits) <= _MAX_DIGITS else int(digits[:_MAX_DIGITS])


def _too_deep(text: str) -> str:
    depth = 0
    for token in _TOKEN.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token.group(), 0)
        if depth > MAX_DEPTH:
            line = text.count("\n", 0, token.start()) + 1
            return f"line {line}, column {token.start() - text.rfind(chr(10), 0, token.start())}"
    return "somewhere"


def _error(source: str, message: str) -> InputError:
    return InputError(source, [Problem("", message)])
