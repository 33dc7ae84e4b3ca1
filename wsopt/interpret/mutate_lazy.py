"""Mistakes in kernels whose rows may keep a maximum: sums that are never multiplied, or where no row has moved, rows
that keep a maximum of which their factor or their values do not know.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from wsopt.interpret.splice import Change, Edit, Rule, Source, callee, nodes

_KEPT = "KEPT"


def _branches(source: Source) -> Iterator[Change]:
    """Sums are never rescaled, or where the first row alone has moved."""
    for kernel in source.kernels():
        for node in (one for one in nodes(kernel) if isinstance(one, ast.If)):
            test = node.test
            if isinstance(test, ast.Compare) and callee(test.left) == "gl.min":
                yield Change("never-rescaled", "no row has moved", (Edit(test.comparators[0], "0.0"),))
                text = source.text(test.left).replace("gl.min(", "gl.max(", 1)
                yield Change("all-moved", "where all rows have moved", (Edit(test.left, text),))


def _stays(source: Source) -> Iterator[tuple[list[ast.stmt], int]]:
    """Where a loop says which rows stay: the statements around it, and its place among them."""
    for kernel in source.kernels():
        for parent in nodes(kernel):
            body = getattr(parent, "body", None)
            if not isinstance(body, list):
                continue
            for place, node in enumerate(body):
                value = node.value if isinstance(node, ast.Assign) else None
                if isinstance(value, ast.Compare) and source.text(value.comparators[-1]) == _KEPT:
                    yield body, place


def _selections(source: Source) -> Iterator[Change]:
    """Of what follows from a row's staying one thing is left out, or those that stay are the others."""
    for body, place in _stays(source):
        node = body[place]
        assert isinstance(node, ast.Assign)
        assert isinstance(node.value, ast.Compare)
        name = source.text(node.targets[0])
        other = f"{source.text(node.value.left)} < {_KEPT}"
        yield Change("others-stay", "rows stay that have moved", (Edit(node.value, other),))
        for later in body[place + 1 :]:
            if isinstance(later, ast.Assign) and name in source.text(later.value):
                yield Change("not-kept", f"left out {source.text(later)}", (Edit(later, "pass"),))


def _again(source: Source) -> Iterator[Change]:
    """A value that depends on the maximum is not computed again from the one that is kept."""
    for body, place in _stays(source):
        for later in body[place + 2 : place + 5]:
            if isinstance(later, ast.Assign) and callee(later.value) != "gl.where":
                yield Change("not-again", f"left out {source.text(later)}", (Edit(later, "pass"),))


LAZY_RULES: tuple[Rule, ...] = (_branches, _selections, _again)
