"""Memory orders of the tensors of a tile of rows: along its rows, turned (column-major), or some of each."""

from __future__ import annotations

from collections.abc import Iterable

from wsopt.tensors.views import Output, Role, View


def is_turned(view: View) -> bool:
    """Whether in memory the elements of a tensor's rows lie apart, and those of a column next to each other."""
    return view.roles[-1:] == (Role.ROW,) and Role.COLUMN in view.roles


def lie_both_ways(views: Iterable[View]) -> bool:
    """Whether some tensors have neighbours of a row next to each other, and some those of a column."""
    return len({is_turned(view) for view in views if Role.COLUMN in view.roles}) > 1


def row_tiles(
    read: Iterable[View], outputs: Iterable[Output], beside: Iterable[View] = ()
) -> tuple[View, ...]:
    """The tensors whose elements a tile's threads have: what is `read` and what TMA stores, or where neither is there
    what threads store. So they have, where not all lie one way, what threads store and read `beside` those.
    """
    stored = tuple(outputs)
    moved = (*read, *(one.view for one in stored if one.is_tile))
    every = tuple(dict.fromkeys((*moved, *beside, *(one.view for one in stored if one.by_threads))))
    if moved and lie_both_ways(every):
        return every
    return moved or tuple(one.view for one in stored)
