"""Whether a block knows the rows of its next tile while it has one, so that values of those rows can be loaded ahead.

What an earlier kernel has left of each row, such as a mean or a scale, threads load by address from device memory. A
consumer stands for that in every tile if it asks only when the tile is there.
"""

from __future__ import annotations

from wsopt.program.types import Structure


def knows_next_rows(s: Structure, *, divided: bool) -> bool:
    """Whether the next tile's rows follow from this one's: of a block that goes from tile to tile in a settled order.
    Not where a tile's place is `divided` out of its number, as there are axes beside that of the rows.
    """
    return s.persistent and not (s.resident or s.dynamic or s.flat or divided)
