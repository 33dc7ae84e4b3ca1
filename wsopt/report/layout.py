"""Plain text for people: clean strings, figures, shares that add up, tables and bars. Knows no schedule."""

from __future__ import annotations

import math
import textwrap
import unicodedata
from collections.abc import Sequence

_LEAST_LAST_COLUMN = 12
_SPARE = "."

WIDTH = 100
"""Characters of a line, if nothing else is asked for."""

KEEP = "\N{NO-BREAK SPACE}"
"""A blank at which `wrapped` starts no new line; it is printed as a plain one."""


def clean(text: str) -> str:
    """A string from a file, safe to print: no control, format or line-breaking characters."""
    kept = (" " if unicodedata.category(c) in ("Zs", "Zl", "Zp") or c in "\t\n\r" else c for c in text)
    return "".join(c for c in kept if unicodedata.category(c)[0] != "C").strip()


def first_line(text: str) -> str:
    """The first line of a text that has anything on it, cleaned; empty if none has."""
    return next((line for line in map(clean, text.splitlines()) if line), "")


def shortened(text: str, width: int) -> str:
    """A text cut to `width` characters, with an ellipsis where something is missing."""
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"


def wrapped(text: str, width: int = WIDTH, hang: str = "") -> list[str]:
    """A paragraph in lines of at most `width`; `hang` stands before all but the first."""
    lines = textwrap.wrap(text, width, subsequent_indent=hang, break_on_hyphens=False)
    return [line.replace(KEEP, " ") for line in lines]


def joined(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def counted(number: int, one: str, many: str = "") -> str:
    """A number with its noun: `1 slot`, `10 slots`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def microseconds(value: float) -> str:
    """A time to a hundredth of a microsecond."""
    return f"{value:,.2f}"


def difference(value: float) -> str:
    """A small difference of times, to three figures, without an exponent."""
    return (
        f"{value:,.0f}"
        if value >= 1000
        else f"{float(f'{value:.3g}'):g}"
        if value >= 1e-3
        else f"{value:.1g}"
    )


def percent(share: float, digits: int = 1) -> str:
    """A share of one in per cent."""
    return f"{100 * share:.{digits}f} %"


def shares(amounts: Sequence[float]) -> tuple[str, ...]:
    """Each amount's share of their sum in per cent with one decimal; the shares add up to 100.0 exactly.

    Rounded down first; what is missing goes to those that lost most by it. All zero if the sum is.
    """
    total = sum(amounts)
    if total <= 0:
        return tuple("0.0" for _ in amounts)
    exact = [1000 * amount / total for amount in amounts]
    whole = [math.floor(share) for share in exact]
    order = sorted(range(len(exact)), key=lambda i: (whole[i] - exact[i], i))
    for place in order[: 1000 - sum(whole)]:
        whole[place] += 1
    return tuple(f"{share / 10:.1f}" for share in whole)


def bar(parts: Sequence[tuple[str, float]], limit: float, width: int) -> str:
    """Parts of a budget to scale, each drawn with its own character, then what is left, in brackets.

    More than the limit is cut off; `width` counts the brackets.
    """
    cells = width - 2
    drawn, total = "", 0.0
    for character, amount in parts:
        total += amount
        drawn += character * (round(total / limit * cells) - len(drawn))
    return "[" + drawn[:cells].ljust(cells, _SPARE) + "]"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], align: str, width: int) -> list[str]:
    """Columns two blanks apart, `<` or `>` each by `align`; the last column is wrapped to `width`."""
    cells = [header, *rows]
    sizes = [max(len(row[column]) for row in cells) for column in range(len(header) - 1)]
    before = sum(sizes) + 2 * len(sizes)
    room = max(width - before, _LEAST_LAST_COLUMN)
    last = min(room, max(len(row[-1]) for row in cells))
    lines = []
    for row in cells:
        first, *others = textwrap.wrap(row[-1], room) or [""]
        padded = [f"{cell:{how}{size}}" for cell, how, size in zip(row[:-1], align[:-1], sizes, strict=True)]
        lines.append("  ".join([*padded, f"{first:{align[-1]}{last}}"]).rstrip())
        lines += [" " * before + f"{other:{align[-1]}{last}}".rstrip() for other in others]
    return lines
