"""Mistakes in kernels whose blocks take equal shares of all K-blocks.

Where a share begins and ends, which tiles it is in, how many parts a tile has, where they lie, and which of a share's
two ends is meant.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from wsopt.interpret.splice import Change, Edit, Rule, Source, callee, calls, nodes

SHARE = "share_of"
"""The function of a kernel that finds a block's share."""
_PLACES = ("begin_of", "block_of")
"""Those that say where a block's share begins, and whose a K-block is."""
_FOUND = ("share_of", "part_range", "parts_of")
"""Those that find a block's tiles, its part of one, and all parts of one."""
_ENDS = ("first_tile", "number", "whole")
"""What says which end of a share is meant, by what it is compared with, or that a tile is whole."""


def _functions(source: Source, *names: str) -> Iterator[ast.FunctionDef]:
    """The functions of these names, in a kernel with shares; all that run on the device for none."""
    found = [*source.kernels()]
    if any(one.name == SHARE for one in found):
        yield from (one for one in found if not names or one.name in names)


def _shares_shifted(source: Source) -> Iterator[Change]:
    """Every share begins a K-block later or earlier, or belongs to another block."""
    for function in _functions(source, *_PLACES):
        for node in (one for one in nodes(function) if isinstance(one, ast.Return) and one.value):
            assert node.value is not None
            for offset in (1, -1):
                text = f"{source.text(node.value)} + ({offset})"
                yield Change(f"share{offset:+}", f"{offset:+} in {function.name}", (Edit(node.value, text),))


def _rests_lost(source: Source) -> Iterator[Change]:
    """The K-blocks that are over when all have the same number belong to nobody, or to one block."""
    for function in _functions(source, *_PLACES, "blocks_of"):
        for node in (one for one in nodes(function) if callee(one) == "gl.minimum"):
            assert isinstance(node, ast.Call)
            yield Change("lost-rest", f"0 for {source.text(node)}", (Edit(node, "0"),))
            yield Change(
                "lost-rest", f"all before in {source.text(node)}", (Edit(node, source.text(node.args[1])),)
            )


def _others_found(source: Source) -> Iterator[Change]:
    """What is found of a share, of a part or of all parts is one off."""
    for function in _functions(source, *_FOUND):
        for node in (one for one in nodes(function) if isinstance(one, ast.Return)):
            assert isinstance(node.value, ast.Tuple)
            for value in node.value.elts:
                for offset in (1, -1):
                    text = f"{source.text(value)} + ({offset})"
                    told = f"{offset:+} at {source.text(value)} of {function.name}"
                    yield Change(f"found{offset:+}", told, (Edit(value, text),))


def _parts_shifted(source: Source) -> Iterator[Change]:
    """One role's part of a tile begins or ends a K-block away from where its share does."""
    for call in calls(source, ("part_of",)) if any(_functions(source)) else ():
        for limit in call.args[:2]:
            for offset in (1, -1):
                edit = Edit(limit, f"{source.text(limit)} + ({offset})")
                yield Change(f"share-end{offset:+}", f"{offset:+} at {source.text(limit)}", (edit,))


def _empty_tiles(source: Source) -> Iterator[Change]:
    """A tile without K-blocks counts for none, so that nobody ends it."""
    for function in _functions(source):
        for node in (one for one in nodes(function) if callee(one) == "gl.maximum"):
            assert isinstance(node, ast.Call)
            if isinstance(node.args[0], ast.BinOp) and source.text(node.args[1]) == "1":
                edit = Edit(node, f"({source.text(node.args[0])})")
                yield Change("empty-tile", f"none for {source.text(node)}", (edit,))


def _other_tiles(source: Source) -> Iterator[Change]:
    """A tile that ends where a share begins, or begins where it ends, is taken for one of its tiles."""
    for function in _functions(source, SHARE):
        for node in (one for one in nodes(function) if isinstance(one, ast.Compare)):
            sign = "<" if isinstance(node.ops[0], ast.LtE) else "<="
            text = f"{source.text(node.left)} {sign} {source.text(node.comparators[0])}"
            yield Change("share-tile", f"{sign} in {source.text(node)}", (Edit(node, text),))


def _parts_miscounted(source: Source) -> Iterator[Change]:
    """A tile is taken to have another number of parts, or to be whole."""
    for function in _functions(source):
        for node in nodes(function):
            if (
                isinstance(node, ast.Assign)
                and source.text(node.targets[0]) == "parts"
                and _names(node) & {*_PLACES}
            ):
                for offset in (1, -1):
                    text = f"{source.text(node.value)} + ({offset})"
                    yield Change(f"part-count{offset:+}", f"{offset:+} parts", (Edit(node.value, text),))
            if isinstance(node, ast.If) and isinstance(node.test, ast.Compare):
                number = node.test.comparators[0]
                if source.text(node.test.left) == "parts":
                    text = f"{source.text(number)} + 1"
                    yield Change("part-count", f"{text} in {source.text(node.test)}", (Edit(number, text),))


def _places_shifted(source: Source) -> Iterator[Change]:
    """A part is left, or looked for, beside its place."""
    for function in _functions(source):
        for node in (one for one in nodes(function) if isinstance(one, ast.BinOp)):
            if isinstance(node.op, ast.Add) and source.text(node.left) == "tile":
                for offset in (1, -1):
                    edit = Edit(node, f"{source.text(node)} + ({offset})")
                    yield Change(f"place{offset:+}", f"{offset:+} at {source.text(node)}", (edit,))


def _other_ends(source: Source) -> Iterator[Change]:
    """What is for one end of a share is for the other, or for both."""
    for call in calls(source, ("gl.where",)) if any(_functions(source)) else ():
        condition, one, other = (source.text(node) for node in call.args)
        if isinstance(call.args[0], ast.Compare | ast.Name) and _names(call.args[0]) & {*_ENDS}:
            for text in (one, other, f"gl.where({condition}, {other}, {one})"):
                yield Change("other-end", f"{text} for {source.text(call)}", (Edit(call, text),))


def _tiles_not_passed(source: Source) -> Iterator[Change]:
    """A role takes each tile for the first one's K-blocks."""
    for function in _functions(source):
        for node in (one for one in nodes(function) if isinstance(one, ast.Assign)):
            if source.text(node) == "before = after":
                yield Change("lost-tile", f"no {source.text(node)}", (Edit(node, "pass"),))


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


SHARE_RULES: tuple[Rule, ...] = (
    _shares_shifted,
    _rests_lost,
    _others_found,
    _parts_shifted,
    _empty_tiles,
    _other_tiles,
    _parts_miscounted,
    _places_shifted,
    _other_ends,
    _tiles_not_passed,
)
