"""Extents that are sums of products of named dimensions: `tokens`, `batch*seq`, `cache + 4*tokens`.

An `Extent` is an int, so that shape rules take it as they take numbers. Its number is that of the least dimensions;
what it equals is decided by its expression: `tokens` is equal to `tokens` alone, whatever numbers it may stand for.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Monomial = tuple[str, ...]
"""Dimensions that are multiplied, by name and in alphabetical order; one may stand there more than once."""

Terms = tuple[tuple[Monomial, int], ...]
"""A sum: each product of dimensions with its coefficient, at least 1. Numbers alone are the empty product's."""

_TOKEN = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*|[0-9]+|\S)")
_MOST_TOKENS = 64
_MOST_DIGITS = 10


@dataclass(frozen=True, slots=True)
class BadExtent:
    """Text in the place of an extent that is no expression of the graph's dimensions, and why it is none."""

    why: str


class Extent(int):
    """A polynomial in named dimensions with non-negative coefficients; as a number, its value at their least."""

    terms: Terms

    def __new__(cls, terms: Terms, least: int) -> Extent:
        """The extent of these terms, which is `least` for the least dimensions."""
        made = super().__new__(cls, least)
        made.terms = terms
        return made

    @property
    def names(self) -> frozenset[str]:
        """The dimensions that it depends on."""
        return frozenset(name for product, _ in self.terms for name in product)

    def at(self, values: Mapping[str, int]) -> int:
        """Its value where the dimensions have these values. KeyError for one that has none."""
        return sum(times * math.prod(values[name] for name in product) for product, times in self.terms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Extent) and self.terms == other.terms

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.terms)

    def __repr__(self) -> str:
        return " + ".join(_worded(product, times) for product, times in self.terms)

    __str__ = __repr__

    def __add__(self, other: int) -> int:
        return summed((*self.terms, *terms_of(other)), int(self) + int(other))

    def __mul__(self, other: int) -> int:
        products = (
            (tuple(sorted((*one, *two))), times * factor)
            for one, times in self.terms
            for two, factor in terms_of(other)
        )
        return summed(products, int(self) * int(other))

    __radd__, __rmul__ = __add__, __mul__

    def __mod__(self, other: int) -> int:
        """0 where every value of it is a multiple of the number, as far as its coefficients tell; else 1."""
        return int(any(times % other for _, times in self.terms))

    def __floordiv__(self, other: int) -> int:
        """The quotient of one that is a multiple of the number, as `%` has it."""
        divided = tuple((product, times // other) for product, times in self.terms)
        return Extent(divided, int(self) // int(other))

    def __reduce__(self) -> tuple[Any, ...]:
        return Extent, (self.terms, int(self))


def terms_of(extent: int) -> Terms:
    """The terms of an extent, also of one that is a number."""
    return extent.terms if isinstance(extent, Extent) else (((), extent),) if extent else ()


def difference(one: int, other: int) -> Terms:
    """The terms of `one` less `other`. Their coefficients may be negative, which those of an extent are not."""
    total = Counter(dict(terms_of(one)))
    total.subtract(dict(terms_of(other)))
    return _ordered(total)


def is_settled(terms: Terms) -> bool:
    """Whether a sum is the least and the largest at ends of the dimensions' ranges: none is multiplied by itself, or
    the sum only rises or only falls.
    """
    linear = all(len({*product}) == len(product) for product, _ in terms)
    return linear or len({times > 0 for product, times in terms if product}) < 2


def worded(terms: Terms) -> str:
    """A sum in words, also one of negative coefficients: `tokens - 2`."""
    first, *others = sorted(terms, key=lambda term: term[1] < 0)
    rest = (f" {'-' if times < 0 else '+'} {_worded(product, abs(times))}" for product, times in others)
    return f"{'-' * (first[1] < 0)}{_worded(first[0], abs(first[1]))}{''.join(rest)}"


def value_at(extent: int, values: Mapping[str, int]) -> int:
    """An extent where the dimensions have these values; a number is itself."""
    return extent.at(values) if isinstance(extent, Extent) else extent


def extent_to_json(extent: int) -> int | str:
    """An extent as a graph.json has it: a number, or its expression."""
    return str(extent) if isinstance(extent, Extent) else extent


def summed(products: Iterable[tuple[Monomial, int]], least: int) -> int:
    """The sum of these terms, which is `least` for the least dimensions."""
    total = Counter[Monomial]()
    for product, times in products:
        total[product] += times
    found = _ordered(total)
    return Extent(found, least) if any(product for product, _ in found) else least


def _ordered(total: Mapping[Monomial, int]) -> Terms:
    # Numbers last: `cache + 4*tokens + 1`.
    ordered = sorted(total.items(), key=lambda term: (not term[0], term[0]))
    return tuple((product, times) for product, times in ordered if times)


def _worded(product: Monomial, times: int) -> str:
    factors = [str(times)] * (times != 1 or not product)
    return "*".join([*factors, *product])


def read_extent(text: str, least: Mapping[str, int]) -> int | BadExtent:
    """The extent that an expression stands for, where the graph's dimensions have these least values."""
    tokens = _TOKEN.findall(text.strip())
    if not 0 < len(tokens) <= _MOST_TOKENS:
        return BadExtent(f"is empty, or has more than {_MOST_TOKENS} words")
    total: int = 0
    factor: int = 1
    for place, token in enumerate(tokens):
        if place % 2:
            if token not in ("+", "*"):
                return BadExtent(f'has "{token}" where "+" or "*" is wanted')
            if token == "+":
                total, factor = total + factor, 1
            continue
        operand = _operand(token, least)
        if isinstance(operand, BadExtent):
            return operand
        factor = factor * operand
    if not len(tokens) % 2:
        return BadExtent(f'ends with "{tokens[-1]}"')
    return total + factor


def _operand(token: str, least: Mapping[str, int]) -> int | BadExtent:
    if token.isdecimal():
        number = int(token) if len(token) <= _MOST_DIGITS else 0
        return number or BadExtent(f'has "{token}"; a number in it is from 1 to 2**31 - 1')
    if token not in least:
        if not (token[0].isalpha() or token[0] == "_"):
            return BadExtent(f'has "{token}" where a dimension or a number is wanted')
        return BadExtent(f'has the unknown dimension "{token}"; the graph\'s dims are {", ".join(least)}')
    return Extent((((token,), 1),), least[token])
