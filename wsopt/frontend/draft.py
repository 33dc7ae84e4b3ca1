"""A region on its way: a graph's values and the tensors that they read, as the passes hand them on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from wsopt.frontend.axes import Axes
from wsopt.frontend.expand import Term
from wsopt.frontend.merge import RawView
from wsopt.frontend.types import End
from wsopt.frontend.values import Flow
from wsopt.tensors.views import Bound


@dataclass(frozen=True, slots=True)
class Draft:
    """A graph as values. `raw` are the tensors by use of an input.

    What passes find out of the loop is as in a region: its `bounds`, the value of each choice by them where they
    hold (`unmasked`), why nothing beyond its `end` counts, and whether a number was taken for minus infinity
    (`full_rows`).
    """

    axes: Axes
    raw: Mapping[str, RawView]
    flow: Flow
    bounds: tuple[Bound, ...] = ()
    unmasked: Mapping[str, Term] = field(default_factory=dict)
    end: End = End.NOTHING
    full_rows: bool = False
