"""The whole table of operations: every file that has entries, loaded."""

from __future__ import annotations

from wsopt.torch import (
    say_attention,
    say_composed,
    say_convolutions,
    say_elementwise,
    say_flex,
    say_indexed,
    say_products,
    say_views,
)
from wsopt.torch.table import TABLE

FILES = (
    say_elementwise, say_composed, say_views, say_indexed, say_products, say_convolutions, say_attention, say_flex,
)  # fmt: skip
"""The files that have entries."""

__all__ = ["FILES", "TABLE"]
