"""Notes which statements of a kernel's device functions run: a mark is set as each one begins.

The marks are written into the syntax tree before it is compiled, so they cost one store each, under every Python and
in every coroutine, and the lines in tracebacks stay those of the source.
"""

from __future__ import annotations
import __future__

import ast
import functools
import itertools
import operator
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType

from wsopt.interpret.carried import check_carried
from wsopt.interpret.faults import InterpreterError

MARKS = "__ran__"
"""The name under which a kernel's functions find their marks."""

_DEVICE_FUNCTION = re.compile(r"^@(?:\w+\.)*jit\b", re.MULTILINE)
_FEATURES = functools.reduce(
    operator.or_, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
)
"""What a `from __future__ import` of the first part asks for in all."""


@dataclass(frozen=True, slots=True)
class Marked:
    """A kernel's code with marks, to be run part by part, and the line of each statement that has one, by the number
    of its mark.
    """

    code: tuple[CodeType, ...]
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
    parts, lines = list[CodeType](), list[int]()
    for first, text in _functions(source):
        try:
            part = _marked_part(
                text, first, len(lines), filename, parts[0].co_flags & _FEATURES if parts else 0
            )
        except SyntaxError:
            raise _no_python(source, filename) from None
        parts += part.code
        lines += part.lines
    return Marked(tuple(parts), tuple(lines))


def _functions(source: str) -> Iterator[tuple[int, str]]:
    """A source in parts, with the line on which each begins: a device function, and what is behind it, is one."""
    starts = [
        0,
        *(found.start() for found in _DEVICE_FUNCTION.finditer(source) if found.start()),
        len(source),
    ]
    first = 1
    for start, end in itertools.pairwise(starts):
        yield first, source[start:end]
        first += source.count("\n", start, end)


@functools.lru_cache(maxsize=512)
def _marked_part(text: str, first: int, number: int, filename: str, features: int) -> Marked:
    """The code of one part, whose marks begin at a number: kept, for of a kernel's mutants only one part differs."""
    tree = ast.parse("\n" * (first - 1) + text, filename)
    lines: list[int] = [0] * number
    for function in tree.body:
        if isinstance(function, ast.FunctionDef) and any(map(_is_jit, function.decorator_list)):
            check_carried(function, filename)
            _mark(function, lines)
    code = compile(tree, filename, "exec", features, dont_inherit=True)
    return Marked((code,), tuple(lines[number:]))


def _no_python(source: str, filename: str) -> InterpreterError:
    try:
        ast.parse(source, filename)
    except SyntaxError as error:
        return InterpreterError(f"{os.path.basename(filename)}:{error.lineno}: {error.msg}")
    return InterpreterError(
        f"{os.path.basename(filename)}: a text has a line that begins like a device function"
    )


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
