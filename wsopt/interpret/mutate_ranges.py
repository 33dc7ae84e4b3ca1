"""Mistakes in kernels whose K-blocks are bounded by run-time scalars: a scalar that is another for one partition, or
for a range than for its mask; sums with it that overflow.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from wsopt.interpret.splice import Change, Edit, Rule, Source, callee, calls, nodes

RANGE = "k_block_range"
"""The function of a kernel that finds a tile's K-blocks."""
_WITHOUT = 6
"""Its parameters before the scalars."""
_SHIFTS = ("+ TILE_DEPTH", "- TILE_DEPTH")
_WRONG = {"begin": "+ 1", "end": "- 1", "whole_begin": "- 1", "whole_end": "+ 1"}
"""Limits of a range, and the change that asks for too little: the other way masks make up for it."""


def _loads_shifted(source: Source) -> Iterator[Change]:
    """A partition takes a scalar for a K-block more or less, in its range and its masks."""
    for kernel in source.kernels():
        given = {name for call in calls(source, (RANGE,)) for name in map(source.text, call.args[_WITHOUT:])}
        for node in (one for one in nodes(kernel) if isinstance(one, ast.Assign)):
            if callee(node.value) == "gl.load" and source.text(node.targets[0]) in given:
                yield from _shifted("scalar", source, node.value)


def _arguments_shifted(source: Source) -> Iterator[Change]:
    """One range, of a partition's tile or of its own rows, is by a scalar of a K-block more or less."""
    for call in calls(source, (RANGE,)):
        for scalar in call.args[_WITHOUT:]:
            yield from _shifted("range-scalar", source, scalar)


def _far_scalars(source: Source) -> Iterator[Change]:
    """All ranges are by a scalar that may be far from zero."""
    for _, node, scalar in _near(source):
        yield Change("far-scalar", f"{scalar} as it is", (Edit(node, scalar),))


def _ranges_shifted(source: Source) -> Iterator[Change]:
    """A bound leaves a K-block out that counts, or takes one for whole in which a mask is at work."""
    for function in _functions(source):
        near = {target for target, _, _ in _near(source)}
        for node in (one for one in nodes(function) if isinstance(one, ast.Assign)):
            target = source.text(node.targets[0])
            if target in _WRONG and _names(node.value) & near:
                text = f"({source.text(node.value)}) {_WRONG[target]}"
                yield Change(
                    f"{target}{_WRONG[target][0]}1", f"{target} {_WRONG[target]}", (Edit(node.value, text),)
                )


def _overflows_unseen(source: Source) -> Iterator[Change]:
    """A sum in which a scalar overflows is taken for the graph's own."""
    for function in _functions(source):
        for node in nodes(function):
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq):
                left = source.text(node.left)
                yield Change(
                    "unseen-overflow", f"{source.text(node)} always", (Edit(node, f"{left} == {left}"),)
                )


def _shifted(kind: str, source: Source, node: ast.expr) -> Iterator[Change]:
    for shift in _SHIFTS:
        text = f"({source.text(node)} {shift})"
        yield Change(f"{kind}{shift[0]}K", f"{shift} at {source.text(node)}", (Edit(node, text),))


def _near(source: Source) -> Iterator[tuple[str, ast.expr, str]]:
    """Each scalar that is brought near zero: the name of that, its expression, and the scalar."""
    for function in _functions(source):
        scalars = {one.arg for one in function.args.args[_WITHOUT:]}
        for node in (one for one in nodes(function) if isinstance(one, ast.Assign)):
            named = _names(node.value) & scalars
            if len(named) == 1 and callee(node.value) == "gl.maximum":
                yield source.text(node.targets[0]), node.value, named.pop()


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _functions(source: Source) -> Iterator[ast.FunctionDef]:
    return (kernel for kernel in source.kernels() if kernel.name == RANGE)


RANGE_RULES: tuple[Rule, ...] = (
    _loads_shifted,
    _arguments_shifted,
    _far_scalars,
    _ranges_shifted,
    _overflows_unseen,
)
