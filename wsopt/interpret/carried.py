"""Refuses what a loop of a device function hands from one iteration to the next where Triton 3.6 may lose it.

That is a constant that the loop assigns to a variable from before it, and a variable on which nothing but bounds of
inner loops depends: Triton takes what is carried for equal to what it began with, or for dead, and gives the variable
its value of before the loop in every iteration. Python's own loop does what is written, so that no execution here
would find it.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from wsopt.interpret.faults import InterpreterError


def check_carried(function: ast.FunctionDef, filename: str) -> None:
    """Raises InterpreterError for the first such assignment or loop, with its line."""
    nodes = list(ast.walk(function))
    for loop in _loops(nodes):
        before = _bound_before(function, nodes, loop)
        found = next(chain(_constants(loop, before), _for_bounds_alone(loop, before)), None)
        if found is not None:
            line, told = found
            raise InterpreterError(f"{os.path.basename(filename)}:{line}: {function.name}: {told}")


def _constants(loop: ast.For | ast.While, before: set[str]) -> Iterator[tuple[int, str]]:
    """The lines at which a loop sets a variable from before it to a constant, and what is wrong with that."""
    for node in ast.walk(loop):
        if isinstance(node, ast.Assign) and _sets_constant(node):
            names = {one.id for one in node.targets if isinstance(one, ast.Name)} & before
            if names and not _renewed(loop, names):
                told = f"{min(names)} is set to a constant in a loop, and has a value from before it"
                yield node.lineno, f"{told}: Triton 3.6 may keep that one"


def _for_bounds_alone(loop: ast.For | ast.While, before: set[str]) -> Iterator[tuple[int, str]]:
    """A loop's line with each name that it hands on and that reaches nothing but itself and bounds of loops in it."""
    inner = [n for n in ast.walk(loop) if n is not loop and isinstance(n, ast.For)]
    bounds = {id(part) for one in inner for part in ast.walk(one.iter)}
    assigned = [n for n in ast.walk(loop) if isinstance(n, ast.Assign | ast.AugAssign)]
    handed = {name for one in assigned for name in _targets(one)} & before
    if not inner or not handed:
        return
    of_values = {id(part): one for one in assigned for part in ast.walk(one.value)}
    feeds: dict[str, set[str]] = {}
    alive = set[str]()
    for node in ast.walk(loop):
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load) or id(node) in bounds:
            continue
        one = of_values.get(id(node))
        if one is None or _has_effects(one.value) or not _targets(one):
            alive.add(node.id)
        else:
            feeds.setdefault(node.id, set()).update(_targets(one))
    read = {part.id for one in inner for part in ast.walk(one.iter) if isinstance(part, ast.Name)}
    idle = handed & _feeding(read, feeds) - _feeding(alive, feeds)
    for name in sorted(idle):
        if not _renewed(loop, {name}):
            told = f"{name} is handed on by a loop for nothing but bounds of loops in it"
            yield loop.lineno, f"{told}: Triton 3.6 may keep its value of before"


def _feeding(names: set[str], feeds: Mapping[str, set[str]]) -> set[str]:
    """These names, and all that they are computed from."""
    found, grown = set(names), True
    while grown:
        new = {name for name, into in feeds.items() if into & found} - found
        found |= new
        grown = bool(new)
    return found


_EFFECTS = ("load", "store", "atomic", "wait", "warpgroup_mma", "arrive", "expect")


def _has_effects(value: ast.expr) -> bool:
    """Whether an expression does more than compute a value of its operands: memory sees what it reads."""
    calls = (node for node in ast.walk(value) if isinstance(node, ast.Call))
    return any(word in ast.unparse(call.func) for call in calls for word in _EFFECTS)


def _targets(node: ast.Assign | ast.AugAssign) -> set[str]:
    """The names that an assignment gives values."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {part.id for one in targets for part in ast.walk(one) if isinstance(part, ast.Name)}


def _sets_constant(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)


def _loops(nodes: Iterable[ast.AST]) -> Iterator[ast.For | ast.While]:
    """The loops among a function's nodes that Triton keeps as loops."""
    for node in nodes:
        static = isinstance(node, ast.For) and "static_range" in ast.unparse(node.iter)
        if isinstance(node, ast.For | ast.While) and not static:
            yield node


def _bound_before(function: ast.FunctionDef, nodes: Iterable[ast.AST], loop: ast.stmt) -> set[str]:
    """The names that have a value when a loop begins: parameters, and what lines above it assign."""
    found = {argument.arg for argument in function.args.args}
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.lineno < loop.lineno:
            found.add(node.id)
    return found


def _renewed(loop: ast.For | ast.While, names: set[str]) -> bool:
    """Whether an iteration gives each name its value before anything reads it: then it carries nothing."""
    fresh = set[str]()
    for statement in loop.body:
        read = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        if read & (names - fresh):
            return False
        if isinstance(statement, ast.Assign):
            fresh |= _targets(statement)
    return True
