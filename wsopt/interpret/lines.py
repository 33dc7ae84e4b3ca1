"""Notes which statements of a kernel's device functions run: a mark is set as each one begins.

The marks are written into the syntax tree before it is compiled, so they cost one store each, under every Python and
in every coroutine, and the lines in tracebacks stay those of the source.
"""

from __future__ import annotations

import ast
import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType

from wsopt.interpret.carried import check_carried
from wsopt.interpret.faults import InterpreterError

MARKS = "__ran__"
"""The name under which a kernel's functions find their marks."""


@dataclass(frozen=True, slots=True)
class Marked:
    """A kernel's code with marks, and the line of each statement that has one, by the number of its mark."""

    code: CodeType
    lines: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Coverage:
    """Statements of a kernel's device functions that `ran`, by number; `lines` has the line of each."""

    lines: tuple[int, ...]
    ran: frozenset[int]

    @property
    def of(self) -> int:
        """Lines on which a statement begins."""
        return len(set(self.lines))

    @property
    def missed(self) -> tuple[int, ...]:
        """The lines, in order, on which a statement begins that never ran."""
        return tuple(sorted({line for number, line in enumerate(self.lines) if number not in self.ran}))


@functools.lru_cache(maxsize=8)
def marked(source: str, filename: str = "kernel.py") -> Marked:
    """Compile a kernel's source with a mark before each statement of its device functions.

    Raises InterpreterError with the place of what is no Python.
    """
    try:
        tree = ast.parse(source, filename)
    except SyntaxError as error:
        raise InterpreterError(f"{os.path.basename(filename)}:{error.lineno}: {error.msg}") from error
    lines: list[int] = []
    text = source.splitlines(keepends=True)
    for function in tree.body:
        if isinstance(function, ast.FunctionDef) and any(map(_is_jit, function.decorator_list)):
            _check("".join(text[function.lineno - 1 : function.end_lineno]), function.lineno, filename)
            _mark(function, lines)
    return Marked(compile(tree, filename, "exec"), tuple(lines))


@functools.lru_cache(maxsize=256)
def _check(text: str, line: int, filename: str) -> None:
    """Check a function that begins on a line: once, for of a kernel's mutants only one function differs."""
    (function,) = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef)
    check_carried(ast.increment_lineno(function, line - 1), filename)


def _is_jit(decorator: ast.expr) -> bool:
    """Whether a decorator is `jit`, of whatever module and with options or without."""
    if isinstance(decorator, ast.Call):
        decorator = decorator.func
    name = decorator.attr if isinstance(decorator, ast.Attribute) else getattr(decorator, "id", "")
    return name == "jit"


def _mark(node: ast.AST, lines: list[int]) -> None:
    """Put marks before the statements of a node's blocks, outer ones first; their lines go into `lines`."""
    for _, block in ast.iter_fields(node):
        if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
            block[:] = list(_marked_block(block, lines))
        elif isinstance(block, list):  # handlers and cases have blocks of their own
            for one in block:
                if isinstance(one, ast.excepthandler | ast.match_case):
                    _mark(one, lines)


def _marked_block(block: list[ast.stmt], lines: list[int]) -> Iterator[ast.stmt]:
    for statement in block:
        if not _is_text(statement):
            yield _mark_of(len(lines), statement)
            lines.append(statement.lineno)
        _mark(statement, lines)
        yield statement


def _mark_of(number: int, statement: ast.stmt) -> ast.stmt:
    """The assignment that sets a mark, at the place of the statement behind it."""
    marks, index = ast.Name(MARKS, ast.Load()), ast.Constant(number)
    target, one = ast.Subscript(marks, index, ast.Store()), ast.Constant(1)
    mark = ast.Assign([target], one)
    for node in (marks, index, target, one, mark):
        node.lineno, node.col_offset = statement.lineno, statement.col_offset
        node.end_lineno, node.end_col_offset = statement.end_lineno, statement.end_col_offset
    return mark


def _is_text(statement: ast.stmt) -> bool:
    """Whether a statement is a docstring, for which no code is made."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
