"""Edits of source text at the places of syntax nodes; every other byte, and every line number, stays."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Edit:
    """Replace the text of a node."""

    node: ast.expr | ast.stmt
    text: str


class Source:
    """A parsed source with its text by node."""

    def __init__(self, text: str) -> None:
        self.tree = ast.parse(text)
        self._bytes = text.encode()
        self._starts = [0]
        for line in self._bytes.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        functions = (node for node in self.tree.body if isinstance(node, ast.FunctionDef))
        self._kernels = tuple(filter(self._is_kernel, functions))

    def text(self, node: ast.expr | ast.stmt) -> str:
        """Return the text of a node."""
        low, high = self._span(node)
        return self._bytes[low:high].decode()

    def edited(self, edits: Iterable[Edit]) -> str:
        """Return the source with disjoint nodes replaced."""
        result = self._bytes
        for (low, high), text in sorted(((self._span(e.node), e.text) for e in edits), reverse=True):
            result = result[:low] + text.encode() + result[high:]
        return result.decode()

    def kernels(self) -> tuple[ast.FunctionDef, ...]:
        """Return the functions that run on the device."""
        return self._kernels

    def _is_kernel(self, function: ast.FunctionDef) -> bool:
        return any("jit" in self.text(decorator) for decorator in function.decorator_list)

    def function_at(self, line: int) -> str:
        """Return the name of the module's function that a line belongs to; empty outside of them."""
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or node.lineno):
                return node.name
        return ""

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        low = self._starts[node.lineno - 1] + node.col_offset
        return low, self._starts[node.end_lineno - 1] + node.end_col_offset


@functools.lru_cache(maxsize=64)
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """Return a tree's nodes as `ast.walk` yields them: kept, as every rule goes through those of every function."""
    return tuple(ast.walk(tree))


def callee(node: ast.AST) -> str:
    """Return the last name of what a call calls: `wait` of `mbarrier.wait(...)`; empty for other nodes."""
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    if isinstance(function, ast.Attribute):
        owner = function.value.id if isinstance(function.value, ast.Name) else ""
        return f"{owner}.{function.attr}" if owner in ("mbarrier", "tma", "gl") else function.attr
    return function.id if isinstance(function, ast.Name) else ""


def argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    """Return an argument given by position or by name."""
    if position < len(call.args):
        return call.args[position]
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


@dataclass(frozen=True)
class Change:
    """The edits that make one mistake, its kind in a word, and what is done."""

    kind: str
    description: str
    edits: tuple[Edit, ...]

    @property
    def line(self) -> int:
        """The first line that changes."""
        return min(edit.node.lineno for edit in self.edits)


Rule = Callable[[Source], Iterator[Change]]


def calls(source: Source, names: tuple[str, ...]) -> Iterator[ast.Call]:
    """Yield the calls of these names on the device, by line."""
    for kernel in source.kernels():
        found = (node for node in nodes(kernel) if isinstance(node, ast.Call) and callee(node) in names)
        yield from sorted(found, key=lambda node: (node.lineno, node.col_offset))


def statements(source: Source, names: tuple[str, ...]) -> Iterator[tuple[ast.Expr, str]]:
    """Yield the statements on the device that are a call of these names, each with the name."""
    for kernel in source.kernels():
        for node in nodes(kernel):
            if isinstance(node, ast.Expr) and callee(node.value) in names:
                yield node, callee(node.value)


def bodies(source: Source) -> Iterator[list[ast.stmt]]:
    """Every row of statements: of a function, a loop, a condition."""
    for kernel in source.kernels():
        for parent in nodes(kernel):
            body = getattr(parent, "body", None)
            if isinstance(body, list):
                yield body
