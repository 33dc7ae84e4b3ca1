"""Extents of an FX graph that change from call to call: expressions of torch's symbols, to be calculated with.

A `Size` stands wherever an extent does. What cannot be said of all calls at once is Untaken, so that no number that
an extent happens to be while a graph is compiled gets into what is written for it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from functools import reduce
from typing import Any, NoReturn

from wsopt.graph.extents import Extent, Monomial, Terms, terms_of
from wsopt.torch.untaken import Untaken

_ONE: Terms = (((), 1),)


class Size(Extent):
    """An extent that changes, of symbols with what each `typical`ly is, 2 at least. Which of two is larger goes by
    these numbers; what is equal does not.
    """

    typical: Mapping[str, int]

    def __new__(cls, terms: Terms, typical: Mapping[str, int]) -> Size:
        """The extent of these terms."""
        made = int.__new__(cls, Extent(terms, 0).at(typical))
        made.terms, made.typical = terms, typical
        return made

    def __add__(self, other: int) -> int:
        return _of(terms_of(super().__add__(_whole(other))), self, other)

    def __mul__(self, other: int) -> int:
        return _of(terms_of(super().__mul__(_whole(other))), self, other)

    __radd__, __rmul__ = __add__, __mul__

    def __sub__(self, other: int) -> int:
        return _of(_subtracted(self.terms, terms_of(_whole(other))), self, other)

    def __rsub__(self, other: int) -> int:
        return _of(_subtracted(terms_of(_whole(other)), self.terms), self, other)

    def __floordiv__(self, other: int) -> int:
        return _quotient(self, other)

    def __rfloordiv__(self, other: int) -> int:
        return _quotient(other, self)

    def __mod__(self, other: int) -> int:
        return int(divided(self, other) is None)

    def __rmod__(self, other: int) -> int:
        return int(divided(other, self) is None)

    def _refused(self, *_other: Any) -> NoReturn:
        raise Untaken(f"arithmetic with {self}, which changes from call to call")

    __truediv__ = __rtruediv__ = __pow__ = __rpow__ = __float__ = __neg__ = _refused

    def __reduce__(self) -> tuple[Any, ...]:
        return Size, (self.terms, dict(self.typical))


def changes(*extents: object) -> bool:
    """Whether one of these changes from call to call."""
    return any(isinstance(one, Extent) for one in extents)


def shared(a: int, b: int) -> int:
    """The greatest factor that two extents have in common at every call, as far as their expressions tell."""
    if not changes(a, b):
        return math.gcd(a, b)
    (one, names, rest), (other, more, left) = _factors(a), _factors(b)
    common = tuple((Counter(names) & Counter(more)).elements())
    kept = rest if rest == left else _ONE
    number = math.gcd(one, other)
    terms = tuple((tuple(sorted((*product, *common))), times * number) for product, times in kept)
    return _of(terms, a, b)


def divided(a: int, b: int) -> int | None:
    """The quotient of two extents; None where it is no extent at every call."""
    if not changes(a, b):
        return a // b if a % b == 0 else None
    number, names, rest = _factors(b)
    terms = terms_of(a)
    if rest != _ONE:
        own, product, left = _factors(a)
        terms = ((product, own),)
        if left != rest:
            return None
    found = [(_without(product, names), times) for product, times in terms]
    if any(product is None or times % number for product, times in found):
        return None
    return _of(tuple((product or (), times // number) for product, times in found), a, b)


def _factors(extent: int) -> tuple[int, Monomial, Terms]:
    """An extent as a number, times symbols, times a sum that has no such factor."""
    terms = terms_of(extent)
    number = math.gcd(*(times for _, times in terms))
    names = tuple(sorted(reduce(Counter.__and__, (Counter(product) for product, _ in terms)).elements()))
    rest = tuple((_without(product, names) or (), times // number) for product, times in terms)
    return number, names, rest


def _without(product: Monomial, names: Monomial) -> Monomial | None:
    """A product of symbols over another one; None where it is none."""
    left = Counter(product)
    left.subtract(names)
    return tuple(sorted(left.elements())) if min(left.values(), default=0) >= 0 else None


def _subtracted(terms: Terms, other: Terms) -> Terms:
    left = Counter(dict(terms))
    left.subtract(dict(other))
    return tuple((product, times) for product, times in left.items() if times)


def _of(terms: Terms, *sources: int) -> int:
    """The extent of these terms, of symbols that the sources have. Untaken where it is a difference."""
    if any(times < 0 for _, times in terms):
        raise Untaken("a difference of extents that change from call to call")
    typical = {name: one for x in sources if isinstance(x, Size) for name, one in x.typical.items()}
    # Numbers last, as everywhere: what is equal has its terms in one order.
    found = Extent(tuple(sorted(terms, key=lambda term: (not term[0], term[0]))), 0)
    return Size(found.terms, typical) if found.names else found.at({})


def _quotient(a: int, b: int) -> int:
    found = divided(a, b)
    if found is None:
        raise Untaken(f"{a} over {b}, which is no extent at every call")
    return found


def _whole(other: Any) -> int:
    if not isinstance(other, int):
        raise Untaken(f"{other} and an extent that changes from call to call")
    return other
