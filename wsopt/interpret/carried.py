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
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from wsopt.interpret.faults import InterpreterError

_Loop = ast.For | ast.While
_LEAVES = (ast.Name, ast.Constant, ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)
"""Nodes without any that is looked at in them: more than half of all."""
_LOOKED_AT = (ast.Name, ast.Assign, ast.AugAssign, ast.For)


def check_carried(function: ast.FunctionDef, filename: str) -> None:
    """Raises InterpreterError for the first such assignment or loop, with its line."""
    every, loops = _looked_at(function)
    bound = _bound(function, every)
    # Of loops in loops each looks at the same assignments.
    facts = _Facts(functools.cache(_names), functools.cache(_targets), functools.cache(_has_effects))
    for loop, nodes in loops.items():
        before = {name for line, name in bound if line < loop.lineno}
        told_of = chain(_constants(loop, nodes, before), _for_bounds_alone(loop, nodes, before, facts))
        found = next(told_of, None)
        if found is not None:
            line, told = found
            raise InterpreterError(f"{os.path.basename(filename)}:{line}: {function.name}: {told}")


@dataclass(frozen=True, slots=True)
class _Facts:
    """What is asked of a function's nodes, each found once."""

    names: Callable[[ast.AST], tuple[ast.Name, ...]]
    targets: Callable[[ast.Assign | ast.AugAssign], set[str]]
    has_effects: Callable[[ast.expr], bool]


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes right in a node, less those without any that is looked at, but for names."""
    for field in node._fields:
        value = getattr(node, field, None)
        for child in value if isinstance(value, list) else (value,):
            if isinstance(child, ast.Name) or (isinstance(child, ast.AST) and not isinstance(child, _LEAVES)):
                yield child


def _names(node: ast.AST) -> tuple[ast.Name, ...]:
    """The names in a node, in no order that counts."""
    found, todo = list[ast.Name](), [node]
    while todo:
        one = todo.pop()
        if isinstance(one, ast.Name):
            found.append(one)
        else:
            todo += _children(one)
    return tuple(found)


def _looked_at(function: ast.FunctionDef) -> tuple[list[ast.AST], dict[_Loop, list[ast.AST]]]:
    """The nodes of a function that are looked at, and those of each loop that Triton keeps as a loop."""
    every, found = list[ast.AST](), dict[_Loop, list[ast.AST]]()

    def visit(node: ast.AST, around: tuple[_Loop, ...]) -> None:
        if isinstance(node, ast.For | ast.While) and not _is_static(node):
            found[node] = []
            around = (*around, node)
        if isinstance(node, _LOOKED_AT):
            every.append(node)
            for loop in around:
                found[loop].append(node)
        if not isinstance(node, ast.Name):
            for child in _children(node):
                visit(child, around)

    visit(function, ())
    return every, found


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


def _for_bounds_alone(
    loop: _Loop, nodes: Iterable[ast.AST], before: set[str], facts: _Facts
) -> Iterator[tuple[int, str]]:
    """A loop's line with each name that it hands on and that reaches nothing but itself and bounds of loops in it."""
    inner = [n for n in nodes if n is not loop and isinstance(n, ast.For)]
    assigned = [n for n in nodes if isinstance(n, ast.Assign | ast.AugAssign)] if inner else []
    handed = {name for one in assigned for name in facts.targets(one)} & before
    if not handed:
        return
    bounds = {id(name): name for one in inner for name in facts.names(one.iter)}
    of_values = {id(name): one for one in assigned for name in facts.names(one.value)}
    feeds: dict[str, set[str]] = {}
    alive = set[str]()
    for node in nodes:
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load) or id(node) in bounds:
            continue
        one = of_values.get(id(node))
        if one is None or facts.has_effects(one.value) or not facts.targets(one):
            alive.add(node.id)
        else:
            feeds.setdefault(node.id, set()).update(facts.targets(one))
    read = {name.id for name in bounds.values()}
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
    return {name.id for one in targets for name in _names(one)}


def _sets_constant(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)


def _bound(function: ast.FunctionDef, nodes: Iterable[ast.AST]) -> list[tuple[int, str]]:
    """The names that get a value in a function of these nodes, with the line on which they do; parameters first."""
    parameters = [(0, argument.arg) for argument in function.args.args]
    names = (node for node in nodes if isinstance(node, ast.Name))
    return parameters + [(name.lineno, name.id) for name in names if isinstance(name.ctx, ast.Store)]


def _renewed(loop: _Loop, names: set[str]) -> bool:
    """Whether an iteration gives each name its value before anything reads it: then it carries nothing."""
    fresh = set[str]()
    for statement in loop.body:
        read = {name.id for name in _names(statement) if isinstance(name.ctx, ast.Load)}
        if read & (names - fresh):
            return False
        if isinstance(statement, ast.Assign):
            fresh |= _targets(statement)
    return True
