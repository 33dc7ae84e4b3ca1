"""Why operations that our graphs say are in no piece, though nothing turned them down: asked for a report alone."""

from __future__ import annotations

from collections.abc import Iterator

from wsopt.partition.web import bits, members, union
from wsopt.torch.cutting import Cut, Way, flow_of_graph
from wsopt.torch.flow import Flow

MOST = 60
"""Operations of which it is asked, those that move the most bytes first."""
_ALONE = (
    "arithmetic of elements alone, with no product, reduction or joined tensors for a piece to begin with"
)
_NO_GAIN = "one kernel with the piece beside it would move no fewer bytes"


def left_beside(way: Way, cut: Cut) -> dict[str, str]:
    """Why FX nodes that no piece computes are not in the piece beside them, with what they are, by name."""
    flow = flow_of_graph(way.lowered)
    number = {name: place for place, name in enumerate(flow.names)}
    taken = [bits(number[name] for name in piece.covered if name in number) for piece in cut.pieces]
    covered = frozenset[str]().union(*(piece.covered for piece in cut.pieces))
    known = covered | cut.reasons.keys()
    left = [
        name
        for name, place in number.items()
        if flow.groups >> place & ~(flow.free >> place) & 1 and name not in known and cut.moved.get(name)
    ]
    left.sort(key=lambda name: -cut.moved[name])
    reasons = {name: _why(way, flow, 1 << number[name], taken) for name in left[:MOST]}
    calls = way.wiring.calls
    return {name: why if why == _ALONE else f"{calls[name].target}: {why}" for name, why in reasons.items()}


def _why(way: Way, flow: Flow, node: int, taken: list[int]) -> str:
    """Why an operation is not in a piece beside it."""
    found = [reason for piece in _beside(flow, node, taken) for reason in _refusals(way, flow, node | piece)]
    return next(filter(None, found), _NO_GAIN if found else _ALONE)


def _beside(flow: Flow, node: int, taken: list[int]) -> Iterator[int]:
    """The pieces that read what an operation makes, by others or not, then those that make what it reads."""
    barred = union(taken)
    for towards in (flow.readers, flow.sources):
        found, before = node, 0
        while found != before and not found & barred:
            before, found = found, found | bits(towards(found)) & flow.groups
        yield from (piece for piece in taken if piece & found)


def _refusals(way: Way, flow: Flow, nodes: int) -> Iterator[str]:
    """Why an operation and a piece are no kernel together; empty if they are one."""
    whole = flow.closed(nodes, 0)
    if whole is None:
        yield "what lies between it and the piece beside it stays"
        return
    groups = frozenset(flow.names[place] for place in members(whole))
    if way.outline(groups) is None:
        yield way.untaken(groups)
    else:
        yield way.oracle.refusal(way.alike(groups))
