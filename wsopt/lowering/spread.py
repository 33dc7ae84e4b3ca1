"""How long loops are taken to be whose bounds are known only when a kernel runs, such as lengths of sequences.

Where a scalar differs from batch element to batch element, or from group to group, the model takes their loops to be
spread evenly between none of the K-blocks that other bounds leave and all, in an order that neither rises nor falls:
what is best for equal lengths would leave most blocks waiting for the longest. A scalar that is one for all tiles
leaves nothing out.
"""

from __future__ import annotations

import functools
import itertools
import math

from wsopt.frontend.types import Region
from wsopt.tensors.views import BATCHES

_STEP = (math.sqrt(5) - 1) / 2
"""Multiples of the golden ratio, modulo one, are spread evenly however many there are."""


@functools.lru_cache(maxsize=64)
def shares(region: Region) -> tuple[float, ...]:
    """The share of its K-blocks that each batch element and group is taken to have, in the order of tile numbers; one
    share of 1 where nothing varies.
    """
    named = {name for bound in region.bounds if bound.stream for name in bound.scalars}
    views = [source.view for source in region.sources if source.name in named]
    varied = {role for view in views for role, n in zip(view.roles, view.extents, strict=True) if n > 1}
    if not varied & {*BATCHES}:
        return (1.0,)
    found = []
    for at in itertools.product(*(range(region.extent(role)) for role in BATCHES)):
        place = 0
        for role, index in zip(BATCHES, at, strict=True):
            place = place * region.extent(role) + index if role in varied else place
        found.append((place + 0.5) * _STEP % 1.0)
    return tuple(found)


def mean_share(region: Region) -> float:
    """The mean of them: of the bytes and the arithmetic of loops, what the model counts."""
    found = shares(region)
    return math.fsum(found) / len(found)
