"""What the launcher checks where a graph's own masks end every row before the streamed axis ends.

Nothing else in such a kernel leaves out what a slab holds beyond that end, so at run time the masks have to as well.
"""

from __future__ import annotations

from functools import reduce

from wsopt.emit.integers import PYTHON, Integer, Name, add, maximum, minimum, multiply, text
from wsopt.emit.recipe import Message
from wsopt.tile.types import Bound, Region, Role

_ROWS, _STREAM = Name("row_extent"), Name("stream_extent")


def last_kept(region: Region) -> Integer:
    """The last element of the streamed axis that the masks keep for any row, by the mask that keeps the fewest."""
    return reduce(minimum, [_edge(bound) for bound in region.bounds if bound.stream < 0])


def kept_beyond(region: Region) -> Message:
    """What the launcher says where that is beyond the end."""
    rows, stream = region.extent(Role.ROW), region.extent(Role.STREAM)
    return (
        "with ", _ROWS, " rows and ", _STREAM, " elements of the streamed axis the masks do not end every row before "
        f"the axis ends, as they do at {rows} and {stream}: compile the graph at these extents",
    )  # fmt: skip


def check_line(region: Region) -> str:
    """The check as a line of the launcher."""
    message = "".join(
        f"{{{part.name}}}" if isinstance(part, Name) else str(part) for part in kept_beyond(region)
    )
    return f'_expect({text(last_kept(region), PYTHON)} < {_STREAM.name}, f"{message}")'


def _edge(bound: Bound) -> Integer:
    if not bound.row:
        return bound.constant
    return maximum(bound.constant, add(multiply(bound.row, add(_ROWS, -1)), bound.constant))
