"""Mistakes in kernels whose blocks carry reductions over rows: what is carried, the parts' places, their bundles."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from wsopt.interpret.splice import Change, Edit, Rule, Source, calls, nodes

_COUNTS = ("BUNDLE_PARTS", "PARTS_TOGETHER", "PARTIAL_SUMS")
"""Constants of such kernels."""


def _carries(source: Source) -> bool:
    return any(
        isinstance(node, ast.Name) and node.id == _COUNTS[0]
        for kernel in source.kernels()
        for node in nodes(kernel)
    )


def _tiles_lost(source: Source) -> Iterator[Change]:
    """What is carried is replaced by a tile's own, or stays as it is."""
    names = set(_starts(source))
    for kernel in source.kernels() if names else ():
        for node in (one for one in nodes(kernel) if isinstance(one, ast.AugAssign | ast.Assign)):
            target = node.target if isinstance(node, ast.AugAssign) else node.targets[0]
            begun = isinstance(node, ast.Assign) and not _reads(node.value, source.text(target))
            if source.text(target) in names and not begun:
                own = node.value.args[1] if isinstance(node.value, ast.Call) else node.value
                text = f"{source.text(target)} = {source.text(own)}"
                yield Change(
                    "tile-alone", f"the last tile's alone of {source.text(node)}", (Edit(node, text),)
                )
                yield Change("lost-tile", f"no {source.text(node)}", (Edit(node, "pass"),))


def _starts_shifted(source: Source) -> Iterator[Change]:
    """What is carried does not begin with nothing."""
    for call in _starts(source).values():
        edit = Edit(call.args[1], "1.0")
        yield Change("start", f"1.0 in {source.text(call)}", (edit,))


def _counts_shifted(source: Source) -> Iterator[Change]:
    """A number of parts is one off: of a bundle, of those whose loads go together, of all."""
    for kernel in source.kernels() if _carries(source) else ():
        for node in nodes(kernel):
            if isinstance(node, ast.Name) and node.id in (
                "BUNDLE_PARTS",
                "PARTS_TOGETHER",
                "count",
                "bundles",
            ):
                for offset in (1, -1) if isinstance(node.ctx, ast.Load) else ():
                    edit = Edit(node, f"({node.id} + ({offset}))")
                    yield Change(f"count{offset:+}", f"{offset:+} at {node.id}", (edit,))


def _places_shifted(source: Source) -> Iterator[Change]:
    """A place is that of the next part, or column tiles share places."""
    for kernel in source.kernels() if _carries(source) else ():
        for node in (one for one in nodes(kernel) if isinstance(one, ast.BinOp)):
            if isinstance(node.op, ast.Mult) and source.text(node.right) in ("PARTIAL_SUMS", "TILE_COLUMNS"):
                edit = Edit(node, f"({source.text(node)} + {source.text(node.right)})")
                yield Change("other-place", f"beside {source.text(node)}", (edit,))
            if source.text(node.left) == "column_tile" and isinstance(node.op, ast.Mult):
                edit = Edit(node.left, "0")
                yield Change("shared-place", f"that of the first columns for {source.text(node)}", (edit,))


def _starts(source: Source) -> dict[str, ast.Call]:
    """What consumers carry, by name, with the call that begins it."""
    found = dict[str, ast.Call]()
    for kernel in source.kernels() if _carries(source) else ():
        for node in (one for one in nodes(kernel) if isinstance(one, ast.Assign)):
            for call in calls(source, ("gl.full",)):
                if node.value is call:
                    found[source.text(node.targets[0])] = call
    return found


def _reads(node: ast.AST, name: str) -> bool:
    return any(isinstance(one, ast.Name) and one.id == name for one in ast.walk(node))


OVER_ROWS_RULES: tuple[Rule, ...] = (_tiles_lost, _starts_shifted, _counts_shifted, _places_shifted)
