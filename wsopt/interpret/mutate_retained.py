"""Mistakes in kernels whose second pass over rows begins with parts that stayed in the ring: one part more or less
stays, is gone back to, comes first, or is copied again.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from wsopt.interpret.splice import Change, Edit, Rule, Source, nodes

_RETAINED = "RETAINED"


def _one_off(source: Source) -> Iterator[Change]:
    """Each place that counts the parts that stay counts one more, or one less."""
    for kernel in source.kernels():
        for node in nodes(kernel):
            if isinstance(node, ast.Name) and node.id == _RETAINED:
                for offset in (1, -1):
                    edit = Edit(node, f"({_RETAINED} + ({offset}))")
                    yield Change(f"retained{offset:+}", f"{offset:+} parts stay in this line", (edit,))


RETAINED_RULES: tuple[Rule, ...] = (_one_off,)
