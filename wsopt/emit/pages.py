"""Lines of a loading warp for tensors that lie in pages: places out of a table, and the copies of boxes from there.

A K-block has several pages, or is a part of one. Its places are loaded while the K-block before it is copied, so that
no copy waits for them; of a table with more places a K-block than are kept, some in front of their copies. A place
needs no check: TMA fills with zeros what lies outside of the tensor, before its first page and behind its last one.
Behind the end of the table nothing is loaded, and the place is -1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from wsopt.emit.instructions import tma_load
from wsopt.emit.plan import KernelPlan
from wsopt.emit.rings import Ring
from wsopt.emit.tensors import Box, coordinates
from wsopt.program.facts import PLACES_AT_A_TIME
from wsopt.tensors.views import Chosen, Role

_OUTSIDE = -1
"""A place outside of every tensor."""


def first_places(plan: KernelPlan, rings: Iterable[Ring]) -> list[str]:
    """The loads of the places of a tile's first K-block, which is `begin`."""
    return [line for one in _kept(plan, rings) for line in _loads(plan, one, _numbers(plan, one), "begin")]


def next_places(plan: KernelPlan, rings: Iterable[Ring]) -> tuple[list[str], list[str]]:
    """The loads of the next K-block's places, in front of a K-block's copies, and what hands them on behind these."""
    found = [one for one in _kept(plan, rings) if one.elements]
    loads = [
        line for one in found for line in _loads(plan, one, _numbers(plan, one), "k_block + 1", following=True)
    ]
    names = [[_name(plan, one, n, following=f) for f in (False, True)] for one in found for n in _numbers(plan, one)]
    return loads, [f"{now} = {following}" for now, following in names]


def copies(
    plan: KernelPlan, boxes: Sequence[Box], place: Mapping[Role, str], barrier: str, slot: str
) -> Iterator[str]:
    """The copies of one tensor's boxes, page by page, into the slot of this number."""
    chosen = boxes[0].view.chosen
    assert chosen is not None, "the tensor lies in pages"
    numbers, own = _numbers(plan, chosen), {**place, Role.STREAM: _first(plan, chosen)}
    for number in numbers:
        if not _is_kept(plan, chosen) and number % PLACES_AT_A_TIME == 0:
            yield from _loads(plan, chosen, numbers[number : number + PLACES_AT_A_TIME], "k_block")
        for box in boxes:
            at = coordinates(box, {**own, Role.PAGE: _name(plan, chosen, number)})
            part = f".slice({number * chosen.elements}, {chosen.elements}, dim={_stream(box)})"
            buffer = f"{box.name}_ring.index({slot}){part if len(numbers) > 1 else ''}"
            yield tma_load(box.descriptor, at, barrier, buffer)


def _kept(plan: KernelPlan, rings: Iterable[Ring]) -> list[Chosen]:
    """What chooses places of a loading warp's copies that are loaded a K-block before."""
    views = (box.view for ring in rings for box in ring.boxes if Role.PAGE in box.view.roles)
    found = dict.fromkeys(view.chosen for view in views if view.chosen is not None)
    return [one for one in found if _is_kept(plan, one)]


def _is_kept(plan: KernelPlan, chosen: Chosen) -> bool:
    """Whether a K-block's places are few enough to be kept from one K-block to the next."""
    return len(_numbers(plan, chosen)) <= PLACES_AT_A_TIME


def _stream(box: Box) -> int:
    """The dimension of the streamed axis."""
    return box.view.roles.index(Role.STREAM)


def _numbers(plan: KernelPlan, chosen: Chosen) -> range:
    """The numbers of the places that a K-block is copied from."""
    return range(max(1, plan.s.depth // chosen.elements) if chosen.elements else 1)


def _name(plan: KernelPlan, chosen: Chosen, number: int, *, following: bool = False) -> str:
    """The variable of one of a K-block's places, or of the `following` one's."""
    ending = f"_{number}" if len(_numbers(plan, chosen)) > 1 else ""
    return f"{'next_' if following else ''}{plan.chosen[chosen.source]}{ending}"


def _first(plan: KernelPlan, chosen: Chosen) -> str:
    """The first element of a K-block in its page, or in each of its pages."""
    depth, page = plan.s.depth, chosen.elements
    if page > depth:
        return f"k_block % {page // depth} * TILE_DEPTH"
    return "0" if page else "k_block * TILE_DEPTH"


def _loads(
    plan: KernelPlan, chosen: Chosen, numbers: Iterable[int], k_block: str, *, following: bool = False
) -> Iterator[str]:
    """The loads of some places of a K-block."""
    depth, page, table = plan.s.depth, chosen.elements, plan.vectors[chosen.source]
    place, count = plan.place("0", "0"), len(_numbers(plan, chosen))
    whole = k_block if k_block.isidentifier() else f"({k_block})"
    for number in numbers:
        first = f"{whole} * {count}" if count > 1 else whole
        at = f"({first} + {number})" if number else f"{whole} // {page // depth}" if page > depth else first
        address = table.at({**place, Role.STREAM: at})
        inside = f", mask={at} * {page} < stream_extent, other={_OUTSIDE}" if page else ""
        yield f"{_name(plan, chosen, number, following=following)} = gl.load({address}{inside})"
