"""Arithmetic cut into phases: runs of statements that need nothing but what products and earlier phases have left.

A value that needs a row's reduced value of the same tile begins a new phase, for the reduction has to end first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wsopt.frontend.types import Contraction
from wsopt.program.program import Item
from wsopt.tensors.statements import Reduction, Statement
from wsopt.tensors.views import FULL, K_BLOCK, Role

BodyItem = Statement | Reduction | Contraction


def is_scores(item: BodyItem) -> bool:
    """Whether an item is a product whose result is a value of the loop."""
    return isinstance(item, Contraction) and item.spans == K_BLOCK


def is_sums(item: BodyItem) -> bool:
    """Whether an item is a product that is summed over the streamed axis, after all phases."""
    return isinstance(item, Contraction) and item.spans == FULL


def body_levels(body: Sequence[BodyItem]) -> dict[str, int]:
    """The phase of every item of a loop: one more than those of products, and of row values that a K-block's value
    needs. Arithmetic goes with the first that uses it: next to its reader a product is part of an addition.
    """
    level: dict[str, int] = {}
    late: set[str] = set()
    rows: set[str] = set()
    for item in body:
        names = [name for name in item.reads if name in level]
        tile = is_scores(item) or (isinstance(item, Statement) and Role.STREAM in item.spans)
        level[item.name] = max((level[n] + (n in late or (tile and n in rows)) for n in names), default=0)
        if is_scores(item):
            late.add(item.name)
        elif isinstance(item, Reduction) or (not tile and rows & set(names)):
            rows.add(item.name)
    for item in reversed(body):
        if isinstance(item, Statement):
            users = _users(item, body, level)
            level[item.name] = max(1, level[item.name], min(users, default=1))
    return level


def _users(item: BodyItem, every: Iterable[BodyItem], level: dict[str, int]) -> list[int]:
    return [level[user.name] for user in every if item.name in user.reads and not is_sums(user)]


def row_phases(items: Sequence[Item]) -> tuple[tuple[Item, ...], ...]:
    """The items of a tile of whole rows in phases: each has reductions of its own last.

    What one later phase alone reads is computed there, so that no tile is held for it.
    """
    level: dict[str, int] = {}
    late: set[str] = set()
    for item in items:
        level[item.name] = max((level[n] + (n in late) for n in item.reads if n in level), default=0)
        if isinstance(item, Reduction):
            late.add(item.name)
    for item in reversed(items):
        users = _users(item, items, level)
        if isinstance(item, Statement) and users:
            level[item.name] = max(level[item.name], min(users))
    last = max(level.values(), default=0)
    return tuple(tuple(i for i in items if level[i.name] == number) for number in range(last + 1))
