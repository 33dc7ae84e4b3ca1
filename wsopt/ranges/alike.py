"""Whether two texts of a kernel are one program: what is written at other extents may differ in words alone."""

from __future__ import annotations

import hashlib
import io
import tokenize
from functools import lru_cache

_ORDER = ("row_tile = ", "from_last=")
"""How lines begin that say from which end tiles of rows are taken. Either is right: masks whose last rows take the
longest are taken from the last tile, if there is more than one.
"""
_PARTS = ("COMMENT", "NL", "STRING", "FSTRING_START", "FSTRING_MIDDLE", "FSTRING_END")
_WORDS = frozenset(getattr(tokenize, name) for name in _PARTS if hasattr(tokenize, name))


def alike(one: str, other: str) -> bool:
    """Whether two texts are one program, comments, messages and the order of tiles aside."""
    return one == other or _program(one) == _program(other)


def digest(text: str) -> str:
    """Equal for texts that are alike."""
    return hashlib.sha256("\0".join(_program(text)).encode()).hexdigest()


@lru_cache(maxsize=64)
def _program(text: str) -> tuple[str, ...]:
    """The words of a program; commas are left out, for a call that takes several lines has one more."""
    lines = (line for line in text.splitlines(keepends=True) if not line.strip().startswith(_ORDER))
    tokens = tokenize.generate_tokens(io.StringIO("".join(lines)).readline)
    return tuple(one.string for one in tokens if one.type not in _WORDS and one.string != ",")
