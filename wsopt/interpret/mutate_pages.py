"""Mistakes in kernels that copy boxes from places that a table holds: another place, another part of the slot or of
the page, a read behind the table's end.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from wsopt.interpret.splice import Change, Edit, Rule, Source, argument, callee, calls, nodes

_COPIES = ("tma_load", "tma.async_load", "tma.async_copy_global_to_shared")
_PLACE_OF, _BUFFER = "place_of", 3
"""What gives all threads one of several places, and which argument of a copy its buffer is."""


def _places(source: Source) -> Iterator[ast.Call]:
    """The loads of what copies take coordinates from."""
    for kernel in source.kernels():
        corners = (
            call.args[1] for call in nodes(kernel) if isinstance(call, ast.Call) and callee(call) in _COPIES
        )
        taken = {one.id for corner in corners for one in ast.walk(corner) if isinstance(one, ast.Name)}
        for node in (one for one in nodes(kernel) if isinstance(one, ast.Assign)):
            if callee(node.value) == "gl.load" and source.text(node.targets[0]) in taken:
                assert isinstance(node.value, ast.Call)
                yield node.value


def _other_places(source: Source) -> Iterator[Change]:
    """A K-block is copied from the places of another one."""
    for load in _places(source):
        yield Change("place", "the place behind", (Edit(load.args[0], f"{source.text(load.args[0])} + 1"),))


def _behind_the_table(source: Source) -> Iterator[Change]:
    """Places behind a table's end are read: of several, whose first one is never behind it."""
    several = any(calls(source, (_PLACE_OF,)))
    for load in _places(source):
        if several and (mask := argument(load, 1, "mask")):
            yield Change("unmasked-place", "mask left out", (Edit(mask, f"({source.text(mask)}) | True"),))


def _other_numbers(source: Source) -> Iterator[Change]:
    """A page is copied from the place of another one of its K-block."""
    for call in calls(source, (_PLACE_OF,)):
        number = int(source.text(call.args[1]))
        yield Change("page", "another of a K-block's pages", (Edit(call.args[1], str(number ^ 1)),))


def _other_parts(source: Source) -> Iterator[Change]:
    """A page is copied to another one's part of the slot."""
    for call in calls(source, _COPIES):
        buffer = call.args[_BUFFER]
        if isinstance(buffer, ast.Call) and callee(buffer).endswith("slice"):
            first, length = (int(source.text(one)) for one in buffer.args[:2])
            yield Change("part", "to another part", (Edit(buffer.args[0], str(first ^ length)),))


def _first_parts(source: Source) -> Iterator[Change]:
    """Of a page that has several K-blocks the first one is copied for all."""
    for call in calls(source, _COPIES):
        for node in ast.walk(call.args[1]):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
                yield Change("page-start", "from the start of the page", (Edit(node, "0"),))


PAGE_RULES: tuple[Rule, ...] = (_other_places, _behind_the_table, _other_numbers, _other_parts, _first_parts)
