"""Mistakes in kernels whose rows are cut by offsets: ends that are not held within the tensor or to their order,
another segment's matrix, rows stored that are another segment's, segments that are not gone on from.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from wsopt.interpret.splice import Change, Edit, Rule, Source, argument, callee, calls, nodes

_COPIES = ("tma_load", "tma.async_load", "tma.async_copy_global_to_shared")
_END_OF, _SEGMENT_OF = "end_of", "segment_of"


def _functions(source: Source, name: str) -> Iterator[ast.FunctionDef]:
    return (one for one in source.kernels() if one.name == name)


def _held_ends(source: Source) -> Iterator[Change]:
    """An end is not held to those before it, or to the tensor; one is read behind the last."""
    for function in _functions(source, _END_OF):
        for call in (one for one in nodes(function) if isinstance(one, ast.Call)):
            if callee(call) in ("gl.maximum", "gl.minimum"):
                kept = source.text(call.args[0])
                yield Change("unheld-end", f"no {callee(call)}", (Edit(call, kept),))
            if callee(call) == "gl.load":
                mask, other = argument(call, 1, "mask"), argument(call, 2, "other")
                assert mask is not None, "there is no offset behind the last"
                assert other is not None, "and rows that belong to no segment"
                yield Change("offset-behind", "mask left out", (Edit(mask, "True"),))
                yield Change("left-out", "rows of no segment left out", (Edit(other, "first_row"),))


def _other_segments(source: Source) -> Iterator[Change]:
    """Rows are multiplied by the matrix of the segment behind theirs."""
    for call in calls(source, _COPIES):
        for node in ast.walk(call.args[1]):
            if isinstance(node, ast.Name) and node.id == "segment":
                yield Change("segment", "the segment behind", (Edit(node, "segment + 1"),))


def _others_rows(source: Source) -> Iterator[Change]:
    """Rows are stored that are another segment's: by threads, or by TMA."""
    for kernel in source.kernels():
        for node in nodes(kernel):
            if isinstance(node, ast.Call) and callee(node) == "gl.store":
                mask = argument(node, 2, "mask")
                for part in ast.walk(mask) if mask is not None else ():
                    if isinstance(part, ast.Compare) and source.text(part.comparators[0]) == "end_row":
                        yield Change("others-rows", "mask left out", (Edit(part, "True"),))
            if isinstance(node, ast.Assign) and source.text(node.targets[0]) == "stored_row":
                yield Change("others-rows", "by TMA", (Edit(node.value, "row"),))


def _forgotten(source: Source) -> Iterator[Change]:
    """A tile's segment is looked for from the first one, with the tiles that come before a later one."""
    for call in calls(source, (_SEGMENT_OF,)):
        edits = (Edit(call.args[1], "0"), Edit(call.args[2], "0"))
        yield Change("forgotten", "from the first segment on", edits)


SEGMENT_RULES: tuple[Rule, ...] = (_held_ends, _other_segments, _others_rows, _forgotten)
