"""Searches among some of a graph's structures, for tests of what holds whichever there are.

The bounds of all structures of a product take seconds of a core at each search, and so does counting all that limits
leave out; what follows takes less.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from wsopt.program.types import Structure
from wsopt.solve import limits, search
from wsopt.validate import select


def search_only(patch: pytest.MonkeyPatch, among: Iterable[Structure]) -> None:
    """Let all who ask for a graph's structures have these."""
    chosen = tuple(among)
    for module in (search, limits, select):
        patch.setattr(module, "structures", lambda *_: iter(chosen))


@contextmanager
def one_of(step: int) -> Iterator[None]:
    """A context in which one structure of so many is searched, the first among them."""
    every = search.structures

    def some(*asked: Any) -> Iterator[Structure]:
        return itertools.islice(every(*asked), 0, None, step)

    with pytest.MonkeyPatch.context() as patch:
        for module in (search, limits, select):
            patch.setattr(module, "structures", some)
        yield
