"""C++ text of names, expressions and sentences: fields of a struct, string literals with numbers in them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from wsopt.emit.integers import Integer, Writer
from wsopt.emit.recipe import Message

CPP = Writer(
    {
        "extent": "tensors.{}.shape[{}]",
        "stride": "tensors.{}.strides[{}]",
        "address": "static_cast<int64_t>(tensors.{}.data)",
        "add": "{} + {}",
        "multiply": "{} * {}",
        "floor_divide": "{} / {}",
        "ceil_divide": "ceil_divide({}, {})",
        "minimum": "minimum({}, {})",
        "maximum": "maximum({}, {})",
        "if_one": "({} == 1 ? {} : {})",
        "equal": "{} != {}",
        "at_least": "{} < {}",
        "at_most": "{} > {}",
        "multiple_of": "{} % {} != 0",
    }
)
"""How C++ writes an expression of tensors that are fields of a struct, by functions of the launcher's own.

Relations are written as the condition under which they do not hold: there C++ refuses.
"""

_KEYWORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class compl
concept const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype default delete
do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable
namespace new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast
requires restrict return short signed sizeof static static_assert static_cast struct switch template this
thread_local throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor
xor_eq
"""
_MACROS = "assert errno linux major minor offsetof stderr stdin stdout unix"
_TAKEN = frozenset((*_KEYWORDS.split(), *_MACROS.split()))
"""Keywords of C and C++, and lower-case macros of their headers and compilers."""


def field_names(names: Iterable[str]) -> dict[str, str]:
    """A struct's field for every name: the name itself, or one like it where that means something else.

    Names in capitals may be macros, and those with two underscores are the compiler's.
    """
    found: dict[str, str] = {}
    for name in names:
        field, number = _plain(name), 2
        while field in found.values():
            field, number = f"{_plain(name)}{number}", number + 1
        found[name] = field
    return found


def _plain(name: str) -> str:
    """The name with single underscores, none in front, and one at its end where it is taken."""
    words = [word for word in name.split("_") if word]
    field = "_".join(words) or "tensor"
    field = f"tensor_{field}" if field[0].isdigit() else field
    reserved = field in _TAKEN or (field.isupper() and len(field) > 2)
    return f"{field}_" if reserved else field


def sentence(message: Message, write: Callable[[Integer], str]) -> str:
    """A message as arguments of printf: its format, and the numbers in it."""
    words, values = [], []
    for part in message:
        if isinstance(part, str):
            words.append(part.replace("%", "%%"))
            continue
        numbers = part if isinstance(part, tuple) else (part,)
        listed = ", ".join(["%lld"] * len(numbers))
        words.append(f"[{listed}]" if isinstance(part, tuple) else listed)
        values += [f"static_cast<long long>({write(number)})" for number in numbers]
    return ", ".join([json.dumps("".join(words)), *values])
