"""Tile extents that are sums of powers of two: 96 = 64 + 32.

A tile in registers or in shared memory has powers of two for extents. One that needs 96 elements along an axis is
two such tiles side by side, its parts. That takes fewer bytes and registers, and less time of the tensor core, than
one of 128.
"""

from __future__ import annotations

from dataclasses import dataclass

MOST_PARTS = 3
"""Parts of an extent at most. Each is a copy, and a run of tensor instructions, of its own."""


@dataclass(frozen=True, slots=True)
class Part:
    """Neighbours along an axis of a tile, a power of two of them, from the `first` on."""

    first: int
    length: int


def parts(extent: int) -> tuple[Part, ...]:
    """The powers of two that add up to an extent, the largest first; one for an extent that is one."""
    found, first = list[Part](), 0
    while extent > first:
        length = 1 << (extent - first).bit_length() - 1
        found.append(Part(first, length))
        first += length
    return tuple(found)


def stretches(depth: int, least: int) -> tuple[Part, ...]:
    """The stretches of a K-block of `depth` elements in which a product is issued that only begins before a slot is
    handed back: one instruction's `least`, and the rest in powers of two.
    """
    found = [Part(0, least)]
    while (first := found[-1].first + found[-1].length) < depth:
        found.append(Part(first, first))
    return tuple(found)


def summed(extent: int, least: int) -> int:
    """The smallest extent of a tile that holds so many elements: a sum of at most `MOST_PARTS` powers of two, each
    `least`, a power of two, or more.
    """
    whole = max(1, -(-extent // least)) * least
    while whole.bit_count() > MOST_PARTS:
        whole += whole & -whole  # what the smallest part is filled up to goes into the next one
    return whole
