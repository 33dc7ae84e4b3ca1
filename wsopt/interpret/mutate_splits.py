"""Mistakes in kernels whose sums are split over blocks: the arrival, the ranges of the parts, their sum."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise

from wsopt.interpret.splice import Change, Edit, Rule, Source, argument, bodies, callee, calls, nodes

BARRIERS = ("gl.barrier", "gl.thread_barrier", "barrier", "thread_barrier")
"""Names of the barrier of a partition's threads: Triton 3.9's, 3.6's, and those of a kernel that takes either."""
ATOMIC = ("gl.atomic_add",)
_RANGES = ("part_range", "part_of")
"""Functions of a kernel that find the K-blocks of a part, by its number."""
ROW_EXTENT = "row_extent"
"""The rows that a tensor has."""


def _weaker_atomics(source: Source) -> Iterator[Change]:
    """An atomic that does not release, does not acquire, or is atomic within its block only. One that orders nothing
    has no weaker order.
    """
    for call in calls(source, ATOMIC):
        for name, weaker in (("sem", "relaxed"), ("sem", "release"), ("sem", "acquire"), ("scope", "cta")):
            given = argument(call, len(call.args), name)
            if name == "sem" and given is not None and source.text(given) == '"relaxed"':
                continue
            text = f'{source.text(call)[:-1]}, {name}="{weaker}")'
            edit = Edit(given, f'"{weaker}"') if given is not None else Edit(call, text)
            yield Change(f"{weaker}-atomic", f"{name} {weaker} in {source.text(call)}", (edit,))


def _plain_counters(source: Source) -> Iterator[Change]:
    """A load and a store instead of an atomic."""
    for statement, call in _counts(source):
        atomic, pointer, value = (source.text(node) for node in (call, *call.args[:2]))
        counted = f"counted = gl.load({pointer}); gl.store({pointer}, counted + {value})"
        text = f"{counted}; {source.text(statement).replace(atomic, 'counted')}"
        yield Change("plain-counter", f"no atomic: {source.text(statement)}", (Edit(statement, text),))


def _arrivals_miscounted(source: Source) -> Iterator[Change]:
    """Each arrival counts for two."""
    for call in calls(source, ATOMIC):
        edit = Edit(call.args[1], f"({source.text(call.args[1])}) + 1")
        yield Change("arrival+1", f"adds one more in {source.text(call)}", (edit,))


def _other_arrivals(source: Source) -> Iterator[Change]:
    """An arrival before the last adds the parts up, or none does."""
    for number in _last_arrivals(source):
        for offset in (1, -1):
            edit = Edit(number, f"({source.text(number)}) + ({offset})")
            yield Change(f"last-arrival{offset:+}", f"{offset:+} in {source.text(number)}", (edit,))


def _counters_left(source: Source) -> Iterator[Change]:
    """A counter is set to one where it is to be as it was found."""
    for call in calls(source, ("gl.store",)):
        value = argument(call, 1, "value")
        if isinstance(value, ast.Constant):
            yield Change(
                "reset+1", f"one more in {source.text(call)}", (Edit(value, f"{source.text(value)} + 1"),)
            )


def _late_barriers(source: Source) -> Iterator[Change]:
    """The threads of a partition meet after the arrival that tells of their stores."""
    for body in bodies(source):
        for barrier, after in pairwise(body):
            simple = isinstance(after, ast.Assign | ast.Expr)
            if simple and isinstance(barrier, ast.Expr) and callee(barrier.value) in BARRIERS:
                text = f"{source.text(after)}; {source.text(barrier)}"
                what = f"{source.text(barrier)} after {source.text(after)}"
                yield Change("late-barrier", what, (Edit(barrier, "pass"), Edit(after, text)))


def _parts_lost(source: Source) -> Iterator[Change]:
    """The sum over the parts leaves out the first or the last of its loop."""
    splits = _splits(source)
    for call in calls(source, ("range", "gl.static_range")):
        if len(call.args) > 2 or not _names(call.args[-1]) & splits:
            continue
        end = call.args[-1]
        yield Change(
            "last-part", f"all but the last of {source.text(call)}", (Edit(end, f"({source.text(end)}) - 1"),)
        )
        text = f"({source.text(call.args[0])}) + 1" if len(call.args) == 2 else f"1, {source.text(end)}"
        yield Change("first-part", f"all but the first of {source.text(call)}", (Edit(call.args[0], text),))


def _ranges_shifted(source: Source) -> Iterator[Change]:
    """A bound of a part's range, a part's number or its tile's is one off."""
    for node in _operations(source, ast.FloorDiv, ast.Mod):
        for offset in (1, -1):
            edit = Edit(node, f"({source.text(node)} + ({offset}))")
            yield Change(f"part{offset:+}", f"{offset:+} at {source.text(node)}", (edit,))


def _places_shifted(source: Source) -> Iterator[Change]:
    """The place of a tile's parts is that of its next part, or of the next tile."""
    for node in _operations(source, ast.Mult):
        for offset in ("1", *sorted(_names(node) & _splits(source))):
            edit = Edit(node, f"({source.text(node)} + {offset})")
            yield Change(
                "other-part" if offset == "1" else "other-tile", f"beside {source.text(node)}", (edit,)
            )


