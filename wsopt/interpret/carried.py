"""Refuses a constant that a loop of a device function assigns to a variable from before the loop.

Triton 3.6 may give the variable its value of before the loop in every iteration: a pass takes what is carried for
equal to what it began with. Python's own loop does what is written, so that no execution here would find it.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator

from wsopt.interpret.faults import InterpreterError


def check_carried(function: ast.FunctionDef, filename: str) -> None:
    """Raises InterpreterError for the first such assignment, with its line."""
    nodes = list(ast.walk(function))
    if not any(map(_sets_constant, nodes)):
        return
    for loop in _loops(nodes):
        before = _bound_before(function, nodes, loop)
        for node in ast.walk(loop):
            if isinstance(node, ast.Assign) and _sets_constant(node):
                names = {one.id for one in node.targets if isinstance(one, ast.Name)} & before
                if names and not _renewed(loop, names):
                    place = f"{os.path.basename(filename)}:{node.lineno}: {function.name}"
                    raise InterpreterError(
                        f"{place}: {min(names)} is set to a constant in a loop, and has a value from before it: "
                        "Triton 3.6 may keep that one"
                    )


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
            fresh |= {one.id for one in statement.targets if isinstance(one, ast.Name)}
    return True
