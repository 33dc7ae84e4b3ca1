"""Refuses what a loop of a device function hands from one iteration to the next where Triton 3.6 may lose it.

That is a constant that the loop assigns to a variable from before it, and a variable on which nothing but bounds of
inner loops depends: Triton takes what is carried for equal to what it began with, or for dead, and gives the variable
its value of before the loop in every iteration. Python's own loop does what is written, so that no execution here
would find it.
"""

from __future__ import annotations

import ast
import functools
import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from wsopt.interpret.faults import InterpreterError

_Loop = ast.For | ast.While


def check_carried(function: ast.FunctionDef, filename: str) -> None:
    """Raises InterpreterError for the first such assignment or loop, with its line."""
    bound = _bound(function)
    for loop, nodes in _inside(function).items():
        before = {name for line, name in bound if line < loop.lineno}
        found = next(chain(_constants(loop, nodes, before), _for_bounds_alone(loop, nodes, before)), None)
        if found is not None:
            line, told = found
            raise InterpreterError(f"{os.path.basename(filename)}:{line}: {function.name}: {told}")


def _inside(function: ast.FunctionDef) -> dict[_Loop, list[ast.AST]]:
    """The loops of a function that Triton keeps as loops, with all nodes of each."""
    found: dict[_Loop, list[ast.AST]] = {}

    def visit(node: ast.AST, around: tuple[_Loop, ...]) -> None:
        if isinstance(node, ast.For | ast.While) and not _is_static(node):
            found[node] = []
            around = (*around, node)
        for loop in around:
            found[loop].append(node)
        for child in ast.iter_child_nodes(node):
            visit(child, around)

    visit(function, ())
    return found


def _is_static(loop: _Loop) -> bool:
    return isinstance(loop, ast.For) and "static_range" in ast.unparse(loop.iter)


def _constants(loop: _Loop, nodes: Iterable[ast.AST], before: set[str]) -> Iterator[tuple[int, str]]:
    """The lines at which a loop sets a variable from before it to a constant, and what is wrong with that."""
    for node in nodes:
        if isinstance(node, ast.Assign) and _sets_constant(node):
            names = {one.id for one in node.targets if isinstance(one, ast.Name)} & before
            if names and not _renewed(loop, names):
                told = f"{min(names)} is set to a constant in a loop, and has a value from before it"
                yield node.lineno, f"{told}: Triton 3.6 may keep that one"


def _for_bounds_alone(loop: _Loop, nodes: Iterable[ast.AST], before: set[str]) -> Iterator[tuple[int, str]]:
    """A loop's line with each name that it hands on and that reaches nothing but itself and bounds of loops in it."""
    inner = [n for n in nodes if n is not loop and isinstance(n, ast.For)]
    assigned = [n for n in nodes if isinstance(n, ast.Assign | ast.AugAssign)] if inner else []
    handed = {name for one in assigned for name in _targets(one)} & before
    if not handed:
        return
    bounds = {id(part): part for one in inner for part in ast.walk(one.iter)}
    of_values = {id(part): one for one in assigned for part in ast.walk(one.value)}
    has_effects = functools.cache(_has_effects)
    feeds: dict[str, set[str]] = {}
    alive = set[str]()
    for node in nodes:
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load) or id(node) in bounds:
            continue
        one = of_values.get(id(node))
        if one is None or has_effects(one.value) or not _targets(one):
            alive.add(node.id)
        else:
            feeds.setdefault(node.id, set()).update(_targets(one))
    read = {part.id for part in bounds.values() if isinstance(part, ast.Name)}
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
    called = (ast.unparse(node.func) for node in ast.walk(value) if isinstance(node, ast.Call))
    return any(word in name for name in called for word in _EFFECTS)


def _targets(node: ast.Assign | ast.AugAssign) -> set[str]:
    """The names that an assignment gives values."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {part.id for one in targets for part in ast.walk(one) if isinstance(part, ast.Name)}


def _sets_constant(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)


def _bound(function: ast.FunctionDef) -> list[tuple[int, str]]:
    """The names that get a value in a function, with the line on which they do; parameters before all."""
    parameters = [(0, argument.arg) for argument in function.args.args]
    names = (node for node in ast.walk(function) if isinstance(node, ast.Name))
    return parameters + [(node.lineno, node.id) for node in names if isinstance(node.ctx, ast.Store)]


def _renewed(loop: _Loop, names: set[str]) -> bool:
    """Whether an iteration gives each name its value before anything reads it: then it carries nothing."""
    fresh = set[str]()
    for statement in loop.body:
        read = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        if read & (names - fresh):
            return False
        if isinstance(statement, ast.Assign):
            fresh |= _targets(statement)
    return True
