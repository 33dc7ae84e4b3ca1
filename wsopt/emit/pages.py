"""Lines of a loading warp for tensors that lie in pages: places out of a table, and the copies of boxes from there.

A K-block has several pages, or is a part of one. A place needs no check: TMA fills with zeros what lies outside of the
tensor, before its first page and behind its last one. Behind the end of the table nothing is loaded, and the place is
-1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from wsopt.emit.instructions import tma_load
from wsopt.emit.plan import KernelPlan
from wsopt.emit.rings import Ring
from wsopt.emit.tensors import Box, coordinates
from wsopt.program.facts import PLACES_AT_A_TIME
from wsopt.tensors.views import Chosen, Role

_OUTSIDE = -1
"""A place outside of every tensor."""


def ahead(plan: KernelPlan, rings: Iterable[Ring]) -> list[str]:
    """The loads of a K-block's places for all copies of a loading warp, in front of its waits: they are on their way
    while slots fall free. None of tables with more places than are kept at a time.
    """
    found = {box.view.chosen: None for ring in rings for box in ring.boxes if _by_page(box)}
    tables = (one for one in found if one is not None and _places(plan, one) <= PLACES_AT_A_TIME)
    return [line for one in tables for line in _loads(plan, one, range(_places(plan, one)))]


def copies(plan: KernelPlan, boxes: tuple[Box, ...], place: Mapping[Role, str], barrier: str, slot: str) -> Iterator[str]:
    """The copies of one tensor's boxes into a slot, page by page; `slot` follows each box's name in the text of its
    buffer. Where the table has more places than are kept, some are loaded ahead of their copies.
    """
    chosen = boxes[0].view.chosen
    assert chosen is not None, "the tensor lies in pages"
    count = _places(plan, chosen)
    for first in range(0, count, PLACES_AT_A_TIME):
        pages = range(first, min(first + PLACES_AT_A_TIME, count))
        if count > PLACES_AT_A_TIME:
            yield from _loads(plan, chosen, pages)
        for page in pages:
            own = {**place, Role.PAGE: _name(plan, chosen, page), Role.STREAM: _first(plan, chosen)}
            for box in boxes:
                part = f".slice({page * chosen.elements}, {chosen.elements}, dim={_stream(box)})" if count > 1 else ""
                yield tma_load(box.descriptor, coordinates(box, own), barrier, f"{box.name}_ring.index({slot}){part}")


def _by_page(box: Box) -> bool:
    return box.view.chosen is not None and box.view.chosen.role is Role.PAGE


def _stream(box: Box) -> int:
    """The dimension of the streamed axis."""
    return box.view.roles.index(Role.STREAM)


def _places(plan: KernelPlan, chosen: Chosen) -> int:
    """Places that a K-block is copied from."""
    return max(1, plan.s.depth // chosen.elements) if chosen.elements else 1


def _name(plan: KernelPlan, chosen: Chosen, page: int) -> str:
    """The variable of one of a K-block's places."""
    name = plan.chosen[chosen.source]
    return f"{name}_{page}" if _places(plan, chosen) > 1 else name


def _first(plan: KernelPlan, chosen: Chosen) -> str:
    """The first element of a K-block in its page, or in each of its pages."""
    depth, page = plan.s.depth, chosen.elements
    if page > depth:
        return f"k_block % {page // depth} * TILE_DEPTH"
    return "0" if page else "k_block * TILE_DEPTH"


def _loads(plan: KernelPlan, chosen: Chosen, pages: Iterable[int]) -> Iterator[str]:
    """The loads of some of a K-block's places."""
    depth, page, table = plan.s.depth, chosen.elements, plan.vectors[chosen.source]
    place, count = plan.place("0", "0"), _places(plan, chosen)
    for number in pages:
        first = f"k_block * {count}" if count > 1 else "k_block"
        at = f"({first} + {number})" if number else f"k_block // {page // depth}" if page > depth else first
        address = table.at({**place, Role.STREAM: at})
        # A K-block ends behind the last page where that is not its own last one.
        inside = f", mask={at} * {page} < stream_extent, other={_OUTSIDE}" if number else ""
        yield f"{_name(plan, chosen, number)} = gl.load({address}{inside})"
