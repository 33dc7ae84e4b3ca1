"""What items of a loop's body are to one another: the names that they read, and which products are values."""

from __future__ import annotations

from wsopt.frontend.types import Contraction
from wsopt.tensors.statements import Reduction, Statement
from wsopt.tensors.views import FULL, K_BLOCK

BodyItem = Statement | Reduction | Contraction
BEFORE = ".before"
"""What the name of a reduction ends in where its value before the K-block is meant."""


def arguments(item: BodyItem) -> tuple[str, ...]:
    """The names that an item of the body reads, tensors left out."""
    if isinstance(item, Statement):
        return tuple(a for a in item.args if isinstance(a, str))
    names = (
        (item.left if isinstance(item.left, str) else None,)
        if isinstance(item, Contraction)
        else (item.value,)
    )
    return tuple(name for name in (*names, item.rescale) if name is not None)


def is_scores(item: BodyItem) -> bool:
    """Whether an item is a product whose result is a value of the loop."""
    return isinstance(item, Contraction) and item.spans == K_BLOCK


def is_sums(item: BodyItem) -> bool:
    """Whether an item is a product that is summed over the streamed axis, after all phases."""
    return isinstance(item, Contraction) and item.spans == FULL