def _other_ranges(source: Source) -> Iterator[Change]:
    """A partition takes the K-blocks of the next part."""
    for call in calls(source, _RANGES):
        part = call.args[0]
        text = f"({source.text(part)} + 1)"
        yield Change("next-range", f"the next part's in {source.text(call)}", (Edit(part, text),))


def _one_part_alone(source: Source) -> Iterator[Change]:
    """In a loop over parts the place of every part is the first one's."""
    for loop in _part_loops(source):
        values = (node.value for node in ast.walk(loop) if isinstance(node, ast.Assign))
        for value in (one for one in values if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Add)):
            if source.text(loop.target) in _names(value.right):
                edit = Edit(value, source.text(value.left))
                yield Change("one-part", f"the first part's instead of {source.text(value)}", (edit,))


def _factors_lost(source: Source) -> Iterator[Change]:
    """What a part adds is not rescaled."""
    for loop in _part_loops(source):
        for node in (one for one in ast.walk(loop) if isinstance(one, ast.AugAssign)):
            if isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.Mult):
                edit = Edit(node.value, source.text(node.value.left))
                yield Change("lost-factor", f"no factor in {source.text(node)}", (edit,))


def _parts_replaced(source: Source) -> Iterator[Change]:
    """Each part takes the place of those before, where it is to be added to them or compared with them."""
    for node in (one for loop in _part_loops(source) for one in loop.body):
        text = ""
        if isinstance(node, ast.AugAssign):
            text = f"{source.text(node.target)} = {source.text(node.value)}"
        elif isinstance(node, ast.Assign) and callee(node.value) == "gl.maximum":
            text = f"{source.text(node.targets[0])} = {source.text(node.value.args[1])}"  # type: ignore[attr-defined]
        if text:
            yield Change("lost-parts", f"only the last of {source.text(node)}", (Edit(node, text),))


def _rows_shifted(source: Source) -> Iterator[Change]:
    """A row less or more than the tensor has is taken for one of its rows."""
    if _splits(source):
        for kernel in source.kernels():
            for node in (one for one in nodes(kernel) if isinstance(one, ast.Compare)):
                if isinstance(node.ops[0], ast.Lt) and source.text(node.comparators[0]) == ROW_EXTENT:
                    for offset in (1, -1):
                        edit = Edit(node.comparators[0], f"{ROW_EXTENT} + ({offset})")
                        yield Change(f"rows{offset:+}", f"{offset:+} in {source.text(node)}", (edit,))


def _part_loops(source: Source) -> Iterator[ast.For]:
    """Each loop over the parts of a tile: one by one, or inside of a loop over some at a time."""
    splits = _splits(source)
    for kernel in source.kernels() if splits else ():
        loops = [node for node in nodes(kernel) if isinstance(node, ast.For)]
        for loop in (one for one in loops if _names(one.iter) & splits):
            inner = [node for node in ast.walk(loop) if isinstance(node, ast.For) and node is not loop]
            yield from inner or [loop]


def _counts(source: Source) -> Iterator[tuple[ast.Assign | ast.Return, ast.Call]]:
    """Each statement that assigns or returns what an atomic found, or what is computed of it."""
    statements = (node for body in bodies(source) for node in body)
    for statement in (node for node in statements if isinstance(node, ast.Assign | ast.Return)):
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and callee(node) in ATOMIC:
                yield statement, node


def _arrivals(source: Source) -> Iterator[tuple[ast.Assign, ast.Call]]:
    """Each assignment of what an atomic found, or of what is computed of it."""
    return ((one, call) for one, call in _counts(source) if isinstance(one, ast.Assign))


def _last_arrivals(source: Source) -> Iterator[ast.expr]:
    """What the result of an atomic is compared with: on its line, or by the name that it has."""
    named = {source.text(one.targets[0]) for one, call in _arrivals(source) if one.value is call}
    for kernel in source.kernels():
        for node in nodes(kernel):
            if isinstance(node, ast.Compare) and (callee(node.left) in ATOMIC or _names(node.left) & named):
                yield from node.comparators


def _splits(source: Source) -> set[str]:
    """The constants that say how many blocks arrive."""
    return {name for number in _last_arrivals(source) for name in _names(number)}


def _operations(source: Source, *operators: type[ast.operator]) -> Iterator[ast.BinOp]:
    """Each operation of these with the number of parts."""
    splits = _splits(source)
    for kernel in source.kernels() if splits else ():
        for node in (one for one in nodes(kernel) if isinstance(one, ast.BinOp)):
            by_name = isinstance(node.op, operators) and isinstance(node.right, ast.Name)
            if by_name and _names(node.right) & splits:
                yield node


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


SPLIT_RULES: tuple[Rule, ...] = (
    _weaker_atomics,
    _plain_counters,
    _arrivals_miscounted,
    _other_arrivals,
    _counters_left,
    _late_barriers,
    _parts_lost,
    _ranges_shifted,
    _places_shifted,
    _other_ranges,
    _one_part_alone,
    _factors_lost,
    _parts_replaced,
    _rows_shifted,
)
