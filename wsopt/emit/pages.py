"""Lines of a loading warp for tensors that lie in pages: places out of a table, and the copies of boxes from there.

A K-block has several pages, or is a part of one. Its places are loaded in front of the waits for its slots, once for
all of its copies: they come while a slot is waited for. Of several each thread of the warp has one, for the warp has
few registers, and all threads get it for its copy. A place needs no check: TMA fills with zeros what lies outside of
the tensor, before its first page and behind its last one. Behind the end of the table nothing is loaded, and the
place is -1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from wsopt.emit.instructions import tma_load
from wsopt.emit.plan import KernelPlan
from wsopt.emit.rings import Ring
from wsopt.emit.tensors import Box, coordinates
from wsopt.tensors.views import Chosen, Role

LAYOUT = "PLACES_LAYOUT"
"""The constant of how a K-block's places lie in a warp's registers."""

PLACE_OF = "place_of"
"""The kernel's own function that gives all threads one of them."""

_OUTSIDE = -1
"""A place outside of every tensor."""


def apart(plan: KernelPlan) -> bool:
    """Whether K-blocks have several places each."""
    return any(_count(plan, one) > 1 for one in _choosing(plan.rings))


def places(plan: KernelPlan, rings: Iterable[Ring]) -> list[str]:
    """The loads of a K-block's places, for all copies into the rings."""
    return [_load(plan, one) for one in _choosing(rings)]


def copies(
    plan: KernelPlan, boxes: Sequence[Box], place: Mapping[Role, str], barrier: str, slot: str
) -> Iterator[str]:
    """The copies of one tensor's boxes, page by page, into the slot of this number."""
    chosen = boxes[0].view.chosen
    assert chosen is not None, "the tensor lies in pages"
    name, count = plan.chosen[chosen.source], _count(plan, chosen)
    for number in range(count):
        at = f"{PLACE_OF}({name}, {number})" if count > 1 else name
        own = {**place, Role.PAGE: at, Role.STREAM: _first(plan, chosen)}
        first = f"{number * chosen.elements}, {chosen.elements}"
        for box in boxes:
            buffer = f"{box.name}_ring.index({slot})"
            part = f"{buffer}.slice({first}, dim={_stream(box)})" if count > 1 else buffer
            yield tma_load(box.descriptor, coordinates(box, own), barrier, part)


def _choosing(rings: Iterable[Ring]) -> list[Chosen]:
    """What chooses the pages of tensors in the rings, each once."""
    views = (box.view for ring in rings for box in ring.boxes if Role.PAGE in box.view.roles)
    return list(dict.fromkeys(view.chosen for view in views if view.chosen is not None))


def _stream(box: Box) -> int:
    """The dimension of the streamed axis."""
    return box.view.roles.index(Role.STREAM)


def _count(plan: KernelPlan, chosen: Chosen) -> int:
    """Places that a K-block is copied from."""
    return max(1, plan.s.depth // chosen.elements) if chosen.elements else 1


def _first(plan: KernelPlan, chosen: Chosen) -> str:
    """The first element of a K-block in its page, or in each of its pages."""
    depth, page = plan.s.depth, chosen.elements
    if page > depth:
        return f"k_block % {page // depth} * TILE_DEPTH"
    return "0" if page else "k_block * TILE_DEPTH"


def _load(plan: KernelPlan, chosen: Chosen) -> str:
    """The load of a K-block's places. Of several the last ones may lie behind the table's end, never the first."""
    depth, page, table = plan.s.depth, chosen.elements, plan.vectors[chosen.source]
    count, inside = _count(plan, chosen), ""
    at = f"k_block // {page // depth}" if page > depth else "k_block"
    if count > 1:
        at = f"(k_block * {count} + gl.arange(0, {count}, layout={LAYOUT}))"
        inside = f", mask={at} * {page} < stream_extent, other={_OUTSIDE}"
    address = table.at({**plan.place("0", "0"), Role.STREAM: at})
    return f"{plan.chosen[chosen.source]} = gl.load({address}{inside})"
