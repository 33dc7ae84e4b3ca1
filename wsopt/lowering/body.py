"""What items of a loop's body are to one another: the names that they read, and which products are values."""

from __future__ import annotations

from wsopt.frontend.types import Contraction
from wsopt.tensors.statements import Reduction, Statement
from wsopt.tensors.views import FULL, K_BLOCK

BodyItem = Statement | Reduction | Contraction


def is_scores(item: BodyItem) -> bool:
    """Whether an item is a product whose result is a value of the loop."""
    return isinstance(item, Contraction) and item.spans == K_BLOCK


def is_sums(item: BodyItem) -> bool:
    """Whether an item is a product that is summed over the streamed axis, after all phases."""
    return isinstance(item, Contraction) and item.spans == FULL
